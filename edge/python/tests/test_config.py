"""What a plan's [worker] table gives a script: values as they are, and schedules, which an oracle in numpy computes."""

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent
from fluvial import _messages
from fluvial.config import config_of

ROUNDS = 12
SCHEDULES = {
    "constant": {"start": 0.3, "warmup": 4},
    "linear": {"start": 0.1, "end": 0.01},
    "linear_named": {"schedule": "linear", "start": 1, "rounds": 5},
    "cosine": {"schedule": "cosine", "start": 0.1, "end": 0.001, "warmup": 3},
    "cosine_short": {"schedule": "cosine", "start": 1.5, "rounds": 7},
    "exponential": {"start": 0.1, "decay": 0.97},
    "steps": {"schedule": "decay", "start": 0.1, "decay": 0.5, "every": 4, "warmup": 2},
    "grows": {"start": 16, "decay": 2, "every": 3, "end": 100},
}


def oracle(start, end=None, decay=None, every=1, rounds=ROUNDS, warmup=0, schedule=None):
    """All of a schedule's values at once; the formulas are those of docs/operations/plan.md."""
    number = np.arange(1, ROUNDS + 1)
    first = max(warmup, 1)
    since = np.maximum(number - first, 0)
    if schedule == "decay" or (schedule is None and decay is not None):
        values = start * np.power(float(decay), since // every)
        if end is not None:
            values = np.clip(values, min(start, end), max(start, end))
    elif schedule == "constant" or (schedule is None and end is None):
        values = np.full(ROUNDS, float(start))
    else:
        way = np.minimum(since / (rounds - first), 1)
        share = way if schedule in (None, "linear") else (1 - np.cos(np.pi * way)) / 2
        values = start + ((end or 0) - start) * share
    return np.where(number < warmup, start * number / first, values)


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


def test_each_round_has_the_values_of_the_plan_and_of_its_schedules(small):
    plain = {"network": "resnet-18 \"small\"", "nesterov": True, "bias": False, "batch_size": 32, "ünï": "ö\\"}
    lists = {"widths": [16, 32.5], "layers": ["conv1", "fc"]}
    small.start_run("plan", {"w": np.zeros(3, np.float32)}, rounds=ROUNDS, worker={**plain, **lists, **SCHEDULES})
    seen = []

    def worker(site, index):
        for round in site.rounds("plan"):
            seen.append(round.config)
            numbers = {name: value for name, value in round.config.items() if type(value) is float}
            assert round.parameters == numbers
            round.submit(round.arrays(), samples=1)

    small.train(worker)
    small.wait("plan", timeout_s=60)
    assert len(seen) == ROUNDS
    for config in seen:
        assert {name: config[name] for name in (*plain, *lists)} == {**plain, **lists}
        assert type(config["nesterov"]) is bool and type(config["batch_size"]) is float
    for name, about in SCHEDULES.items():
        np.testing.assert_allclose([config[name] for config in seen], oracle(**about), rtol=1e-13, atol=0, err_msg=name)
    assert seen[-1]["linear"] == 0.01 and seen[0]["cosine_short"] == 1.5, "both ends are exact"


def test_an_evaluator_has_those_of_the_round_that_made_the_model(small):
    schedule = {"rate": {"start": 1, "decay": 0.5}, "task": "last"}
    small.start_run("plan", {"w": np.zeros(3, np.float32)}, rounds=3, worker=schedule)
    small.train(lambda site, index: [round.submit(round.arrays(), samples=1) for round in site.rounds("plan")])
    small.wait("plan", timeout_s=60)
    given = next(fluvial.evaluations("plan", socket=small.evaluation_socket))
    assert (given.round, given.config, given.parameters) == (3, {"rate": 0.25, "task": "last"}, {"rate": 0.25})


@pytest.mark.parametrize(
    "worker, message",
    [
        ({"rate": {"start": 0.1, "dekay": 0.9}}, "worker.rate.dekay.*did you mean 'decay'"),
        ({"rate": {"decay": 0.9}}, r"plan: worker.rate.decay = 0.9: expected beside it start"),
        ({"rate": {"start": 0.1, "decay": 0}}, r"plan: worker.rate.decay = 0: expected above 0"),
        ({"list": []}, r"plan: worker.list: expected"),
        ({"list": [1, "two"]}, r"plan: worker.list: expected"),
        ({"text": "x" * 1025}, r"plan: worker.text = 'x+': expected a text of at most 1024 characters"),
    ],
)
def test_a_wrong_table_is_refused_with_its_key(small, worker, message):
    with pytest.raises(fluvial.FederationFailed, match=message):
        small.start_run("plan", {"w": np.zeros(3, np.float32)}, worker=worker)


def test_an_agent_that_knows_numbers_alone(tmp_path):
    with FakeAgent(tmp_path / "a", {"w": np.zeros(3, np.float32)}) as agent:
        agent.task(1, {"w": np.zeros(3, np.float32)}, parameters={"rate": 0.5})
        round = next(agent.rounds)
        assert round.config == round.parameters == {"rate": 0.5}


def test_a_value_of_no_known_kind_is_an_error():
    task = _messages.message_class("Task")()
    task.values.add(name="later", kind=9)
    with pytest.raises(fluvial.ProtocolError, match="worker.later"):
        config_of(task)


def test_an_overlapped_round_has_the_config_of_the_one_before(tmp_path):
    zeros = {"w": np.zeros(3, np.float32)}
    with FakeAgent(tmp_path / "a", zeros) as agent:
        agent.task(1, zeros, parameters={"rate": 0.5})
        next(agent.rounds).submit(zeros, samples=1, overlap=True)
        agent.receive()
        assert next(agent.rounds).config == {"rate": 0.5}
