"""Models evaluated: by the coordinator's side, and by the sites on their own data."""

import concurrent.futures
import contextlib
import os
import queue
import socket
import struct
import sys
import threading

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent, sealed
from fluvial import _messages, _progress
from fluvial.schema import dtype_name


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=2) as local:
        yield local


def add_one(site, index):
    for round in site.rounds("evaluated"):
        round.submit({"w": round.arrays()["w"] + 1}, samples=1)


def test_each_committed_model_is_evaluated_until_the_run_ends(small):
    evaluated = {}
    model = {"w": np.zeros(4, np.float64)}
    attached = threading.Event()

    def evaluator():
        def score(given):
            assert given is model and given["w"].dtype == np.float64
            return {"test_score": float(given["w"][0])}

        attached.set()
        evaluated.update(fluvial.evaluate(score, model, run="evaluated", socket=small.evaluation_socket))

    thread = threading.Thread(target=evaluator)
    thread.start()
    attached.wait()
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)}, rounds=4, worker={"rate": 0.5})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    thread.join(timeout=60)
    assert not thread.is_alive(), "it ends with its run"
    assert evaluated[4] == {"test_score": 4.0}, "the last model is never left out"
    rounds = {round["round"]: round["evaluation"] for round in small.rounds("evaluated")}
    assert {number: one for number, one in rounds.items() if one} == evaluated
    assert small.admin.best("test_score", "max")["round"] == 4


def test_an_evaluator_knows_its_run_and_may_fail(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)}, rounds=2, worker={"rate": 0.5})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    given = next(fluvial.evaluations("evaluated", socket=small.evaluation_socket))  # there is one that nobody evaluated
    assert (given.run, given.round, given.parameters) == ("evaluated", 2, {"rate": 0.5})

    def fails(arrays):
        raise ZeroDivisionError("no test data")

    small.start_run("evaluated", {"w": np.zeros(4, np.float32)}, rounds=1)
    small.train(add_one)
    with pytest.raises(ZeroDivisionError):
        fluvial.evaluate(fails, run="evaluated", socket=small.evaluation_socket)


def test_a_worker_that_trains_is_told_that_this_socket_is_for_evaluation(small):
    with pytest.raises(fluvial.AgentRefused, match="only tasks to evaluate.*worker socket of a site's agent"):
        fluvial.connect(small.evaluation_socket)
    with pytest.raises(fluvial.AgentRefused, match="only tasks to train.*the coordinator's worker socket"):
        next(fluvial.evaluations(socket=small.worker_socket(0)))


def test_sites_evaluate_on_their_own_data_and_the_mean_is_weighted(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32), "steps": np.array([7], np.int64)}, rounds=2)

    def train(site, index):
        for round in site.rounds("evaluated"):
            round.submit({"w": round.arrays()["w"] + 1, "steps": np.array([9], np.int64)}, samples=1)

    small.train(train)
    small.wait("evaluated", timeout_s=60)

    def test(site, index):
        model = {"w": np.zeros(4, np.float32), "steps": np.array([0], np.int64)}
        own = site.evaluate(lambda given: ({"score": float(given["w"][0]) * (index + 1)}, 100 * (index + 1)), model,
                            run="evaluated-evaluation")
        assert own == {"score": 2.0 * (index + 1)}

    small.train(test)
    found = small.evaluate("evaluated", timeout_s=60)
    small.join()
    assert found["round"] == 2
    assert found["sites"]["site-2"] == {"weight": 200, "metrics": {"score": 4.0}}
    assert found["metrics"] == pytest.approx({"score": (100 * 2 + 200 * 4) / 300})
    np.testing.assert_array_equal(small.admin.model()["w"], small.model("evaluated")["w"])


def test_an_evaluation_that_a_worker_fails_in_says_so(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)

    def fails(site, index):
        site.evaluate(lambda arrays: ({}, 0), run="evaluated-evaluation")

    small.train(fails)
    with pytest.raises(fluvial.FederationFailed, match="samples is 0"):
        small.evaluate("evaluated", timeout_s=60)


