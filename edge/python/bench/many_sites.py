"""many_sites.py [--sites N] [--values N] [--rounds N] [--at-once N] [--processes]: what hundreds of sites on one machine cost.

Prints how long they took to enrol and connect, how long a round took, and the resident memory of their processes by site,
before the run and at the end of it: the latter with what the kernel shares of the model counted once in each process.
FLUVIAL_EXECUTABLE names the executable. Quote it with machine and date.
"""

import argparse
import pathlib
import statistics
import sys
import time
import urllib.request

import numpy as np

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1])]

import fluvial  # noqa: E402


def resident_bytes(federation):
    """Of all processes of sites together."""
    total = 0.0
    for port in {about["metrics_port"] for about in federation._about["sites"]}:
        for line in urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode().splitlines():
            if line.startswith("process_resident_memory_bytes "):
                total += float(line.split()[1])
    return total


def step(round, index):
    round.submit({"w": round.arrays()["w"] + np.float32(1 + index % 7)}, samples=1 + index % 5)


def main():
    parser = argparse.ArgumentParser(prog="many_sites")
    parser.add_argument("--sites", type=int, default=500)
    parser.add_argument("--values", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--processes", action="store_true")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with fluvial.testing.LocalFederation(sites=arguments.sites) as federation:
        print(f"{arguments.sites} sites enrolled and connected: {time.monotonic() - begun:.1f} s")
        print(f"resident, idle: {resident_bytes(federation) / arguments.sites / 2**20:.2f} MiB a site")
        plan = {"deadlines": {"soft_ms": 3_600_000, "hard_ms": 7_200_000}}
        model = {"w": np.zeros(arguments.values, np.float32)}
        federation.start_run("many", model=model, rounds=arguments.rounds, plan=plan)
        federation.train_rounds(step, "many", at_once=arguments.at_once, processes=arguments.processes)
        federation.wait("many")
        rounds = federation.rounds("many")
        assert all(len(round["contributors"]) == arguments.sites for round in rounds)
        print(f"a round of {arguments.values} values: {statistics.median(round['seconds'] for round in rounds):.2f} s")
        print(f"resident, after the run: {resident_bytes(federation) / arguments.sites / 2**20:.2f} MiB a site")


if __name__ == "__main__":
    main()
