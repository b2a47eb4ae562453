"""What a worker hands over and gets back, message by message: results in reused memory, updates, parts, shards."""

import fcntl
import os

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent

MODEL = {
    "first": np.arange(3, dtype=np.int64),
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.arange(4, dtype=np.float32),
    "seen": np.array([7], np.int32),
    "v": np.arange(5, dtype=np.float32),
}  # bytes: first 0-24, w 24-48, b 48-64, seen 64-68, v 68-88; 15 values are averaged


@pytest.fixture
def agent(tmp_path):
    with FakeAgent(tmp_path / "a", MODEL) as fake:
        yield fake


def plus(number):
    return {name: array + np.array(number, array.dtype) for name, array in MODEL.items()}


def assert_same(arrays, expected):
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype and np.array_equal(arrays[name], array), name


def ranges(message):
    return [(part.first_byte, part.bytes) for part in message.ranges]


def test_a_result_is_the_same_memory_each_round_and_keeps_its_size(agent):
    rounds = agent.rounds
    inodes = set()
    for number in (1, 2, 3):
        agent.task(number, MODEL)
        next(rounds).submit(plus(number), samples=5, metrics={"loss": 0.5})
        message, with_memory = agent.receive()
        assert with_memory and message.task_done.id == number and message.task_done.weight == 5
        assert not message.task_done.update
        assert_same(agent.result_arrays(), plus(number))
        about = os.fstat(agent.result)
        inodes.add(about.st_ino)
        assert about.st_size == 88
        assert fcntl.fcntl(agent.result, fcntl.F_GET_SEALS) & (fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW) == 6
    assert len(inodes) == 1


def test_a_submission_that_does_not_fit_leaves_the_last_result_alone(agent):
    rounds = agent.rounds
    agent.task(1, MODEL)
    round = next(rounds)
    round.submit(plus(1), samples=1)
    agent.receive()
    agent.task(2, MODEL)
    with pytest.raises(fluvial.ModelMismatch, match="v has shape"):
        next(rounds).submit({**plus(2), "v": np.zeros(6, np.float32)}, samples=1)
    assert_same(agent.result_arrays(), plus(1))


def test_an_update_need_not_have_counters(agent):
    agent.task(4, MODEL)
    round = next(agent.rounds)
    gradient = {name: np.full_like(MODEL[name], 0.5, np.float64) for name in ("w", "b", "v")}
    with pytest.raises(fluvial.ModelMismatch, match="not in this one: b"):
        round.submit_update({"w": gradient["w"], "v": gradient["v"]}, samples=1)
    round.submit_update({**gradient, "seen": np.array([9], np.int32)}, samples=3)
    message, _ = agent.receive()
    assert message.task_done.update and message.task_done.weight == 3
    expected = {name: values.astype(np.float32) for name, values in gradient.items()}
    assert_same(agent.result_arrays(), {**expected, "first": MODEL["first"], "seen": np.array([9], np.int32)})


def test_why_an_update_counts_nowhere_is_said_at_once_and_with_the_next_round(agent):
    agent.refused(1, "of a run that this worker is not in", run=9)
    agent.task(1, MODEL)
    next(agent.rounds).submit(MODEL, samples=1)
    agent.receive()
    agent.refused(1, "tensor 'w', value 4 is nan after training")
    agent.task(2, MODEL, previous=(1, "unused"))
    said = "the update of fake in round 1 of run counts nowhere: tensor 'w', value 4 is nan after training"
    with pytest.warns(RuntimeWarning) as told:
        round = next(agent.rounds)
    assert [str(one.message) for one in told] == [said]
    assert round.previous == fluvial.Previous(1, "unused", "tensor 'w', value 4 is nan after training")
    round.submit(MODEL, samples=1)
    agent.receive()
    agent.task(3, MODEL, previous=(2, "counted"))
    assert next(agent.rounds).previous == fluvial.Previous(2, "counted"), "the reason was another round's"


def test_a_wait_for_a_commit_ends_with_the_reason_why_there_will_be_none_of_it(agent):
    agent.task(1, MODEL)
    round = next(agent.rounds)
    round.submit(MODEL, samples=1)
    agent.refused(1, "weight 12, expected 1 to 10")
    with pytest.warns(RuntimeWarning, match="weight 12"), pytest.raises(fluvial.UpdateRefused, match="round 1 of run.*weight 12") as said:
        round.result()
    assert (said.value.round, said.value.reason) == (1, "weight 12, expected 1 to 10")
    agent.committed(1, plus(1))  # of the others
    assert_same(round.result(), plus(1))


def test_a_round_that_is_tried_again_for_another_reason_is_not_waited_for(agent):
    """The agent says nothing where another worker of the site failed: the workers know."""
    agent.task(1, MODEL)
    round = next(agent.rounds)
    round.submit(MODEL, samples=1)
    agent.task(1, MODEL)
    with pytest.raises(fluvial.UpdateRefused, match="round 1 of run.*tried again"):
        round.result()
    round = next(agent.rounds)
    round.submit(MODEL, samples=1)
    agent.committed(1, plus(2))
    assert_same(round.result(), plus(2))


