"""What a script says of its training: how many samples, and metrics. What nobody could use is refused where it is said."""

import contextlib
import threading
import warnings

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent

MODEL = {"w": np.zeros(4, np.float32)}
SITES_MOST = 1_000_000


@pytest.fixture
def agent(tmp_path):
    with FakeAgent(tmp_path / "agent.sock", MODEL) as fake:
        yield fake


def first_round(agent, **task):
    agent.task(1, MODEL, **task)
    return next(agent.rounds)


WAYS = {
    "submit": lambda round, samples: round.submit(MODEL, samples=samples),
    "submit, overlapped": lambda round, samples: round.submit(MODEL, samples=samples, overlap=True),
    "submit_update": lambda round, samples: round.submit_update(MODEL, samples=samples),
    "submit_shard": lambda round, samples: round.submit_shard(MODEL["w"], 0, samples=samples),
    "parts": lambda round, samples: round.parts(samples=samples),
    "report": lambda round, samples: round.report({"accuracy": 0.5}, samples=samples),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("samples, divisor", [(SITES_MOST + 1, 1000), (5_000_000_000, 1_000_000)])
def test_more_samples_than_the_site_may_have_are_refused_and_not_cut(agent, way, samples, divisor):
    round = first_round(agent, weight_max=SITES_MOST)
    assert round.samples_max == SITES_MOST
    with pytest.raises(fluvial.TooManySamples, match=f"samples is {samples}.* {SITES_MOST} .*weight_max.*n/{divisor},.*all sites"):
        WAYS[way](round, samples)
    round.submit(MODEL, samples=SITES_MOST)  # the round waits for an answer still, and takes as many as that
    assert agent.receive()[0].task_done.weight == SITES_MOST


def test_a_round_that_goes_on_from_one_in_the_air_has_the_same_bound(agent):
    first_round(agent, weight_max=5).submit(MODEL, samples=5, overlap=True)
    overlapped = next(agent.rounds)
    with pytest.raises(fluvial.TooManySamples, match="samples is 6"):
        overlapped.submit(MODEL, samples=6)


def test_workers_who_have_too_many_together_are_told_by_an_exception(agent):
    first_round(agent, weight_max=10).submit(MODEL, samples=6)
    agent.refused(1, "samples: a worker has 6, others of the site 6, and all together may have 10", weight_max=10)
    with pytest.raises(fluvial.TooManySamples, match="round 1 of run does without fake: samples: a worker has 6"):
        next(agent.rounds)


def test_an_evaluation_of_too_many_samples_is_refused(agent):
    agent.task(1, MODEL, weight_max=SITES_MOST)
    with pytest.raises(fluvial.TooManySamples, match="samples is 9000000"):
        agent.site.evaluate(lambda model: ({"accuracy": 0.2}, 9_000_000), run="run")


@pytest.mark.parametrize(
    "samples, said",
    [
        (0, "samples is 0, expected 1 or more: a site without data .* `continue`"),
        (-3, "samples is -3, expected 1 or more"),
        (1.5, "samples is 1.5, expected a whole number"),
        (float("nan"), "samples is nan, expected a whole number"),
        (float("inf"), "samples is inf, expected a whole number"),
        ("5", "samples is '5', expected a whole number"),
        (None, "samples is None, expected a whole number"),
        ([1, 2], r"samples is \[1, 2\], expected a whole number"),
        (np.array([1, 2]), r"samples is array\(\[1, 2\]\), expected a whole number"),
    ],
)
def test_samples_are_a_whole_number_from_one_on(agent, samples, said):
    with pytest.raises(ValueError, match=said):
        first_round(agent).submit(MODEL, samples=samples)


@pytest.mark.parametrize("samples", [3, 3.0, np.int64(3), np.float32(3), np.array(3)])
def test_whole_numbers_of_any_kind_are_samples(agent, samples):
    first_round(agent).submit(MODEL, samples=samples)
    assert agent.receive()[0].task_done.weight == 3


@pytest.mark.parametrize(
    "metrics, said",
    [
        ({"loss": 1, "confusion": [1, 2]}, r"metric 'confusion' is \[1, 2\], a list; expected one number"),
        ({"note": "0.5"}, "metric 'note' is '0.5', a text; expected one number"),
        ({"note": b"0.5"}, "metric 'note' is b'0.5', a text"),
        ({"none": None}, "metric 'none' is None, a NoneType"),
        ({"matrix": np.zeros((2, 2))}, "metric 'matrix' is array.*, a ndarray"),
        ({"z": 1j}, "metric 'z' is 1j, a complex"),
        ({7: 0.5}, "metric 7: its name is a int"),
        ([("loss", 0.5)], "metrics is a list, expected numbers by name"),
        ({"lo ss": 0.5}, "metric 'lo ss': a name is 1 to 64 printable ASCII"),
        ({"lo\u202ess": 0.5}, r"metric 'lo\\u202ess': a name is"),
        ({"n" * 65: 0.5}, "metric 'n*': a name is 1 to 64"),
    ],
)
def test_a_metric_that_is_no_number_is_named(agent, metrics, said):
    round = first_round(agent)
    with pytest.raises((TypeError, ValueError), match=said):
        round.submit(MODEL, samples=1, metrics=metrics)
    round.submit(MODEL, samples=1, metrics={"loss": np.float32(0.5), "steps": 3, "done": True})
    assert dict(agent.receive()[0].task_done.metrics) == {"loss": 0.5, "steps": 3, "done": 1}


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 1.7e308, -(10**400), 1.0001e100], ids=lambda value: f"{float(min(max(value, -1e300), 1e300))}")
def test_a_metric_that_is_in_no_mean_is_warned_of(agent, value):
    with pytest.warns(RuntimeWarning, match="metric 'loss' is .* in round 1 of run: the mean is that of the others") as told:
        first_round(agent).submit(MODEL, samples=1, metrics={"loss": value, "good": 1e100})
    assert len(told) == 1


def test_a_mistyped_run_ends_with_the_time_that_was_given_and_names_what_there_is(agent):
    """Though rounds of the run that there is come again and again, faster than that."""

    def other_work():
        with contextlib.suppress(OSError):  # the worker has closed its end
            for _ in range(5000):
                agent.task(1, MODEL, run="digits")
                if agent.receive()[0].WhichOneof("body") == "detach":
                    return

    serving = threading.Thread(target=other_work)
    serving.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TimeoutError) as told:
            next(agent.site.rounds("digit", timeout_s=0.2))
    agent.site.close()
    serving.join(60)
    said = "a worker at fake has waited in vain for a round of run 'digit', .*; there is work of run 'digits'. Did you mean 'digits'"
    assert told.match(said) and "fluvial status" in str(told.value)


def test_a_gradient_that_is_not_there_is_named(agent):
    torch = pytest.importorskip("torch")
    round = first_round(agent)
    for give in (round.submit, round.submit_update):
        with pytest.raises(fluvial.ModelMismatch, match="tensor w is None: .* zeros"):
            give({"w": None}, samples=1)
        with pytest.raises(fluvial.ModelMismatch, match=r"tensor w is sparse \(torch.sparse_coo\); give tensor.to_dense"):
            give({"w": torch.ones(4).to_sparse()}, samples=1)
    with pytest.raises(fluvial.ModelMismatch, match="tensor w is None"):
        round.load_into({"w": None})
