"""A run that continues another one, and keeps the state of its server optimizer."""

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
    with pytest.raises(fluvial.FederationFailed, match="no round of it is committed"):
        small.start_run("second", continues="stopped", keep_optimizer=True, optimizer="fedavgm")
    train(small, "third", 1, **momentum, rounds=1, optimizer="fedavgm:lr=0.1")  # other numbers are fine


def test_a_state_is_handed_on_by_a_run_without_rounds(small):
    whole = train(small, "whole", 0, model=START, rounds=2, optimizer="fedavgm")
    train(small, "first", 0, model=START, rounds=1, optimizer="fedavgm")
    small.start_run("between", continues="first", keep_optimizer=True, optimizer="fedavgm")
    small.stop_run("between")
    kept = train(small, "last", 1, continues="between", keep_optimizer=True, rounds=1, optimizer="fedavgm")
    np.testing.assert_array_equal(kept, whole)
