"""Workers whose models are on (emulated) GPUs, against real agents that use these: what is committed is what host memory gives."""

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import urllib.request

import numpy as np
import pytest

import emulated_cuda
import fluvial
from emulated_cuda import Array
from fluvial import _device
from test_federation import in_threads

EXECUTABLE = os.environ.get("FLUVIAL_EMULATED_EXECUTABLE")
pytestmark = [
    emulated_cuda.needs_library,
    pytest.mark.skipif(not EXECUTABLE, reason="needs an executable with emulated GPUs (the build makes it)"),
]
START = {
    "w": np.random.default_rng(1).standard_normal((40, 60)).astype(np.float32),
    "seen": np.array([3, 4], np.int64),
    "b": np.linspace(-1, 1, 77, dtype=np.float32),
    "on": np.array([False]),
}
ROUNDS = 3


@pytest.fixture
def start(monkeypatch):
    """Starts a federation whose sites use both GPUs, in place of the one before."""
    emulated_cuda.use()
    monkeypatch.setenv("FLUVIAL_EXECUTABLE", EXECUTABLE)
    settings = {"site.gpus": "emulated,emulated:1", "site.reduction": "direct"}  # as GPUs add: others have other last bits
    with contextlib.ExitStack() as stack:

        def anew(**shape):
            stack.close()
            return stack.enter_context(fluvial.testing.LocalFederation(**shape, settings=settings))

        yield anew
    _device.LIBRARY = "libcuda.so.1"


@pytest.fixture
def small(start):
    return start(sites=1)


@pytest.fixture
def pair(start):
    return start(sites=1, workers=2)


def on_gpus(federation, index):
    """How many updates a site's agent has summed, and encoded, on GPUs."""
    with urllib.request.urlopen(f"http://127.0.0.1:{federation._about['sites'][index]['metrics_port']}/status") as answer:
        status = json.load(answer)
    return status["updates_summed_on_gpus"], status["updates_encoded_on_gpus"]


def step(worker, number):
    """What a worker learns in a round: the same wherever it trains."""
    rng = np.random.default_rng([worker, number])
    return {name: rng.standard_normal(START[name].shape).astype(np.float32) for name in ("w", "b")}


def submit(round, worker, place):
    moved = step(worker, round.number)
    model = {name: array + moved[name] if name in moved else array for name, array in round.arrays().items()}
    model["seen"] = model["seen"] + worker
    model["on"] = np.array([worker == 3])
    round.submit({name: place(array) for name, array in model.items()}, samples=worker + 1)


def submit_update(round, worker, place):
    round.submit_update({name: place(array) for name, array in step(worker, round.number).items()}, samples=worker + 1)


def in_parts(round, worker, place):
    parts = round.parts(samples=worker + 1)
    moved = step(worker, round.number)
    for name in ("b", "w") if worker % 2 else ("w", "b"):
        parts.add({name: place(moved[name])})
    parts.finish()