def test_a_refusal_of_an_earlier_answer_is_no_word_on_this_one(agent):
    agent.task(1, MODEL)
    next(agent.rounds).submit(MODEL, samples=1)
    agent.refused(1, "too long")
    agent.task(1, MODEL)
    with pytest.warns(RuntimeWarning, match="too long"):
        round = next(agent.rounds)
    round.submit(MODEL, samples=1)
    agent.committed(1, plus(3))
    assert_same(round.result(), plus(3))


def test_a_metric_that_is_no_number_is_said_once_a_name(agent):
    with pytest.warns(RuntimeWarning) as told:
        for number in (1, 2):
            agent.task(number, MODEL)
            next(agent.rounds).submit(MODEL, samples=1, metrics={"loss": float("nan"), "norm": -np.inf, "auc": 0.5})
            agent.receive()
    assert [str(one.message).partition(":")[0] for one in told] == [
        "metric 'loss' is nan in round 1 of run",
        "metric 'norm' is -inf in round 1 of run",
    ]
    assert told[0].filename == __file__


def test_an_allreduce_in_a_run_that_steps_is_refused_before_it_hands_anything_over(agent):
    agent.task(1, {"w": MODEL["w"]} | MODEL, optimizer="fedavg")
    with pytest.raises(fluvial.PlanMismatch, match='needs a run with optimizer.name = "mean" in its plan; run run has "fedavg"'):
        agent.site.allreduce(MODEL, run="run")
    assert "optimizer.name" in agent.receive()[0].task_failed.message
    for number, optimizer in ((2, "mean"), (3, "")):  # an agent of an earlier version does not say it
        agent.task(number, MODEL, optimizer=optimizer)
        agent.committed(number, MODEL)
        agent.site.allreduce(MODEL, run="run")
        agent.receive()


def test_what_became_of_the_previous_result(agent):
    rounds = agent.rounds
    for number, outcome in enumerate(("counted", "late", "refused", "unused", "pending", "unknown"), start=2):
        agent.task(number, MODEL, previous=(number - 1, outcome))
        round = next(rounds)
        assert round.previous == fluvial.Previous(number - 1, outcome)
        assert round.previous.counts == (outcome in ("counted", "late", "pending"))
        round.submit(MODEL, samples=1)
        agent.receive()
    agent.task(9, MODEL)
    assert next(rounds).previous is None


def test_results_are_read_only_and_come_in_any_mixture_with_tasks(agent):
    rounds = agent.rounds
    agent.task(1, MODEL)
    first = next(rounds)
    with pytest.raises(fluvial.RoundClosed, match="submit comes before result"):
        first.result()
    first.submit(plus(1), samples=1)
    with pytest.raises(TimeoutError):
        first.result(timeout_s=0)
    agent.committed(1, plus(10))
    agent.task(2, plus(10))
    result = first.result()
    assert_same(result, plus(10))
    with pytest.raises(ValueError):
        result["w"][0] = 1
    second = next(rounds)
    second.submit(plus(2), samples=1)
    agent.committed(2, plus(20))
    agent.run_ended()
    assert next(rounds, None) is None
    assert_same(second.result(), plus(20))  # of a run that is over
    assert_same(result, plus(10))
    with pytest.raises(fluvial.RoundClosed, match="went by"):
        first.result()


def test_a_result_that_will_not_come(agent):
    rounds = agent.rounds
    agent.task(1, MODEL)
    round = next(rounds)
    round.submit(plus(1), samples=1)
    agent.run_ended("stopped")
    with pytest.raises(fluvial.RunEnded, match="stopped"):
        round.result(timeout_s=30)


def test_an_update_in_parts(agent):
    agent.task(1, MODEL)
    round = next(agent.rounds)
    parts = round.parts(samples=4)
    parts.add({"b": np.full(4, 2.0), "w": np.full((2, 3), 1.0)})  # neighbours: one range
    message, with_memory = agent.receive()
    assert with_memory and message.task_ready.update and message.task_ready.weight == 4
    assert ranges(message.task_ready) == [(24, 40)]
    with pytest.raises(fluvial.ModelMismatch, match="w is there already"):
        parts.add({"w": np.zeros((2, 3))})
    with pytest.raises(fluvial.ModelMismatch, match="x is not in"):
        parts.add({"x": np.zeros(3)})
    with pytest.raises(fluvial.ModelMismatch, match="without: v"):
        parts.finish()
    with pytest.raises(fluvial.RoundClosed, match="in parts"):
        round.submit(MODEL, samples=1)
    assert not parts.complete
    parts.add({"v": np.full(5, 3.0)})
    message, with_memory = agent.receive()
    assert not with_memory and ranges(message.task_ready) == [(68, 20)]
    assert parts.complete
    parts.finish({"loss": 1.0})
    message, with_memory = agent.receive()
    assert not with_memory and message.task_done.update and message.task_done.weight == 4
    expected = {"w": np.full((2, 3), 1, np.float32), "b": np.full(4, 2, np.float32), "v": np.full(5, 3, np.float32)}
    assert_same(agent.result_arrays(), {**MODEL, **expected})


