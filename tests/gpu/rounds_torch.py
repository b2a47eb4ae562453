#!/usr/bin/env python3
"""rounds_torch.py [PARAMETERS...]: whole rounds of a federation whose workers' results are on the first CUDA device.

Two sites, two workers each, random updates in place of training; a run whose agents take the results where they are, and
one whose workers copy them to host memory, in turns. For each: the median round, and what an agent's processor and a
worker's take of it. Needs the Python package on PYTHONPATH and the executable, built with CUDA, in FLUVIAL_EXECUTABLE.
Exit status 77 without torch or a device.
"""

import re
import statistics
import sys
import threading
import time
import urllib.request

import torch_on_gpu

SITES, WORKERS, ROUNDS, TURNS = 2, 2, 8, 2
CODECS = ["fp32", "int8", "topk"]


def of_the_agent(federation, metric):
    """A counter of the first site's agent, such as name{label="x"}."""
    with urllib.request.urlopen(f"http://127.0.0.1:{federation._about['sites'][0]['metrics_port']}/metrics") as answer:
        found = re.search(rf"^{re.escape(metric)} (\S+)$", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def run(fluvial, torch, values, codec, on_device):
    """The rounds' seconds after the first, an agent's seconds a round, a worker thread's, and updates summed on GPUs."""
    import numpy as np

    updates = [torch.randn(values, device="cuda") for _ in range(SITES * WORKERS)]
    torch.cuda.synchronize()
    plan = {"models_kept": 2, "deadlines": {"soft_ms": 600_000, "adaptive": False, "hard_ms": 1_200_000}}
    spent = []
    with fluvial.testing.LocalFederation(sites=SITES, workers=WORKERS) as federation:
        federation.start_run("r", {"w": np.zeros(values, np.float32)}, rounds=ROUNDS, codec=codec, plan=plan)

        def work(worker):
            with fluvial.connect(federation.worker_socket(worker // WORKERS), device=on_device) as site:
                for round in site.rounds("r"):
                    begin = time.thread_time()
                    round.submit_update({"w": updates[worker]}, samples=worker + 1)
                    spent.append(time.thread_time() - begin)

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(len(updates))]
        [thread.start() for thread in threads]
        federation.wait("r")
        agent = of_the_agent(federation, "process_cpu_seconds_total") / ROUNDS
        on_gpus = of_the_agent(federation, 'fluvial_site_gpu_updates_total{step="sum"}')
        [thread.join() for thread in threads]
        seconds = [row["seconds"] for row in federation.rounds("r")][1:]
    return seconds, agent, statistics.mean(spent), on_gpus


def main(sizes):
    torch = torch_on_gpu.find()
    if torch is None:
        return 77
    import fluvial

    print(f"{torch.cuda.get_device_name()}, {SITES} sites with {WORKERS} workers each, {ROUNDS} rounds, {TURNS} turns")
    print(f"{'values':>10} {'codec':6} {'results':8} {'round s':>8} {'agent cpu s':>12} {'worker cpu s':>13}")
    for values in sizes:
        for codec in CODECS:
            found = {True: [], False: []}
            for _ in range(TURNS):
                for on_device in found:
                    found[on_device].append(run(fluvial, torch, values, codec, on_device))
            for on_device, runs in found.items():
                assert all((ran[3] > 0) == on_device for ran in runs), "results did not go the way they were to"
                rounds = statistics.median(second for ran in runs for second in ran[0])
                agent, worker = (statistics.mean(ran[i] for ran in runs) for i in (1, 2))
                way = "on GPU" if on_device else "to host"
                print(f"{values:10} {codec:6} {way:8} {rounds:8.3f} {agent:12.3f} {worker:13.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main([int(size) for size in sys.argv[1:]] or [10_000_000, 100_000_000]))
