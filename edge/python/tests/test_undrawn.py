"""Workers at sites that the run did not ask: they hear of its end all the same, and of no end that was the past."""

import threading

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent
from test_reconnect import hang_up, restarted

MODEL = {"w": np.zeros(2, np.float32)}
ONE_OF_FOUR = {"participants": {"fraction": 0.25, "min": 4, "quorum": 1}}


@pytest.fixture
def agent(tmp_path):
    with FakeAgent(tmp_path / "agent.sock", MODEL) as fake:
        yield fake


@pytest.mark.parametrize("aggregators", [0, 2])
def test_a_run_ends_for_workers_that_it_never_asked(aggregators):
    with fluvial.testing.LocalFederation(sites=4, aggregators=aggregators) as federation:
        sites = [federation.connect(index) for index in range(4)]
        for how in ("over", "stopped"):
            asked, errors, begun = [0] * 4, [], threading.Event()

            def train(index):
                try:
                    for round in sites[index].rounds("few", timeout_s=60):
                        asked[index] += 1
                        begun.set()
                        if how == "over":
                            round.submit(MODEL, samples=1)
                except BaseException as error:
                    errors.append(error)

            threads = [threading.Thread(target=train, args=(index,)) for index in range(4)]
            for thread in threads:
                thread.start()
            federation.start_run("few", MODEL, rounds=2, participants=1, plan=ONE_OF_FOUR)
            assert begun.wait(60)
            if how == "stopped":
                federation.stop_run("few")
            for thread in threads:
                thread.join(60)
            assert not errors and not any(thread.is_alive() for thread in threads)
            assert 0 in asked


def test_train_rounds_ends_at_sites_that_were_never_asked():
    with fluvial.testing.LocalFederation(sites=4) as federation:
        federation.start_run("few", MODEL, rounds=2, participants=1, plan=ONE_OF_FOUR)
        federation.train_rounds(lambda round, index: round.submit(MODEL, samples=1), "few")
        federation.wait("few", timeout_s=60)
        federation.join(60)


def test_a_run_that_begins_and_ends_while_the_loop_waits(agent):
    agent.task(1, MODEL)
    rounds = agent.site.rounds("run", timeout_s=30)
    next(rounds).submit(MODEL, samples=1)
    agent.run_active(run=2)
    agent.run_ended(run=2)
    assert next(rounds, None) is None


def test_a_run_that_was_over_before_the_loop_began_is_the_past(agent):
    agent.run_active(run=2)
    agent.run_ended(run=2)
    with pytest.raises(TimeoutError, match="run 2, 'run', is done already"):
        next(agent.site.rounds("run", timeout_s=0))
    agent.task(1, MODEL)
    assert next(agent.site.rounds("run", timeout_s=30)).number == 1


def test_another_runs_end_is_nobodys_who_waits_for_this_one(agent):
    agent.run_active(name="other")
    agent.run_ended(name="other")
    with pytest.raises(TimeoutError):
        next(agent.site.rounds("run", timeout_s=0.05))


def test_an_agent_that_was_away_is_asked_for_the_end_of_what_is_waited_for(agent, tmp_path):
    rounds = agent.site.rounds("run", reconnect_s=60, timeout_s=60)

    def restart():
        agent.run_active(run=7)
        hang_up(agent)
        with restarted(agent, tmp_path / "agent.sock"):
            pass
        assert list(agent.attach.attach.follows) == [7]
        agent.run_ended("stopped", run=7)

    playing = threading.Thread(target=restart)
    playing.start()
    with pytest.warns(RuntimeWarning, match="has attached to it again"):
        assert next(rounds, None) is None
    playing.join()
