"""transfer.py [--megabytes N] [--seconds S]: what a worker's submit and load of a model cost, against two plain copies.

Each turn copies the model into arrays that are there, twice, and then does Round.load_into and Round.submit of the same
model, with an agent played by this process. The figure is the quotient of their times, the median over the turns. Times
are the processor's for this thread: what else the machine does falls out for the most part.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np

ROOM = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOM), str(ROOM / "tests")]

from fake_agent import FakeAgent  # noqa: E402


def timed(work):
    start = time.thread_time()  # of the processor: not the time others have it
    work()
    return time.thread_time() - start


def main():
    parser = argparse.ArgumentParser(prog="transfer")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(1)
    length = arguments.megabytes * 1_000_000 // 4 // 10
    model = {f"layer{number}": rng.standard_normal(length, np.float32) for number in range(10)}
    copies = [{name: array.copy() for name, array in model.items()} for _ in range(2)]
    submits, loads, ratios = [], [], []
    with tempfile.TemporaryDirectory() as folder, FakeAgent(f"{folder}/agent", model) as agent:
        end = time.monotonic() + arguments.seconds
        while time.monotonic() < end or len(ratios) < 5:
            agent.task(len(ratios) + 1, model)
            round = next(agent.rounds)
            plain = 0.0
            for copy in copies:
                plain += timed(lambda: [np.copyto(copy[name], array) for name, array in model.items()])
            loads.append(timed(lambda: round.load_into(copies[0])))
            submits.append(timed(lambda: round.submit(model, samples=1)))
            agent.receive()
            ratios.append((loads[-1] + submits[-1]) / plain)
    ratios = ratios[1:]  # the first brings its memory with it
    print(
        f"{arguments.megabytes} MB, {len(ratios)} rounds: load {1e3 * statistics.median(loads):.1f} ms, submit "
        f"{1e3 * statistics.median(submits):.1f} ms; together {statistics.median(ratios):.2f} times two plain copies "
        f"(median; quartiles {', '.join(f'{quartile:.2f}' for quartile in statistics.quantiles(ratios)[::2])})"
    )


if __name__ == "__main__":
    main()
