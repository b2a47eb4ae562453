"""Half precision at the workers: what is handed over is base + (trained - loaded), wherever the casts were made."""

import numpy as np
import pytest

import emulated_cuda
import fluvial
import fluvial.testing
from fake_agent import FakeAgent
from fluvial import _device, _precision

torch = pytest.importorskip("torch", reason="needs PyTorch")

HALVES = ["bfloat16", "float16"]
# Not one of the first values is a half; fp16 cannot hold the last ones at all.
BASE = np.array([0.1, -1 / 3, 1e-6, 3.14159265, 70000.0, 1e30], np.float32)
START = {"w": BASE, "seen": np.array([3], np.int64), "odd": np.array([7], np.uint8), "b": BASE[:3] * np.float32(7)}
SMALL = {"w": BASE[:4], "seen": np.array([3], np.int64)}


def as_half(array, dtype):
    copied = torch.from_numpy(np.array(array))
    return copied.to(getattr(torch, dtype)) if array.dtype == np.float32 else copied


@pytest.fixture
def agent(tmp_path):
    with FakeAgent(tmp_path / "a", START) as fake:
        yield fake


def begin(agent, number=1, model=None):
    agent.task(number, START if model is None else model)
    return next(agent.rounds)


def handed(agent):
    agent.answer_of_rank()
    return agent.result_arrays()


def assert_same(result, expected):
    for name, array in result.items():
        assert np.array_equal(array, expected[name]), name


# ---- one worker, every way to cast ----


def module_of(model):
    """A module whose state dict has these tensors."""
    module = torch.nn.Module()
    for name, array in model.items():
        if array.dtype == np.float32:
            module.register_parameter(name, torch.nn.Parameter(torch.from_numpy(np.array(array)), requires_grad=True))
        else:
            module.register_buffer(name, torch.from_numpy(np.array(array)))
    return module


def cast(module, dtype):
    return module.to(getattr(torch, dtype))  # floating-point tensors alone


def into_a_module(round, dtype):
    module = cast(module_of(START), dtype)
    round.load_into(module)
    return module


def into_a_state_dict(round, dtype):
    state = {name: as_half(np.zeros_like(array), dtype) for name, array in START.items()}
    round.load_into(state)
    return state


def arrays_cast_by_hand(round, dtype):
    return {name: as_half(array, dtype) for name, array in round.arrays().items()}


def a_module_cast_after_loading(round, dtype):
    module = module_of(START)
    round.load_into(module)
    return cast(module, dtype)


def a_module_widened_after_loading(round, dtype):
    return into_a_module(round, dtype).float()


def a_master_copy_of_the_module(round, dtype):
    """Mixed precision: the optimizer steps fp32 copies of half-precision parameters, and those are handed over."""
    return {name: value.to(torch.float32) if value.is_floating_point() else value.clone()
            for name, value in into_a_module(round, dtype).state_dict().items()}  # fmt: skip


def a_master_copy_of_the_round(round, dtype):
    into_a_module(round, dtype)
    return {name: torch.from_numpy(np.array(array)) for name, array in round.arrays().items()}


def a_master_module_beside(round, dtype):
    master = module_of(START)
    round.load_into(master)
    into_a_module(round, dtype)
    return master


def a_half_module_beside_a_teacher(round, dtype):
    round.load_into(module_of(START))
    return into_a_module(round, dtype)


def widened_by_hand_beside_the_round(round, dtype):
    round.arrays()
    return a_master_copy_of_the_module(round, dtype)


def a_widened_module_of_load_arrays(round, dtype):
    module = cast(module_of(START), dtype)
    fluvial.load_arrays(module, round.arrays())
    return module.float()


def as_float64(round, dtype):
    model = {name: np.zeros(array.shape, np.float64 if array.dtype == np.float32 else array.dtype) for name, array in START.items()}
    round.load_into(model)
    return model


