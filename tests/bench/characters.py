#!/usr/bin/env python3
"""characters.py [--rounds N] [--seeds N] [--steps N] [--json FILE] [CODEC[@OPTIMIZER] ...]: loss and bytes by codec.

The character transformer of examples/pytorch/characters.py (a federation of two sites with different texts, as real
processes), trained once for each codec and seed: the same model, the same batches, the same number of rounds. The loss is
in nats a letter over fixed batches of both texts. Needs the Python package on PYTHONPATH, torch, and the executable in
FLUVIAL_EXECUTABLE.
"""

import argparse
import datetime
import json
import multiprocessing
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "pytorch"))

import characters  # noqa: E402: beside its example
import fluvial  # noqa: E402
import torch  # noqa: E402

CODECS = [
    "fp32@nesterov:lr=0.5,momentum=0.7",
    "int8@nesterov:lr=0.5,momentum=0.7",
    "fp32@fedavg",
    "topk:ratio=0.01@fedavg",
    "dgc:ratio=0.01,momentum=0.7@fedavg:lr=0.5",
    "dgc:ratio=0.01,momentum=0.7,warmup=10@fedavg:lr=0.5",
    "topk:ratio=0.001@fedavg",
    "dgc:ratio=0.001,momentum=0.7,warmup=10@fedavg:lr=0.5",
    "sign@fedavg",
    "sign:mode=vote@signsgd:lr=0.002",
    "fp32@fedadam:lr=0.01",
    "onebit_adam:freeze=10@onebit_adam:lr=0.01",
    "powersgd:rank=8@fedavg",
]


def loss_of(arrays):
    model = characters.Characters()
    fluvial.load_arrays(model, arrays)
    with torch.no_grad():
        of_sites = [
            statistics.fmean(
                characters.loss_of(model, characters.text(index), torch.Generator().manual_seed(seed)).item() for seed in range(20)
            )
            for index in range(2)
        ]
    return statistics.fmean(of_sites)


def one(what, seed, rounds, steps):
    codec, _, optimizer = what.partition("@")
    with fluvial.testing.LocalFederation(sites=2) as federation:
        workers = [multiprocessing.Process(target=characters.train, args=(federation.worker_socket(i), i, seed)) for i in range(2)]
        for worker in workers:
            worker.start()
        federation.start_run(
            "characters",
            characters.Characters(),
            rounds=rounds,
            local_steps=steps,
            codec=codec,
            optimizer=optimizer or "fedavg",
            plan={"seed": seed},
        )
        federation.wait("characters")
        sent = sum(row["bytes_up"] for row in federation.rounds("characters"))
        values = sum(value.numel() for value in characters.Characters().state_dict().values())
        result = {"codec": codec, "optimizer": optimizer, "seed": seed, "loss": loss_of(federation.model("characters"))}
        result["bytes_of_fp32"] = sent / (rounds * 2 * 4 * values)
        for worker in workers:
            worker.join()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("codecs", nargs="*", default=CODECS, metavar="CODEC@OPTIMIZER")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=10, help="local steps a round")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    print(f"{options.rounds} rounds of {options.steps} steps, {options.seeds} seeds, {datetime.date.today()}\n")
    print("| codec | server | loss, nats a letter | bytes, of fp32 |\n|---|---|---|---|")
    results = []
    for what in options.codecs:
        of_codec = [one(what, seed, options.rounds, options.steps) for seed in range(1, options.seeds + 1)]
        results += of_codec
        losses = sorted(result["loss"] for result in of_codec)
        print(
            f"| `{of_codec[0]['codec']}` | `{of_codec[0]['optimizer']}` | {statistics.median(losses):.3f} "
            f"({losses[0]:.3f} to {losses[-1]:.3f}) | {statistics.median(r['bytes_of_fp32'] for r in of_codec):.4f} |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
