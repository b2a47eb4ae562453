"""JAX's arrays: a dictionary of them is submitted as it is, and built from a round's arrays."""

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent

jax = pytest.importorskip("jax", reason="needs JAX")
jnp = jax.numpy

START = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.ones(3, np.float32),
    "steps": np.array([5], np.int64),
    "on": np.array([True, False]),
}


@jax.jit
def trained(model):
    return {**model, "w": 2 * model["w"], "half": (model["half"] / 4).astype(jnp.bfloat16), "steps": model["steps"] + 1}


def test_a_model_of_jax_arrays(tmp_path):
    with FakeAgent(tmp_path / "a", START) as agent:
        agent.task(1, START)
        round = next(agent.rounds)
        round.submit(trained({name: jnp.asarray(array) for name, array in round.arrays().items()}), samples=2)
        agent.receive()
        result = agent.result_arrays()
        assert {name: array.tolist() for name, array in result.items()} == {
            "w": [[0, 2, 4], [6, 8, 10]],
            "half": [0.25] * 3,
            "steps": [6],
            "on": [True, False],
        }


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_measured_from_what_was_loaded(tmp_path, dtype):
    base = np.array([0.1, -1 / 3, 1e-6, 3.14159265], np.float32)
    with FakeAgent(tmp_path / "a", {"w": base}) as agent:
        for number, step in ((1, 0), (2, 1)):
            agent.task(number, {"w": base})
            round = next(agent.rounds)
            loaded = {name: jnp.asarray(array, dtype) for name, array in round.arrays().items()}
            trained = {name: array + dtype(step) for name, array in loaded.items()}
            round.submit(trained, samples=1)
            agent.receive()
            moved = np.asarray(trained["w"], np.float32) - np.asarray(loaded["w"], np.float32)
            assert np.array_equal(agent.result_arrays()["w"], base + moved)


def test_gradients_and_means(tmp_path):
    parameters = {"w": jnp.ones((2, 3)), "b": jnp.zeros(3, jnp.bfloat16)}
    zeros = fluvial.zeros_like(parameters)
    assert {name: array.dtype for name, array in zeros.items()} == {"w": np.float32, "b": np.float32}
    gradients = jax.grad(lambda p: jnp.sum((jnp.ones(2) @ p["w"] + p["b"]) ** 2).astype(jnp.float32))(parameters)
    with FakeAgent(tmp_path / "a", zeros) as agent:
        agent.task(1, zeros)
        agent.committed(1, {"w": np.full((2, 3), 1.5), "b": np.full(3, 2.5)})
        mean = agent.site.allreduce(gradients, run="run")
        agent.receive()
        assert agent.result_arrays()["b"].tolist() == [4, 4, 4]
        assert mean["w"].dtype == np.float32 and mean["b"].dtype == gradients["b"].dtype
        assert jnp.asarray(mean["b"]).tolist() == [2.5] * 3


def test_what_cannot_be_written_in_place_says_so():
    with pytest.raises(TypeError, match="round.arrays"):
        fluvial.load_arrays({"w": jnp.zeros(2)}, {"w": np.zeros(2, np.float32)})