WAYS = [
    into_a_module, into_a_state_dict, arrays_cast_by_hand, a_module_cast_after_loading, a_module_widened_after_loading,
    a_master_copy_of_the_module, a_master_copy_of_the_round, a_master_module_beside, a_half_module_beside_a_teacher,
    widened_by_hand_beside_the_round, a_widened_module_of_load_arrays, as_float64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("way", WAYS)
def test_what_was_not_trained_is_the_base(agent, way, dtype):
    round = begin(agent)
    round.submit(way(round, dtype), samples=1)
    assert_same(handed(agent), START)


def step(model, by):
    for name, value in fluvial.models.named_tensors(model).items():
        if name == "b":
            with torch.no_grad():
                value[1] += by
        elif name == "seen":
            value += 2


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("way", WAYS)
def test_a_step_arrives_as_it_was_made(agent, way, dtype):
    round = begin(agent)
    model = way(round, dtype)
    before = np.float32(fluvial.models.to_arrays(model)["b"][1])
    step(model, 0.25)
    made = np.float32(fluvial.models.to_arrays(model)["b"][1]) - before
    round.submit(model, samples=1)
    expected = {**START, "b": START["b"].copy(), "seen": START["seen"] + 2}
    expected["b"][1] += made
    assert_same(handed(agent), expected)


@pytest.mark.parametrize("dtype", HALVES)
def test_tied_weights_and_batch_norm(tmp_path, dtype):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.output = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
            self.output.weight = self.embedding.weight
            self.norm = torch.nn.BatchNorm1d(3)

    torch.manual_seed(2)
    start = fluvial.models.to_arrays(Tied())
    start["norm.running_mean"] = BASE[:3]
    with FakeAgent(tmp_path / "a", start) as agent:
        round = begin(agent, model=start)
        module = cast(Tied(), dtype)
        round.load_into(module)
        module.norm.num_batches_tracked += 1
        round.submit(module, samples=1)
        assert_same(handed(agent), {**start, "norm.num_batches_tracked": np.array(1)})


def test_numpy_halves(tmp_path):
    with FakeAgent(tmp_path / "a", SMALL) as agent:
        round = begin(agent, model=SMALL)
        model = {"w": np.zeros(4, np.float16), "seen": np.array([0], np.int64)}
        round.load_into(model)
        round.submit(model, samples=1)
        assert_same(handed(agent), SMALL)
        round = begin(agent, 2, SMALL)
        trained = {"w": round.arrays()["w"].astype(np.float16) + np.float16(0.5), "seen": SMALL["seen"]}
        round.submit(trained, samples=1)
        made = trained["w"].astype(np.float32) - SMALL["w"].astype(np.float16).astype(np.float32)
        assert_same(handed(agent), {**SMALL, "w": SMALL["w"] + made})


@emulated_cuda.needs_library
def test_halves_in_the_memory_of_a_gpu(tmp_path):
    emulated_cuda.use()
    try:
        with FakeAgent(tmp_path / "a", SMALL, devices=emulated_cuda.UUIDS[:1]) as agent:
            round = begin(agent, model=SMALL)
            halves = emulated_cuda.Array(round.arrays()["w"], dtype=np.float16)
            round.submit({"w": halves, "seen": SMALL["seen"]}, samples=1)
            assert_same(handed(agent), SMALL)
            round = begin(agent, 2, SMALL)  # a master copy on the GPU, of a model that was loaded as bf16
            loaded = {"w": torch.zeros(4, dtype=torch.bfloat16), "seen": torch.zeros(1, dtype=torch.int64)}
            round.load_into(loaded)
            master = emulated_cuda.Array(loaded["w"].float().numpy())
            round.submit({"w": master, "seen": SMALL["seen"]}, samples=1)
            message, _ = agent.receive()
            assert emulated_cuda.opened(message.task_done.device).tolist()[:4] == SMALL["w"].tolist()
            assert np.array_equal(master.numpy(), loaded["w"].float().numpy()), "the script's own values stay"
    finally:
        _device.LIBRARY = "libcuda.so.1"


@pytest.mark.parametrize("dtype", HALVES)
def test_torch_on_a_gpu_gives_the_same_bits(dtype):
    rng = np.random.default_rng(3)
    base = (rng.standard_normal(1000) * 10.0 ** rng.integers(-8, 8, 1000)).astype(np.float32)
    base[:3] = np.nan, np.inf, -0.0
    trained = torch.from_numpy(_precision.rounded(base, (dtype,)))
    trained[500:] *= 1.5
    on_host = trained.clone().numpy()
    for values in (trained, on_host):  # a GPU's tensors go the first way
        _precision.hand_over(values, base, [(dtype,)])
    assert np.array_equal(trained.numpy(), on_host, equal_nan=True)
    assert np.array_equal(on_host[:500], base[:500], equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES)
def test_an_overlapped_round_goes_on_from_what_was_loaded(agent, dtype):
    round = begin(agent)
    state = into_a_state_dict(round, dtype)
    round.submit(state, samples=1, overlap=True)
    assert_same(handed(agent), START)
    round = next(agent.rounds)
    round.load_into(state)
    newer = {**START, "w": START["w"] + np.float32(1), "b": START["b"] - np.float32(0.1)}
    agent.task(2, newer)
    round.submit(state, samples=1)
    assert_same(handed(agent), newer)


@pytest.mark.parametrize("dtype", HALVES)
def test_shares_of_ranks(tmp_path, dtype):
    with FakeAgent(tmp_path / "a", START, group="g", rank=0, ranks=1) as agent:
        flat = np.concatenate([START["w"], START["b"]])
        round = begin(agent)
        round.submit_shard(as_half(round.flat(), dtype), 0, samples=1)
        assert_same(handed(agent), START)
        round = begin(agent, 2)  # across the border of two tensors
        halves = [as_half(flat[:4], dtype), as_half(flat[4:8], dtype), as_half(flat[8:], dtype)]
        round.submit_shard(halves, [0, 4, 8], samples=1)
        assert_same(handed(agent), START)
        round = begin(agent, 3)
        round.submit_shard(as_half(flat, dtype), 0, samples=1, update=True)
        result = handed(agent)
        assert np.array_equal(result["b"], _precision.rounded(START["b"], (dtype,))), "an update is what it is"


@pytest.mark.parametrize("dtype", HALVES)
def test_updates_are_handed_over_as_they_are(tmp_path, dtype):
    zeros = {"w": np.zeros(4, np.float32)}
    with FakeAgent(tmp_path / "a", zeros) as agent:
        round = begin(agent, model=SMALL)
        gradient = {"w": as_half(BASE[:4], dtype)}
        round.submit_update(gradient, samples=1)
        assert_same(handed(agent), {"w": gradient["w"].float().numpy()})


def test_scaffold_and_fedprox_with_a_half_precision_module(tmp_path):
    torch.manual_seed(4)
    start = fluvial.Scaffold.model(torch.nn.Linear(3, 2))
    scaffold = fluvial.Scaffold(learning_rate=0.5)
    module = torch.nn.Linear(3, 2).to(torch.bfloat16)
    with FakeAgent(tmp_path / "a", start) as agent:
        round = begin(agent, model=start)
        scaffold.begin(round, module)
        scaffold.correct(module)
        scaffold.submit(round, module, samples=1)
        assert_same(handed(agent), start)
    plain = fluvial.models.to_arrays(torch.nn.Linear(3, 2))
    with FakeAgent(tmp_path / "b", plain) as agent:
        prox = fluvial.FedProx(mu=1)
        round = begin(agent, 1, plain)
        prox.begin(round, module)
        module.weight.grad, module.bias.grad = torch.zeros_like(module.weight), torch.zeros_like(module.bias)
        prox.correct(module)
        assert not module.weight.grad.any(), "it is where it began"


# ---- a federation of sites of several precisions, beside a loop of its own ----

ROUNDS, SIZE = 6, 500


def on_grid(values, ulp):
    """Values of [0.5, 1) as a format holds them whose neighbours are `ulp` apart there; ties to even."""
    return np.rint(values.astype(np.float64) / ulp) * ulp


BF16, FP16, FINE = 2.0**-8, 2.0**-11, 2.0**-14  # distances of neighbours in [0.5, 1); the base has the last one


def steps_of(site, round):
    """Whole numbers of the coarsest distance, for a part of the values: the others are not trained."""
    rng = np.random.default_rng(100 * site + round)
    return rng.integers(-1, 2, SIZE) * (rng.random(SIZE) < 0.5) * BF16


def expected_models(start):
    """Four sites, by hand: fp32; bf16; fp16; an fp32 copy of bf16 values, with steps that bf16 cannot hold."""
    base, models = start.astype(np.float64), []
    for round in range(1, ROUNDS + 1):
        loaded = [base, on_grid(base, BF16), on_grid(base, FP16), on_grid(base, BF16)]
        steps = [steps_of(site, round) * (2.0**-4 if site == 3 else 1) for site in range(4)]
        trained = [on_grid(l + s, ulp) for l, s, ulp in zip(loaded, steps, (FINE, BF16, FP16, 2.0**-12))]
        base = base + np.mean([t - l for t, l in zip(trained, loaded)], axis=0)
        models.append(base)
    return models


def train(site, index):
    module = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.zeros(SIZE)) for name in ("w", "frozen")})
    module = module.to([torch.float32, torch.bfloat16, torch.float32, torch.bfloat16][index])
    arrays = {name: np.zeros(SIZE, np.float16) for name in ("w", "frozen")}
    for round in site.rounds("mixed"):
        model = arrays if index == 2 else module
        with np.errstate(over="ignore"):
            round.load_into(model)
        if index == 3:
            model = {name: value.detach().to(torch.float32) for name, value in module.items()}
        steps = steps_of(index, round.number) * (2.0**-4 if index == 3 else 1)
        if index == 2:
            arrays["w"] += steps.astype(np.float16)
        else:
            with torch.no_grad():
                model["w"] += torch.from_numpy(steps).to(model["w"].dtype)
        round.submit(model, samples=8)


