#!/usr/bin/env python3
"""topk_torch.py ROWS.json: times torch.topk and the gather of what it found (1 % of 100 M values by magnitude) on the
first CUDA device, and holds the encode rows of topk in gpu_bench's JSON against it. Exit status 77 without torch or a
device."""

import json
import statistics
import sys

import torch_on_gpu

ROUNDS = 7


def torch_seconds(torch, values: int) -> float:
    x = torch.randn(values, device="cuda")
    k = values // 100
    times = []
    for _ in range(ROUNDS + 2):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        _, indices = torch.topk(x.abs(), k, sorted=False)
        sent = x.gather(0, indices)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
        del sent, indices
    return statistics.median(times[2:])


def main(path: str) -> int:
    torch = torch_on_gpu.find()
    if torch is None:
        return 77
    rows = json.loads(open(path).read())
    for row in rows:
        if row["codec"] != "topk" or row["kernel"] != "encode" or row["backend"] != "cuda":
            continue
        theirs = torch_seconds(torch, row["values"])
        ratio = theirs / row["seconds_median"]
        print(f"topk 1 % of {row['values']}: {1e3 * row['seconds_median']:.3f} ms with sorted, coded indices; "
              f"torch.topk and gather {1e3 * theirs:.3f} ms: {ratio:.2f} times as fast (asked: 3 at 100 M)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else 2)
