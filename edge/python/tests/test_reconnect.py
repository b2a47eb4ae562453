"""Agents that end, die and come back while a training script holds its Site."""

import contextlib
import os
import socket
import threading

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent

MODEL = {"w": np.zeros(2, np.float32)}


@pytest.fixture
def agent(tmp_path):
    with FakeAgent(tmp_path / "agent.sock", MODEL) as fake:
        yield fake


@contextlib.contextmanager
def restarted(agent, path):
    """The same agent, listening once more; it takes one worker."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    accepting = threading.Thread(target=agent._accept, args=(listener,))
    accepting.start()
    try:
        yield
    finally:
        accepting.join(timeout=30)
        listener.close()


def hang_up(agent):
    agent._connection.close()


def say_good_bye(agent):
    agent.detach("the agent shuts down")


def test_an_agent_that_ends_before_the_run_is_no_end_of_training(agent):
    agent.task(1, MODEL)
    next(agent.rounds).submit(MODEL, samples=1)
    say_good_bye(agent)
    with pytest.raises(fluvial.AgentUnavailable, match=r"ended \(the agent shuts down\), and run run is not over"):
        next(agent.rounds)
    assert agent.site.closed and agent.site.detach_reason == "the agent shuts down"


def test_an_agent_that_ends_after_the_run_is_the_end_of_training(agent):
    agent.task(1, MODEL)
    next(agent.rounds).submit(MODEL, samples=1)
    agent.run_ended()
    say_good_bye(agent)
    assert next(agent.rounds, None) is None


def test_who_takes_any_run_ends_with_the_agent(agent):
    say_good_bye(agent)
    assert list(agent.site.rounds()) == []


def test_an_allreduce_tells_an_agent_that_ended_from_a_run_that_did(agent):
    say_good_bye(agent)
    with pytest.raises(fluvial.AgentUnavailable, match="run sums is not over"):
        agent.site.allreduce(np.zeros(2, np.float32), run="sums")


@pytest.mark.parametrize("how", [hang_up, say_good_bye])
def test_the_same_site_attaches_again(agent, tmp_path, how):
    how(agent)
    with pytest.raises(fluvial.AgentUnavailable):
        next(agent.rounds)
    with pytest.raises(fluvial.AgentUnavailable):  # it is still away
        os.unlink(tmp_path / "agent.sock")
        next(agent.site.rounds("run"))
    with restarted(agent, tmp_path / "agent.sock"):
        rounds = agent.site.rounds("run", timeout_s=0)
        with pytest.raises(TimeoutError):
            next(rounds)
    agent.task(1, MODEL)
    assert next(agent.site.rounds("run")).number == 1 and agent.site.detach_reason is None


@pytest.mark.parametrize("how", [hang_up, say_good_bye])
@pytest.mark.parametrize("what", ["submit", "result"])
def test_after_a_round_that_could_not_be_handed_over(agent, tmp_path, how, what):
    agent.task(1, MODEL)
    round = next(agent.rounds)
    if what == "result":
        round.submit(MODEL, samples=1)
        agent.receive()
    how(agent)
    with pytest.raises(fluvial.AgentUnavailable):
        round.submit(MODEL, samples=1) if what == "submit" else round.result()
    with pytest.raises(fluvial.AgentUnavailable):
        next(agent.rounds)  # of a loop that swallowed the error
    with restarted(agent, tmp_path / "agent.sock"):
        with pytest.raises(TimeoutError):
            next(agent.site.rounds("run", timeout_s=0))
    agent.task(1, MODEL)
    assert next(agent.site.rounds("run")).number == 1


@pytest.mark.parametrize("how", [hang_up, say_good_bye])
def test_a_wait_survives_a_restart_where_it_may(agent, tmp_path, how):
    rounds = agent.site.rounds("run", reconnect_s=60)
    agent.task(1, MODEL)
    next(rounds).submit(MODEL, samples=1)
    agent.receive()

    def restart():
        how(agent)
        with restarted(agent, tmp_path / "agent.sock"):
            pass
        agent.task(2, MODEL)

    playing = threading.Thread(target=restart)
    playing.start()
    with pytest.warns(RuntimeWarning, match="has attached to it again"):
        assert next(rounds).number == 2
    playing.join()


def test_a_wait_for_an_agent_that_stays_away_has_an_end(agent, tmp_path):
    rounds = agent.site.rounds("run", reconnect_s=0.05)
    os.unlink(tmp_path / "agent.sock")
    say_good_bye(agent)
    with pytest.raises(fluvial.AgentUnavailable, match="nobody listens"):
        next(rounds)


@pytest.mark.parametrize("name", ["run", ""])
def test_a_run_that_ended_meanwhile_ends_for_who_was_in_it(agent, tmp_path, name):
    rounds = agent.site.rounds("run", reconnect_s=60, timeout_s=30)
    agent.task(1, MODEL)
    next(rounds).submit(MODEL, samples=1)
    agent.receive()

    def restart():
        hang_up(agent)
        agent.ended = [(1, name, "done")]  # without its name: it was started anew
        with restarted(agent, tmp_path / "agent.sock"):
            pass

    playing = threading.Thread(target=restart)
    playing.start()
    with pytest.warns(RuntimeWarning, match="has attached to it again"):
        assert next(rounds, None) is None
    playing.join()
    with pytest.raises(TimeoutError):  # whoever asks again waits for another run of that name
        next(agent.site.rounds("run", timeout_s=0))


def test_an_agent_that_does_not_know_the_runs_name_ends_it_for_who_was_in_it(agent):
    agent.task(1, MODEL)
    next(agent.rounds).submit(MODEL, samples=1)
    agent.run_ended(name="")
    assert next(agent.rounds, None) is None