def test_who_hands_over_to_an_agent_that_closed_learns_why(agent):
    agent.task(1, MODEL)
    parts = next(agent.rounds).parts(samples=1)
    parts.add({"v": np.zeros(5)})
    agent.detach("ranges that overlap")
    with pytest.raises(fluvial.AgentUnavailable, match="ranges that overlap"):
        parts.add({"w": np.zeros((2, 3))})


def test_allreduce_gives_back_what_it_was_given(tmp_path):
    with FakeAgent(tmp_path / "a", {"x": np.zeros((2, 2), np.float32)}) as agent:
        agent.task(1, {"x": np.zeros((2, 2))})
        agent.committed(1, {"x": np.full((2, 2), 3.5)})
        mean = agent.site.allreduce(np.ones((2, 2)), run="run", samples=3)
        message, _ = agent.receive()
        assert message.task_done.update and message.task_done.weight == 3
        assert mean.dtype == np.float64 and mean.tolist() == [[3.5, 3.5], [3.5, 3.5]]
        agent.task(2, {"x": np.zeros((2, 2))})
        agent.committed(2, {"x": np.full((2, 2), 1.5)})
        mean = agent.site.allreduce({"x": np.ones((2, 2), np.float16)}, run="run")
        assert mean["x"].dtype == np.float16 and mean["x"][0, 0] == 1.5
        with pytest.raises(TimeoutError):
            agent.site.allreduce(np.ones((2, 2)), run="run", timeout_s=0)
        agent.run_ended()
        with pytest.raises(fluvial.RunEnded):
            agent.site.allreduce(np.ones((2, 2)), run="run")


class Rank(FakeAgent):
    def __init__(self, path, rank, ranks):
        super().__init__(path, MODEL, group="trainer", rank=rank, ranks=ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3, 15, 20])
def test_shares_divide_the_model(tmp_path, ranks):
    trained = plus(100)
    flat = np.concatenate([trained[name].reshape(-1) for name in ("w", "b", "v")])
    whole, covered = np.zeros(88, np.uint8), np.zeros(88, int)
    for rank in range(ranks):
        with Rank(tmp_path / str(rank), rank, ranks) as agent:
            about = agent.attach.attach
            assert (about.group, about.rank, about.ranks, about.worker) == ("trainer", rank, ranks, f"trainer-{rank}")
            agent.task(1, MODEL)
            round = next(agent.rounds)
            assert round.flat().tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 0, 1, 2, 3, 4]
            with pytest.raises(ValueError):
                round.flat()[0] = 1
            mine = round.shard()
            round.submit_shard(flat[mine], mine.start, samples=2)
            _, with_memory, answered = agent.answer_of_rank()
            assert with_memory and len(answered) <= 1
            first, count = answered[0] if answered else (0, 0)
            covered[first : first + count] += 1
            data = np.concatenate([part.reshape(-1).view(np.uint8) for part in agent.result_arrays().values()])
            whole[first : first + count] = data[first : first + count]
    assert covered.tolist() == [1] * 88
    assert_same(agent.schema.views(whole), {**trained, "first": MODEL["first"], "seen": MODEL["seen"]})


def test_a_share_of_several_stretches(tmp_path):
    with Rank(tmp_path / "a", 0, 2) as agent:
        agent.task(1, MODEL)
        round = next(agent.rounds)
        assert (round.place("w"), round.place("b"), round.place("v")) == (slice(0, 6), slice(6, 10), slice(10, 15))
        with pytest.raises(fluvial.ModelMismatch, match="byte 44 of the model is in two of the pieces"):
            round.submit_shard([np.zeros(6), np.zeros(1)], [0, 5], samples=1)
        with pytest.raises(fluvial.ModelMismatch, match="from 12 on"):
            round.submit_shard(np.zeros(4), 12, samples=1)
        round.submit_shard([np.full((1, 2), 9.0), np.full(3, 8.0)], [8, 0], samples=1, update=True)
        message, _, answered = agent.answer_of_rank()
        assert message.task_done.update and answered == [(0, 36), (56, 12)]
        arrays = agent.result_arrays()
        assert arrays["w"].tolist() == [[8, 8, 8], [0, 0, 0]] and arrays["b"].tolist() == [0, 0, 9, 9]
        assert arrays["seen"].tolist() == [7]


def test_a_share_of_the_model_is_a_ranks(agent, tmp_path):
    agent.task(1, MODEL)
    round = next(agent.rounds)
    with pytest.raises(fluvial.ModelMismatch, match="fluvial.connect"):
        round.submit_shard(np.zeros(3), 0, samples=1)
    round.submit_shard(round.flat(), 0, samples=1)  # all of it anybody may
    message, _ = agent.receive()
    assert message.WhichOneof("body") == "task_done"
    for wrong in ({"rank": 1}, {"group": "g"}, {"group": "g", "rank": 2, "ranks": 2}, {"group": "g", "ranks": 65}):
        with pytest.raises(ValueError, match="rank"):
            fluvial.connect(str(tmp_path / "none"), patience_s=0, **wrong)
