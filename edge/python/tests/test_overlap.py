"""submit(overlap=True): the update is one round delayed, as fluvial/overlap.py says, and leaving is clean."""

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent

COUNTS = {"n": np.array([0], np.int64), "on": np.array([False])}


def theta(rng):
    return {"w": rng.standard_normal((5, 7)).astype(np.float32), "n": np.array([3], np.int64), "on": np.array([False])}


@pytest.fixture
def agent(tmp_path):
    with FakeAgent(tmp_path / "a", theta(np.random.default_rng(0))) as fake:
        yield fake


def trained(rng, arrays):
    step = rng.standard_normal((5, 7)).astype(np.float32)
    return {"w": arrays["w"] + step, "n": arrays["n"] + 2, "on": np.array([True])}


def test_the_delayed_update_by_hand(agent):
    rng = np.random.default_rng(4)
    agent.task(1, theta(rng))
    round = next(agent.rounds)
    local = trained(rng, round.arrays())
    round.submit(local, samples=3, overlap=True)
    agent.receive()
    for number in (2, 3, 4):
        round = next(agent.rounds)  # nothing came from the agent: the round before is in the air
        assert (round.run, round.number, round.version, round.local_steps) == ("run", number, number - 1, 1)
        for name, array in round.arrays().items():
            assert np.array_equal(array, local[name])
            with pytest.raises(ValueError):
                array[0] = 0
        end = trained(rng, round.arrays())
        base = theta(rng)
        agent.task(number, base, previous=(number - 1, "late"))
        round.submit(end, samples=number, overlap=number < 4)
        message, _ = agent.receive()
        assert message.task_done.weight == number and message.task_done.id == number
        assert round.previous == fluvial.Previous(number - 1, "late")
        local = {"w": base["w"] + (end["w"] - local["w"]), "n": base["n"] + 2, "on": end["on"]}
        for name, array in agent.result_arrays().items():
            assert np.array_equal(array, local[name]), name
    base = theta(rng)  # the last one was submitted without overlap: rounds are as ever again
    agent.task(5, base)
    assert np.array_equal(next(agent.rounds).arrays()["w"], base["w"])


def test_a_round_that_came_while_another_number_was_expected(agent):
    rng = np.random.default_rng(5)
    agent.task(1, theta(rng))
    round = next(agent.rounds)
    round.submit(trained(rng, round.arrays()), samples=1, overlap=True)
    agent.receive()
    round = next(agent.rounds)
    agent.task(7, theta(rng))  # the site was left out of some
    round.submit(trained(rng, round.arrays()), samples=1)
    assert (round.number, round.version) == (7, 6)


def in_the_air(agent):
    rng = np.random.default_rng(6)
    agent.task(1, theta(rng))
    round = next(agent.rounds)
    round.submit(trained(rng, round.arrays()), samples=1, overlap=True)
    agent.receive()
    return next(agent.rounds)


def test_a_run_that_ends_in_the_meantime(agent):
    round = in_the_air(agent)
    agent.run_ended()
    round.submit(round.arrays(), samples=1, overlap=True)
    assert next(agent.rounds, None) is None


def test_a_run_that_ended_before(agent):
    rng = np.random.default_rng(6)
    agent.task(1, theta(rng))
    round = next(agent.rounds)
    round.submit(theta(rng), samples=1, overlap=True)
    agent.run_ended()
    assert next(agent.rounds, None) is None


def test_what_does_not_fit_leaves_the_round_open(agent):
    round = in_the_air(agent)
    with pytest.raises(fluvial.ModelMismatch):
        round.submit({"w": np.zeros(3)}, samples=1)
    for other in (
        lambda: round.submit_update(round.arrays(), samples=1),
        lambda: round.parts(samples=1),
        lambda: round.submit_shard(np.zeros(35), 0, samples=1, update=True),
    ):
        with pytest.raises(fluvial.RoundClosed, match="submit_shard\\(\\) alone"):
            other()
    agent.task(2, {**COUNTS, "w": np.ones((5, 7))})
    round.submit(round.arrays(), samples=1)
    message, _ = agent.receive()
    assert message.task_done.id == 2 and agent.result_arrays()["w"].tolist() == [[1] * 7] * 5
    with pytest.raises(fluvial.RoundClosed):
        round.arrays()


def test_continue_drops_it_and_the_round_comes_as_ever(agent):
    in_the_air(agent)
    agent.task(2, {**COUNTS, "w": np.ones((5, 7))})
    round = next(agent.rounds)
    assert round.number == 2 and round.arrays()["w"].tolist() == [[1] * 7] * 5
    round.submit(round.arrays(), samples=1)
    message, _ = agent.receive()
    assert message.WhichOneof("body") == "task_done" and message.task_done.id == 2


@pytest.mark.parametrize("given", [False, True])
def test_leaving_hands_the_round_back(agent, given):
    in_the_air(agent)
    if given:
        agent.task(2, theta(np.random.default_rng(7)))
    agent.rounds.close()
    message, _ = agent.receive()
    assert message.WhichOneof("body") == "detach"


def test_leaving_right_after_submitting_leaves_nothing_open(agent):
    agent.task(1, COUNTS | {"w": np.ones((5, 7))})
    round = next(agent.rounds)
    round.submit(round.arrays(), samples=1, overlap=True)
    agent.rounds.close()
    agent.task(2, COUNTS | {"w": np.full((5, 7), 2)})
    rounds = agent.site.rounds("run")
    again = next(rounds)
    assert again.number == 2 and again.arrays()["w"][0, 0] == 2