def test_sites_of_several_precisions_are_what_a_loop_makes_of_them():
    rng = np.random.default_rng(5)
    start = {
        "w": (rng.integers(int(0.6 / FINE), int(0.9 / FINE), SIZE) * FINE).astype(np.float32),
        "frozen": (rng.standard_normal(SIZE) * 10.0 ** rng.integers(-6, 7, SIZE)).astype(np.float32),
    }
    expected = expected_models(start["w"])
    with fluvial.testing.LocalFederation(sites=4) as federation:
        federation.start_run("mixed", start, rounds=ROUNDS, codec="fp32", optimizer="fedavg")
        federation.train(train)
        federation.wait("mixed", timeout_s=120)
        model = federation.model("mixed")
    assert np.abs(expected[-1] - start["w"]).max() > BF16
    assert np.array_equal(model["w"], expected[-1].astype(np.float32))
    assert np.array_equal(model["frozen"], start["frozen"]), "nobody trained it"


def test_signsgd_leaves_an_untrained_model_where_it_is():
    start = {"w": np.random.default_rng(6).standard_normal(SIZE).astype(np.float32)}

    def idle(site, index):
        module = torch.nn.ParameterDict({"w": torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.bfloat16))})
        for round in site.rounds("idle"):
            round.load_into(module)
            round.submit(module, samples=1, overlap=index == 1)

    with fluvial.testing.LocalFederation(sites=2) as federation:
        federation.start_run("idle", start, rounds=4, codec="fp32", optimizer="signsgd")
        federation.train(idle)
        federation.wait("idle", timeout_s=120)
        assert np.array_equal(federation.model("idle")["w"], start["w"])
