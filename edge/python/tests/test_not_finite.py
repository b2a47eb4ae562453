"""One site's metric is not finite: the round has the mean of the others', and says who was left out."""

import subprocess
import warnings

import numpy as np
import pytest

import fluvial

MODEL = {"w": np.zeros(2, np.float32)}


@pytest.fixture(scope="module")
def trio():
    with fluvial.testing.LocalFederation(sites=3) as local:
        yield local


def train(local, name, losses, **more):
    """A run with one round a list of losses, one a site."""

    def worker(site, index):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for round in site.rounds(name):
                round.submit(MODEL, samples=1 + index, metrics={"loss": losses[round.number - 1][index]})

    local.start_run(name, MODEL, rounds=len(losses), **more)
    local.train(worker)
    local.wait(name, timeout_s=60)
    local.join()
    return local.rounds(name)


def shown(local, *command):
    return subprocess.run(
        [fluvial.testing.executable(), *command, "--admin-socket", local.admin_socket], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf"), 1.7e308, -1.7e308])
def test_the_mean_is_that_of_the_others(trio, bad):
    (round,) = train(trio, "one", [(2.0, bad, 4.0)])
    assert round["metrics"]["loss"] == 3.5, "weights 1 and 3"
    assert round["not_finite"] == {"loss": ["site-2"]}
    assert [site["metrics"] for site in round["contributors"]] == [{"loss": 2.0}, {}, {"loss": 4.0}]


def test_who_was_left_out_is_said_wherever_the_mean_is_and_the_best_is_found(trio):
    nan = float("nan")
    rounds = train(trio, "best", [(3.0, 3.0, nan), (1.0, nan, nan), (nan, nan, nan), (2.0, 2.0, 2.0)], plan={"models_kept_best": "loss:min"})
    assert [round["metrics"].get("loss") for round in rounds] == [3.0, 1.0, None, 2.0]
    assert [len(round["not_finite"].get("loss", ())) for round in rounds] == [1, 2, 3, 0]
    assert trio.admin.best("loss", run="best")["round"] == 2
    assert [model["round"] for model in trio.admin.models("best") if model.get("best")] == [2]
    number = str(trio.admin.number("best"))
    assert "not finite    loss of site-2, site-3: in no mean" in shown(trio, "rounds", "show", "2", "--run", number)
    assert "not finite" not in shown(trio, "rounds", "show", "4", "--run", number)


def test_two_great_numbers_do_not_make_an_infinite_mean(trio):
    (round,) = train(trio, "great", [(1e100, 1e100, -1e100)])
    assert round["metrics"]["loss"] == 0.0 and round["not_finite"] == {}


def test_an_evaluation_at_the_sites_does_without_it_too(trio):
    train(trio, "evaluated", [(1.0, 1.0, 1.0)])
    scores = (float("nan"), 0.5, 0.7)

    def worker(site, index):
        with pytest.warns(RuntimeWarning) if index == 0 else warnings.catch_warnings():
            site.evaluate(lambda model: ({"accuracy": scores[index]}, 1), {"w": np.zeros(2, np.float32)}, run="evaluated-evaluation")

    trio.train(worker)
    found = trio.evaluate("evaluated", timeout_s=60)
    trio.join()
    assert found["metrics"]["accuracy"] == pytest.approx(0.6)
    assert found["not_finite"] == {"accuracy": ["site-1"]}
    assert found["sites"]["site-1"] == {"weight": 1, "metrics": {}}
