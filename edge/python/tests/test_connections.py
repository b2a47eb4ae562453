"""Whose a connection is: forks, threads, cells of a notebook that run again, and names that two processes have."""

import contextlib
import os
import threading

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent
from fluvial import _messages

MODEL = {"w": np.zeros(2, np.float32)}


@pytest.fixture
def agent(tmp_path):
    with FakeAgent(tmp_path / "agent.sock", MODEL) as fake:
        yield fake


@contextlib.contextmanager
def forked(work):
    """A child that does `work`, says what came of it, and lives until the block ends."""
    said, saying = os.pipe()
    ended, ending = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(ending)
            os.write(saying, work().encode())
            os.read(ended, 1)
        os._exit(0)
    os.close(saying)
    os.close(ended)
    try:
        yield os.read(said, 4096).decode()
    finally:
        os.close(ending)
        os.close(said)
        os.waitpid(child, 0)


def test_a_fork_keeps_no_connection_and_uses_none(agent):
    agent.task(1, MODEL)
    round = next(agent.rounds)

    def work():
        told = []
        for use in (lambda: round.submit(MODEL, samples=1), lambda: next(agent.site.rounds("run"))):
            try:
                use()
            except fluvial.FluvialError as error:
                told.append(f"{type(error).__name__}: {error}")
        return "; ".join(told)

    with forked(work) as told:
        assert told.count("AgentUnavailable") == 2 and "call fluvial.connect() in the process that trains" in told
        round.submit(MODEL, samples=1)
        assert agent.receive()[0].WhichOneof("body") == "task_done"
        agent.site._channel._socket.close()  # as if it was killed
        agent._connection.settimeout(30)
        assert agent._connection.recv(1) == b""


def test_who_is_replaced_does_not_come_back(agent):
    rounds = agent.site.rounds("run", reconnect_s=60)
    agent.task(1, MODEL)
    next(rounds).submit(MODEL, samples=1)
    message = _messages.LocalMessage()
    message.detach.reason, message.detach.replaced = "another process has attached as worker gpu-0", True
    agent._send(message)
    with pytest.raises(fluvial.AgentRefused, match="another process has attached as worker gpu-0"):
        next(rounds)
    with pytest.raises(fluvial.AgentRefused, match="does not come back"):
        next(agent.site.rounds("run"))


def test_rounds_go_to_the_connection_that_is_used():
    with fluvial.testing.LocalFederation(sites=1) as federation:
        path = federation.worker_socket(0)
        before = fluvial.connect(path)
        site = fluvial.connect(path)
        assert before.closed and not site.closed
        federation.start_run("cell", MODEL, rounds=3)
        for round in site.rounds("cell", timeout_s=60):
            round.submit(MODEL, samples=1)
            break
        again = fluvial.connect(path)  # the cell runs once more
        assert site.closed
        assert [round.submit(MODEL, samples=1) or round.number for round in again.rounds("cell", timeout_s=60)] == [2, 3]
        federation.start_run("first", MODEL, rounds=1)
        for round in before.rounds("first", timeout_s=60):
            round.submit(MODEL, samples=1)


def test_threads_serve_side_by_side_by_names_of_their_own():
    with fluvial.testing.LocalFederation(sites=1, workers=2) as federation:
        sites = [fluvial.connect(federation.worker_socket(0)) for _ in range(2)]
        federation.start_run("both", MODEL, rounds=2)
        counts, names, errors = [0, 0], [None, None], []

        def train(index):
            try:
                for round in sites[index].rounds("both", timeout_s=60):
                    names[index] = sites[index]._attach.worker
                    counts[index] += 1
                    round.submit(MODEL, samples=1)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=train, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        assert not errors and counts == [2, 2]
