"""A run that continues another one, and keeps the state of its server optimizer."""

import pathlib
import threading

import numpy as np
import pytest

import fluvial

STEPS = np.random.default_rng(7).standard_normal((4, 50)).astype(np.float32)
START = {"w": np.linspace(-1, 1, 50).astype(np.float32)}


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


def train(federation, name, first, **about):
    """STEPS[first], ... as the site's updates of the run's rounds."""
    federation.start_run(name, codec="fp32", **about)
    with federation.connect(0) as site:
        for round in site.rounds(name):
            round.submit_update({"w": STEPS[first + round.number - 1]}, samples=1)
    federation.wait(name, timeout_s=60)
    return federation.model(name)["w"]


@pytest.mark.parametrize("optimizer", ["fedavgm:lr=0.5,momentum=0.9", "fedadam:lr=0.02", "nesterov", "delayed_nesterov:every=2"])
def test_two_runs_make_the_model_of_one(small, optimizer):
    whole = train(small, "whole", 0, model=START, rounds=4, optimizer=optimizer)
    train(small, "first", 0, model=START, rounds=2, optimizer=optimizer)
    kept = train(small, "second", 2, continues="first", keep_optimizer=True, rounds=2, optimizer=optimizer)
    np.testing.assert_array_equal(kept, whole)
    afresh = train(small, "afresh", 2, continues="first", rounds=2, optimizer=optimizer)
    assert not np.array_equal(afresh, whole)
    runs = {run["name"]: run["keeps_optimizer"] for run in small.admin.runs()}
    assert runs == {"whole": False, "first": False, "second": True, "afresh": False}


def test_a_state_that_does_not_fit_is_refused(small):
    momentum = {"continues": "first", "keep_optimizer": True}
    train(small, "first", 0, model=START, rounds=1, optimizer="fedavgm")
    with pytest.raises(fluvial.FederationFailed, match="it is that of fedavgm, and the plan's optimizer is fedadam"):
        small.start_run("second", **momentum, optimizer="fedadam")
    train(small, "plain", 0, model=START, rounds=1, optimizer="fedavg")
    with pytest.raises(fluvial.FederationFailed, match="fedavg has none"):
        small.start_run("second", continues="plain", keep_optimizer=True, optimizer="fedavg")
    small.start_run("stopped", START, optimizer="fedavgm")
    small.stop_run("stopped")
    with pytest.raises(fluvial.FederationFailed, match="no round of it is committed at round 0"):
        small.start_run("second", continues="stopped", keep_optimizer=True, optimizer="fedavgm")
    train(small, "third", 1, **momentum, rounds=1, optimizer="fedavgm:lr=0.1")  # other numbers are fine


def test_a_state_is_handed_on_by_a_run_without_rounds(small):
    whole = train(small, "whole", 0, model=START, rounds=2, optimizer="fedavgm")
    train(small, "first", 0, model=START, rounds=1, optimizer="fedavgm")
    small.start_run("between", continues="first", keep_optimizer=True, optimizer="fedavgm")
    small.stop_run("between")
    kept = train(small, "last", 1, continues="between", keep_optimizer=True, rounds=1, optimizer="fedavgm")
    np.testing.assert_array_equal(kept, whole)


@pytest.mark.parametrize("optimizer", ["fedavgm:lr=0.5,momentum=0.9", "fedadam:lr=0.02", "delayed_nesterov:every=2"])
def test_a_run_goes_back_to_a_round_with_the_state_of_its_optimizer(small, optimizer):
    whole = train(small, "whole", 0, model=START, rounds=4, optimizer=optimizer)
    train(small, "astray", 0, model=START, rounds=3, optimizer=optimizer)
    about = {"continues": "astray", "round": 2, "rounds": 2, "optimizer": optimizer}
    np.testing.assert_array_equal(train(small, "back", 2, **about, keep_optimizer=True), whole)
    np.testing.assert_array_equal(small.model("back", 0)["w"], small.model("whole", 2)["w"])
    assert not np.array_equal(train(small, "afresh", 2, **about), whole)
    assert [run["continues"] for run in small.admin.runs()] == [0, 0, 2, 2]


def test_a_label_keeps_a_round_with_the_state_of_its_optimizer(small):
    whole = train(small, "whole", 0, model=START, rounds=3, optimizer="fedavgm")
    small.start_run("astray", START, rounds=2, codec="fp32", optimizer="fedavgm", plan={"models_kept": 1})
    with small.connect(0) as site:
        for round in site.rounds("astray"):
            if round.number == 2:
                small.admin.label("good", 1, "astray")
            round.submit_update({"w": STEPS[round.number - 1]}, samples=1)
    small.wait("astray", timeout_s=60)
    back = {"continues": "astray", "keep_optimizer": True, "rounds": 2, "optimizer": "fedavgm"}
    np.testing.assert_array_equal(train(small, "back", 1, round="good", **back), whole)


def test_a_round_that_is_not_there_is_refused_with_those_that_are(small):
    train(small, "first", 0, model=START, rounds=3, optimizer="fedavgm", plan={"models_kept": 1})
    back = {"continues": "first", "optimizer": "fedavgm"}
    with pytest.raises(fluvial.FederationFailed, match="round 1 of run 1 is no longer kept .* the kept rounds are 3"):
        small.start_run("second", round=1, keep_optimizer=True, **back)
    with pytest.raises(fluvial.FederationFailed, match="run 1 round 9 is not committed"):
        small.start_run("second", round=9, **back)
    with pytest.raises(fluvial.FederationFailed, match="no model 'good': expected a round's number, latest, best or a label"):
        small.start_run("second", round="good", **back)
    with pytest.raises(fluvial.FederationFailed, match="round: expected with the run whose round it is"):
        small.start_run("second", START, round=3)
    train(small, "second", 0, round=3, keep_optimizer=True, **back)


def test_the_last_round_of_the_run_before_is_never_lost(small):
    """Asked while that round is committed, again and again until the coordinator agrees."""
    model = {"w": np.zeros(5_000_000, np.float32)}
    small.start_run("first", model, rounds=2)
    with small.connect(0) as site:
        trains = threading.Thread(target=lambda: [round.submit_update({"w": model["w"] - 1}, samples=1) for round in site.rounds("first")])
        trains.start()
        while True:
            try:
                small.start_run("second", continues="first", rounds=1)
                break
            except fluvial.FederationFailed as error:
                assert "is active" in str(error)
        trains.join()
    assert small.model("second", 0)["w"][0] == small.model("first", 2)["w"][0] == 2
    small.stop_run("second")


def test_a_state_that_is_not_there_is_refused(small):
    """As after a restore: a backup has the state of the last round of a run that goes on."""
    train(small, "first", 0, model=START, rounds=2, optimizer="fedavgm")
    model = pathlib.Path(small.admin._get("/v1/models/1/1")["path"])
    model.with_name("round-1.optimizer.safetensors").unlink()
    back = {"continues": "first", "round": 1, "optimizer": "fedavgm"}
    with pytest.raises(fluvial.FederationFailed, match="cannot be kept: that of round 1 is not there"):
        small.start_run("second", keep_optimizer=True, **back)
    train(small, "second", 0, **back)