def train(federation, answer, places, device=True):
    """Two workers at each of two sites train a run to its end, those whose place is a number on that GPU."""

    def work(worker):
        place = places[worker % 2]
        put = (lambda array: array) if place is None else lambda array: floats_on(array, place)
        with fluvial.connect(federation.worker_socket(worker // 2), device=device) as site:
            for round in site.rounds("run"):
                answer(round, worker, put)

    in_threads(4, work)
    return federation.model("run"), [on_gpus(federation, index) for index in range(2)]


def floats_on(array, ordinal):
    return Array(array, ordinal) if array.dtype.kind == "f" else array


def assert_same(model, expected):
    for name, array in expected.items():
        assert model[name].dtype == array.dtype and np.array_equal(model[name], array), name


# int8 rounds at random, by site, run and round: so the runs that are compared are the first of federations of their own.
@pytest.mark.parametrize("codec", ["fp32", "int8", "topk:ratio=0.1"])
@pytest.mark.parametrize("answer", [submit, submit_update, in_parts])
def test_what_is_committed_is_what_host_memory_gives(start, codec, answer):
    committed = {}
    for device in (False, True):
        federation = start(sites=2, workers=2)
        federation.start_run("run", START, rounds=ROUNDS, codec=codec, plan={"chunk_values": 1024})
        committed[device], counts = train(federation, answer, [0, 0], device)
        assert counts == [(ROUNDS, ROUNDS) if device else (0, 0)] * 2
    assert_same(committed[True], committed[False])
    assert not np.array_equal(committed[True]["w"], START["w"])


def test_workers_on_two_gpus_differ_in_rounding_alone(start):
    committed = []
    for places in ([None, None], [0, 1]):
        federation = start(sites=2, workers=2)
        federation.start_run("run", START, rounds=ROUNDS)
        model, counts = train(federation, submit, places)
        committed.append(model)
    assert counts == [(ROUNDS, ROUNDS)] * 2
    for name, expected in committed[0].items():
        np.testing.assert_allclose(committed[1][name], expected, rtol=0, atol=1e-5)


def test_a_worker_on_a_gpu_beside_one_that_is_not(start):
    committed = []
    for places in ([None, None], [0, None]):
        federation = start(sites=2, workers=2)
        federation.start_run("run", START, rounds=ROUNDS, codec="int8")
        model, counts = train(federation, submit, places)
        committed.append(model)
        assert [summed for summed, _ in counts] == [0, 0]
    assert_same(committed[1], committed[0])


def test_an_allreduce_of_gpus_vectors(pair):
    values = np.random.default_rng(4).standard_normal((2, 2, 500)).astype(np.float32)
    pair.start_run("mean", {"value": np.zeros(500, np.float32)}, rounds=2, optimizer="mean")

    def work(index):
        with pair.connect(0, name=f"worker-{index}") as site:
            for turn in range(2):
                mean = site.allreduce(Array(values[turn, index]), run="mean", samples=index + 1, timeout_s=60)
                np.testing.assert_allclose(mean, np.average(values[turn], axis=0, weights=[1, 2]), rtol=0, atol=1e-6)

    in_threads(2, work)
    assert on_gpus(pair, 0) == (2, 2)


WORKER = """
import sys
import numpy as np
import emulated_cuda
import fluvial

def say(what):
    print(what, flush=True)
    sys.stdin.readline()

emulated_cuda.use()
for round in fluvial.connect(sys.argv[1]).rounds("survive"):
    if sys.argv[2] == "in parts":
        parts = round.parts(samples=1)
        parts.add({"w": emulated_cuda.Array(np.full(3000, 8.0))})
        say("one part")
    else:
        round.submit({name: emulated_cuda.Array(array + 1) for name, array in round.arrays().items()}, samples=1)
        say("handed over")
"""


class Worker:
    """A process with its model on a GPU, which does one of these things and waits to be killed."""

    def __init__(self, socket, what):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, os.path.dirname(__file__)])}
        self._process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WORKER), socket, what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def kill(self):
        with self._process as process:
            assert process.stdout.readline()
            process.kill()
            process.wait(timeout=30)


def test_a_worker_killed_between_two_parts(small):
    zeros = {"v": np.zeros(500, np.float32), "w": np.zeros(3000, np.float32)}
    small.start_run("survive", zeros, rounds=1, optimizer="mean")
    Worker(small.worker_socket(0), "in parts").kill()
    for round in small.connect(0).rounds("survive"):
        parts = round.parts(samples=2)
        for name, value in (("w", 5.0), ("v", 6.0)):
            parts.add({name: Array(np.full(zeros[name].shape, value))})
        parts.finish()
    model = small.model("survive")
    assert set(model["w"]) == {5} and set(model["v"]) == {6}
    assert on_gpus(small, 0) == (1, 1)


def test_what_a_killed_worker_handed_over_counts(pair):
    """The agent has its memory open."""
    pair.start_run("survive", {"w": np.zeros(3000, np.float32)}, rounds=1)
    worker = Worker(pair.worker_socket(0), "model")
    rounds = pair.connect(0).rounds("survive")
    round = next(rounds)  # the agent waited for both
    worker.kill()
    round.submit({"w": Array(round.arrays()["w"] + 3)}, samples=1)
    assert next(rounds, None) is None
    assert set(pair.model("survive")["w"]) == {2}
    assert on_gpus(pair, 0) == (1, 1)


def test_memory_that_the_agent_cannot_open(small, monkeypatch):
    small.start_run("refused", {"w": np.zeros(10, np.float32)}, rounds=1)
    site = small.connect(0)
    with monkeypatch.context() as patched:
        made = _device.Memory.__init__

        def make(self, *arguments):
            made(self, *arguments)
            self.handle = bytes(64)  # as one from another IPC namespace: nothing that the agent's driver knows

        patched.setattr(_device.Memory, "__init__", make)
        with pytest.raises(fluvial.AgentRefused, match="device=False"):
            for round in site.rounds("refused"):
                round.submit({"w": Array(np.ones(10))}, samples=1)
    for round in site.rounds("refused"):  # through host memory: the same round, once more
        round.submit({"w": Array(np.ones(10))}, samples=1)
    assert small.model("refused")["w"].tolist() == [1] * 10
    assert on_gpus(small, 0) == (0, 0)
