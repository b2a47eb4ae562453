"""Updates, results, overlap, all-reduce, groups of ranks: against the real processes, with workers that die in each."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import fluvial
from test_federation import in_threads

MEAN = {"codec": "fp32", "optimizer": "mean"}


@pytest.fixture
def pairs():
    with fluvial.testing.LocalFederation(sites=3, aggregators=1, workers=2) as local:
        yield local


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


@pytest.fixture
def two():
    with fluvial.testing.LocalFederation(sites=2) as local:
        yield local


def test_gradients_as_updates_are_synchronous_sgd(federation):
    rng = np.random.default_rng(2)
    gradients = rng.standard_normal((3, 4, 50)).astype(np.float32)
    start = {"w": rng.standard_normal(50).astype(np.float32), "seen": np.array([2], np.int64)}
    federation.start_run("sgd", start, rounds=3, optimizer="fedavg:lr=0.1")
    expected = [start["w"].astype(np.float64)]
    for step in gradients.astype(np.float64):
        expected.append(expected[-1] - 0.1 * np.average(step, axis=0, weights=[1, 2, 3, 4]))

    def train(index):
        with federation.connect(index) as site:
            for round in site.rounds("sgd"):
                round.submit_update({"w": gradients[round.number - 1, index]}, samples=index + 1)
                result = round.result(timeout_s=60)
                np.testing.assert_allclose(result["w"], expected[round.number], rtol=0, atol=1e-6)
                assert result["seen"].tolist() == [2]

    in_threads(4, train)
    np.testing.assert_allclose(federation.model("sgd")["w"], expected[3], rtol=0, atol=1e-6)


def test_allreduce_is_the_weighted_mean_over_sites(federation):
    """Four sites; a vector that changes every time."""
    means_of(federation, "mean", sites=4, workers=1)


def test_allreduce_is_the_weighted_mean_over_sites_and_workers(pairs):
    means_of(pairs, "mean", sites=3, workers=2)


def means_of(federation, run, sites, workers):
    count = sites * workers
    values = np.random.default_rng(5).uniform(-8, 8, (3, count, 1000))
    weights = np.array([3, 1, 4, 1, 5, 9])[:count]
    federation.start_run(run, fluvial.zeros_like(np.zeros(1000)), rounds=3, **MEAN)

    def work(index):
        with federation.connect(index % sites) as site:
            for turn in range(3):
                mean = site.allreduce(values[turn, index], run=run, samples=int(weights[index]), timeout_s=60)
                expected = np.average(values[turn], axis=0, weights=weights)
                assert np.abs(mean - expected).max() <= 2e-6
            with pytest.raises(fluvial.RunEnded):
                site.allreduce(values[0, 0], run=run, timeout_s=60)

    in_threads(count, work)


def test_training_goes_on_while_a_round_is_in_the_air(two):
    two.start_run("air", {"w": np.zeros(3, np.float32)}, rounds=3)
    ahead = threading.Event()

    def overlapping():
        numbers = []
        with two.connect(0) as site:
            for round in site.rounds("air"):
                numbers.append(round.number)
                if round.number == 2:
                    assert round.arrays()["w"].tolist() == [2, 2, 2]  # its own
                    ahead.set()
                round.submit({"w": round.arrays()["w"] + 2}, samples=1, overlap=True)
        assert numbers[:3] == [1, 2, 3]  # a fourth may have been begun in vain, before the run's end was known

    def waiting():
        with two.connect(1) as site:
            for round in site.rounds("air"):
                assert ahead.wait(timeout=60)  # the other was in round 2 before this one ended round 1
                round.submit({"w": round.arrays()["w"] + 4}, samples=1)

    in_threads(2, lambda index: (overlapping, waiting)[index]())
    assert two.model("air")["w"].tolist() == [9, 9, 9]


def even(round, rank, stepped):
    mine = round.shard()
    round.submit_shard(stepped[mine], mine.start, samples=3)


def by_rows(round, rank, stepped):
    """Each tensor cut along its first dimension, as fully_shard does it."""
    pieces, places = [], []
    for tensor in round.schema:
        if tensor.averaged:
            rows, row = -(-tensor.shape[0] // 3), tensor.size // tensor.shape[0]
            first, last = (min(number * rows, tensor.shape[0]) * row for number in (rank, rank + 1))
            places.append(round.place(tensor.name).start + first)
            pieces.append(stepped[places[-1] : places[-1] + last - first].reshape(-1, row))
    round.submit_shard(pieces, places, samples=3)


@pytest.mark.parametrize("submit", [even, by_rows])
def test_ranks_of_a_group_are_one_worker(two, submit):
    """Site 0: three ranks with shares of a model; site 1: one worker with all of it."""
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((4, 5)).astype(np.float32), np.ones(7, np.float32)
    start = {"a": a, "n": np.array([3], np.int64), "b": b}
    steps = rng.standard_normal((2, 27)).astype(np.float32)
    two.start_run("shards", start, rounds=3)

    def rank(index):
        with fluvial.connect(two.worker_socket(0), group="trainer", rank=index, ranks=3) as site:
            for round in site.rounds("shards"):
                submit(round, index, round.flat() + steps[0])

    def whole():
        with two.connect(1) as site:
            for round in site.rounds("shards"):
                round.submit_shard(round.flat() + steps[1], 0, samples=1)

    in_threads(4, lambda index: rank(index) if index < 3 else whole())
    committed = two.model("shards")
    flat = np.concatenate([start["a"].reshape(-1), start["b"]]) + 3 * (0.75 * steps[0] + 0.25 * steps[1])
    np.testing.assert_allclose(np.concatenate([committed["a"].reshape(-1), committed["b"]]), flat, rtol=0, atol=2e-6)
    assert committed["n"].tolist() == [3]


WORKERS = {
    "overlap": """
        for round in site.rounds("survive"):
            if round.number == 2:
                say("in the air")
            round.submit({"w": round.arrays()["w"] + 1}, samples=1, overlap=True)
    """,
    "waits for a result": """
        for round in site.rounds("survive"):
            round.submit_update({"w": round.arrays()["w"] + 1}, samples=1)
            print("result", flush=True)
            round.result()
    """,
    "in parts": """
        for round in site.rounds("survive"):
            parts = round.parts(samples=1)
            parts.add({"w": round.arrays()["w"]})
            say("one part")
            parts.finish()
    """,
    "group": """
        for round in site.rounds("survive"):
            say("in a group")
    """,
}


class Worker:
    """A process that does one of these things, and then waits."""

    def __init__(self, socket, kind, connect=""):
        head = f"""
        import signal
        import sys
        import fluvial

        signal.signal(signal.SIGINT, signal.default_int_handler)  # which who runs the tests in the background ignores

        def say(what):
            print(what, flush=True)
            sys.stdin.readline()

        site = fluvial.connect({socket!r}{connect})
        """
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(WORKERS[kind])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def end(self, how):
        with self._process as process:
            try:
                assert process.stdout.readline()
                process.send_signal(how)
                process.wait(timeout=30)
            finally:
                process.kill()


ENDS = pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])


@ENDS
def test_a_worker_that_ends_with_a_round_in_the_air(small, how):
    small.start_run("survive", {"w": np.zeros(3, np.float32)}, rounds=2)
    Worker(small.worker_socket(0), "overlap").end(how)
    numbers = []
    for round in small.connect(0).rounds("survive"):
        numbers.append(round.number)
        round.submit({"w": round.arrays()["w"] + 10}, samples=1)
    assert numbers == [2]
    assert small.model("survive")["w"].tolist() == [11, 11, 11]  # what it handed over before counts


@ENDS
def test_a_worker_that_ends_while_it_waits_for_a_result(two, how):
    two.start_run("survive", {"w": np.zeros(3, np.float32)}, rounds=2, **MEAN)
    Worker(two.worker_socket(0), "waits for a result").end(how)

    def work(index):
        with two.connect(index) as site:
            means = [site.allreduce(np.full(3, 4.0), run="survive").tolist() for _ in range(1 + index)]
            assert means == [[2.5] * 3, [4.0] * 3][1 - index :]

    in_threads(2, work)
    assert two.model("survive")["w"].tolist() == [4, 4, 4]


@ENDS
def test_a_worker_that_ends_between_two_parts(small, how):
    small.start_run("survive", {"v": np.zeros(2, np.float32), "w": np.zeros(3, np.float32)}, rounds=1, **MEAN)
    Worker(small.worker_socket(0), "in parts").end(how)
    for round in small.connect(0).rounds("survive"):
        parts = round.parts(samples=2)
        parts.add({"w": np.full(3, 5.0)})
        parts.add({"v": np.full(2, 6.0)})
        parts.finish()
        assert round.result(timeout_s=60)["w"].tolist() == [5, 5, 5]
    assert small.model("survive")["v"].tolist() == [6, 6]


@ENDS
def test_a_group_that_lost_a_rank_starts_again(small, how):
    small.start_run("survive", {"w": np.zeros(10, np.float32)}, rounds=1)
    socket = small.worker_socket(0)
    gone = threading.Event()

    def train(site, index):
        for round in site.rounds("survive"):
            mine = round.shard()
            round.submit_shard(round.flat()[mine] + index + 1, mine.start, samples=1)

    def stays():
        with fluvial.connect(socket, group="g", rank=0, ranks=2) as site:
            for _ in site.rounds("survive"):
                assert gone.wait(timeout=60)
                break  # its collectives fail, and it begins anew
            train(site, 0)

    def replaced():
        Worker(socket, "group", ', group="g", rank=1, ranks=2').end(how)
        gone.set()
        with fluvial.connect(socket, group="g", rank=1, ranks=2) as site:
            train(site, 1)

    in_threads(2, lambda index: (stays, replaced)[index]())
    assert small.model("survive")["w"].tolist() == [1] * 5 + [2] * 5
