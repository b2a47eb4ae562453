"""A plan's `down`: what a worker trains from is what the sent bytes decode to; what people get is the master."""

import numpy as np
import pytest

import fluvial

START = {"w": np.linspace(-1, 1, 500).astype(np.float32)}
STEP = np.full(500, 0.00123, np.float32)


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


def train(federation, **about):
    """Two rounds; the models that the worker was given."""
    federation.start_run("run", START, rounds=2, **about)
    given = []
    with federation.connect(0) as site:
        for round in site.rounds("run"):
            given.append(round.arrays()["w"].copy())
            round.submit_update({"w": STEP}, samples=1)
    federation.wait("run", timeout_s=60)
    return given


def bf16(values):
    """The nearest of 8 bits of precision, of two the even one."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def test_rounded_models_are_trained_from_and_the_master_is_not_rounded(small):
    first, second = train(small, down="bf16")
    np.testing.assert_array_equal(first, START["w"])  # a run's initial model travels whole
    np.testing.assert_array_equal(second, bf16(START["w"] - STEP))
    master = START["w"] - STEP - STEP
    np.testing.assert_allclose(small.model("run")["w"], master, rtol=0, atol=1e-7)
    assert not np.array_equal(bf16(master), master)


def test_a_difference_reaches_the_worker(small):
    _, second = train(small, down="delta:fp16")
    np.testing.assert_allclose(second, START["w"] - STEP, rtol=0, atol=1e-6)


def test_what_cannot_go_down_is_refused_with_what_can(small):
    with pytest.raises(fluvial.FederationFailed, match="as in delta:int8"):
        small.start_run("run", START, down="delta:qsgd")