def test_a_run_of_windows_is_evaluated_at_every_site(small):
    plan = {"mode": "async", "async": {"goal": 1, "lead_max": 3}, "staleness_max": 4}
    small.start_run("evaluated", {"w": np.ones(4, np.float32)}, rounds=2, plan=plan)
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    small.join()
    first_is_in = threading.Event()

    def test(site, index):
        def score(arrays):
            if index == 1:
                assert first_is_in.wait(timeout=30)
            return {"score": float(index)}, 10

        for round in site.rounds("evaluated-evaluation"):
            metrics, samples = score(round.arrays())
            round.report(metrics, samples=samples)
            first_is_in.set()

    small.train(test)
    found = small.evaluate("evaluated", timeout_s=60)
    assert sorted(found["sites"]) == small.sites and found["metrics"] == {"score": 0.5}
    plan = small.admin.run("evaluated-evaluation")["plan"]
    assert (plan["mode"], plan["late"]) == ("rounds", "residual")


def test_an_evaluation_that_is_given_up_makes_room_for_the_next_run(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    with pytest.raises(TimeoutError, match="no worker attached"):
        small.evaluate("evaluated", timeout_s=0.1)

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small.admin.evaluate("evaluated", check=interrupted)
    assert [run["status"] for run in small.admin.runs()] == ["done", "stopped", "stopped"]
    assert "given up: KeyboardInterrupt" in small.admin.runs()[-1]["reason"]
    small.start_run("next", {"w": np.zeros(4, np.float32)})


@pytest.mark.parametrize("answer", [{"score": 1.0}, 0.9, (0.9, 500), ({"score": 1.0}, 10, 3), None])
def test_an_answer_of_another_shape_is_refused_with_what_is_expected(tmp_path, answer):
    model = {"w": np.zeros(2, np.float32)}
    with FakeAgent(tmp_path / "a", model) as agent:
        agent.task(1, model)
        with pytest.raises(TypeError, match=r"the function returns \(metrics by name, samples\), as .*; this one gave"):
            agent.site.evaluate(lambda arrays: answer, run="run")


def test_an_evaluator_is_told_so_too(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    with pytest.raises(TypeError, match="the function returns metrics by name, as .*; this one gave a tuple"):
        fluvial.evaluate(lambda arrays: ({"score": 1.0}, 10), run="evaluated", socket=small.evaluation_socket)


class FakeCoordinator:
    """Gives out models by hand; each evaluator that comes is told what had `ended`."""

    def __init__(self, path):
        self.path, self.ended, self.connection = str(path), [], None

    @contextlib.contextmanager
    def listening(self):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self.path)
        listener.listen()
        accepting = threading.Thread(target=self._accept, args=(listener,))
        accepting.start()
        yield
        accepting.join(timeout=30)
        listener.close()

    def _accept(self, listener):
        self.connection, _ = listener.accept()
        self.receive()
        answer = _messages.LocalMessage()
        answer.attached.node = "coordinator"
        for run, name, state in self.ended:
            answer.attached.ended.add(run=run, run_name=name, state=state)
        self.send(answer)

    def send(self, message, data=None):
        body = message.SerializeToString()
        descriptors = [] if data is None else [sealed(data)]
        socket.send_fds(self.connection, [struct.pack("<I", len(body)) + body], descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    def receive(self):
        (length,) = struct.unpack("<I", self.connection.recv(4, socket.MSG_WAITALL))
        return _messages.LocalMessage.FromString(self.connection.recv(length, socket.MSG_WAITALL))

    def model(self, round):
        message = _messages.LocalMessage()
        task = message.task
        task.id, task.kind, task.run, task.run_name = round, _messages.KIND_EVALUATE, 1, "run"
        task.round = task.version = round
        task.model_bytes = 8
        task.schema.tensors.add(name="w", dtype=dtype_name(np.dtype(np.float32)), shape=[2])
        self.send(message, bytes(8))

    def run_ended(self):
        message = _messages.LocalMessage()
        message.run_ended.run, message.run_ended.run_name, message.run_ended.state = 1, "run", "done"
        self.send(message)

    def good_bye(self):
        message = _messages.LocalMessage()
        message.detach.reason = "the coordinator is stopping"
        self.send(message)
        self.connection.close()

    def hang_up(self):
        self.connection.close()


@pytest.fixture
def coordinator(tmp_path):
    fake = FakeCoordinator(tmp_path / "coordinator.sock")
    yield fake
    fake.connection.close()


@pytest.fixture
def evaluating(coordinator):
    """Starts fluvial.evaluate in a thread of its own, and returns its future once it has attached."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:

        def start(score=lambda arrays: {"score": float(arrays["w"][0])}, **options):
            with coordinator.listening():
                return pool.submit(fluvial.evaluate, score, socket=coordinator.path, **options)

        yield start
        coordinator.hang_up()


@pytest.mark.parametrize("how", ["good_bye", "hang_up"])
def test_a_coordinator_that_goes_away_is_no_end_of_the_evaluations(coordinator, evaluating, how):
    found = evaluating(run="run")
    coordinator.model(1)
    assert coordinator.receive().task_done.metrics == {"score": 0.0}
    getattr(coordinator, how)()
    with pytest.raises(fluvial.AgentUnavailable, match="the coordinator .*, and run run is not over"):
        found.result(timeout=60)


@pytest.mark.parametrize("how", ["good_bye", "hang_up"])
def test_an_evaluator_that_attaches_again_does_not_miss_the_end(coordinator, evaluating, how):
    with pytest.warns(RuntimeWarning, match="the coordinator .*: this evaluator has attached to it again"):
        found = evaluating(run="run", reconnect_s=60)
        for number in (1, 2):
            coordinator.model(number)
            coordinator.receive()
            if number == 2:
                coordinator.ended = [(1, "run", "done")]
            getattr(coordinator, how)()
            with coordinator.listening():
                pass
        assert found.result(timeout=60) == {1: {"score": 0.0}, 2: {"score": 0.0}}


def test_a_result_that_nobody_is_there_to_take_is_left_out(coordinator, evaluating):
    gone = threading.Event()

    def score(arrays):
        if not gone.is_set():
            coordinator.hang_up()
            gone.set()
        return {"score": 1.0}

    with pytest.warns(RuntimeWarning, match="has attached to it again"):
        found = evaluating(score, run="run", reconnect_s=60)
        coordinator.model(1)
        assert gone.wait(timeout=60)
        with coordinator.listening():
            pass
        coordinator.model(2)
        coordinator.receive()
        coordinator.run_ended()
        assert found.result(timeout=60) == {2: {"score": 1.0}}


def test_an_evaluator_of_any_run_ends_with_the_coordinator_and_says_what_is_no_number(coordinator, evaluating):
    with pytest.warns(RuntimeWarning, match="metric 'loss' is nan in the evaluation of round 1 of run") as told:
        found = evaluating(lambda arrays: {"loss": float("nan")})
        for number in (1, 2):
            coordinator.model(number)
            coordinator.receive()
        coordinator.good_bye()
        assert list(found.result(timeout=60)) == [1, 2]
    assert len(told) == 1, "once"


class Told:
    """A sys.stderr that one thread writes to and another waits for."""

    def __init__(self):
        self._parts = queue.Queue()

    def write(self, text):
        self._parts.put(text)

    def flush(self):
        pass

    def isatty(self):
        return False

    def wait(self, text):
        said = ""
        while text not in said:
            said += self._parts.get(timeout=60)


def test_an_evaluator_that_comes_after_the_end_is_told(coordinator, evaluating, monkeypatch):
    coordinator.ended = [(7, "run", "done")]
    monkeypatch.setattr(_progress, "_LINES_AFTER_SECONDS", (0.0,))
    told = Told()
    monkeypatch.setattr(sys, "stderr", told)
    found = evaluating(run="run")
    told.wait("waits for a model of run 'run' (run 7, 'run', is done already, and this waits for another of that name)")
    coordinator.model(1)  # of the other
    coordinator.receive()
    coordinator.run_ended()
    assert found.result(timeout=60) == {1: {"score": 0.0}}
