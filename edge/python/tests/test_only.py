"""Some tensors of a model only."""

import json
import warnings

import numpy as np
import pytest

import fluvial

MODEL = {
    "body.0.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "body.0.lora_a": np.ones((2, 1), np.float32),
    "body.0.lora_b": np.zeros((1, 3), np.float32),
    "head.weight": np.full(4, 5, np.float32),
}
ADAPTERS = ["*.lora_*"]


def copy():
    return {name: array.copy() for name, array in MODEL.items()}


def test_a_file_holds_them_alone_and_says_so(tmp_path):
    path = str(tmp_path / "adapters.safetensors")
    fluvial.save_model(path, MODEL, {"note": "mine"}, only=ADAPTERS)
    assert list(fluvial.load_model(path)) == ["body.0.lora_a", "body.0.lora_b"]
    said = fluvial.model_metadata(path)
    assert json.loads(said["fluvial.only"]) == ADAPTERS and said["fluvial.left_out"] == "2" and said["note"] == "mine"
    fluvial.save_model(path, MODEL, only=["!head.*"])
    assert list(fluvial.load_model(path)) == ["body.0.weight", "body.0.lora_a", "body.0.lora_b"]
    fluvial.save_model(path, MODEL, only="head.weight")
    assert list(fluvial.load_model(path)) == ["head.weight"]
    fluvial.save_model(path, MODEL)
    assert fluvial.model_metadata(path) == {}


@pytest.mark.parametrize(
    "only, what",
    [
        (["*.lora_*", "haed.weight"], "'haed.weight' fits no tensor of the model; there are head.weight"),
        ("*.adapter", r"'\*.adapter' fits no tensor"),
        (["head.*", "!head.*"], "selects no tensor"),
    ],
)
def test_a_pattern_that_fits_nothing_is_an_error(tmp_path, only, what):
    with pytest.raises(fluvial.ModelMismatch, match=what):
        fluvial.save_model(str(tmp_path / "model"), MODEL, only=only)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("only", [[], "", [3], ["!"]])
def test_what_is_no_pattern_is_an_error(tmp_path, only):
    with pytest.raises(ValueError, match="expected a name or pattern"):
        fluvial.save_model(str(tmp_path / "model"), MODEL, only=only)


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


def test_only_they_travel_and_the_rest_stays(small):
    small.start_run("adapters", MODEL, only=ADAPTERS, rounds=2)
    model = copy()
    for round in small.connect(0).rounds("adapters"):
        assert [tensor.name for tensor in round.schema] == ["body.0.lora_a", "body.0.lora_b"]
        assert round.schema.nbytes == 5 * 4
        round.load_into(model, only=ADAPTERS)
        for array in model.values():
            array += 1
        round.submit(model, samples=1, only=ADAPTERS)
    small.wait("adapters", timeout_s=60)
    committed = small.model("adapters")
    assert sorted(committed) == ["body.0.lora_a", "body.0.lora_b"]
    np.testing.assert_array_equal(committed["body.0.lora_a"], np.full((2, 1), 3))
    np.testing.assert_array_equal(model["head.weight"], np.full(4, 7))  # trained here, twice, and nobody else's
    fluvial.load_arrays(model, committed, only=ADAPTERS)
    np.testing.assert_array_equal(model["body.0.lora_b"], np.full((1, 3), 2))


def test_a_run_of_other_tensors_is_refused_by_name(small):
    small.start_run("whole", MODEL, rounds=1)
    site = small.connect(0)
    for round in site.rounds("whole"):
        with pytest.raises(fluvial.ModelMismatch, match=r"2 tensors that only=.* leaves out here: body.0.weight, head.weight"):
            round.load_into(copy(), only=ADAPTERS)
        with pytest.raises(fluvial.ModelMismatch, match="leaves out here"):
            round.submit(copy(), samples=1, only=ADAPTERS)
        round.submit(copy(), samples=1, only=["*"])
    small.wait("whole", timeout_s=60)
    small.start_run("less", MODEL, only=["head.*"], rounds=1)
    for round in site.rounds("less"):
        with pytest.raises(fluvial.ModelMismatch, match="2 tensors that the run's model has not: body.0.lora_a, body"):
            round.load_into(copy(), only=["*.lora_*", "head.*"])
        round.submit(copy(), samples=1, only="head.*")


def test_what_stays_without_only_is_said_once_a_run(small):
    whole, site = copy(), small.connect(0)
    for name in ("first", "second"):
        small.start_run(name, MODEL, only=["body.*"], rounds=3)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for round in site.rounds(name):
                round.load_into(whole)
                round.submit(whole, samples=1)
        said = [str(one.message) for one in told if one.category is RuntimeWarning]
        assert len(said) == 1 and "not in the run's model: they stay" in said[0] and "(head.weight)" in said[0], said
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for given in fluvial.evaluations("second", socket=small.evaluation_socket):
            given.load_into(whole)
            given.load_into(whole)
            break
    assert len([one for one in told if one.category is RuntimeWarning]) == 1


class Untouchable:
    """What is left out: neither copied nor looked into."""

    shape, dtype = (1 << 40,), np.dtype(np.float32)

    def __array__(self, *_, **__):
        raise AssertionError("somebody looked at it")


def test_what_is_left_out_may_be_anything(tmp_path):
    path = str(tmp_path / "some")
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    others = {
        "huge": Untouchable(),
        "complex": torch.ones(3, dtype=torch.complex64),
        "quantised": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "sparse": torch.eye(3).to_sparse(),
        "meta": torch.ones(3, device="meta"),
        "unsigned": np.ones(3, np.uint16),
        "none._extra_state": None,
        "dict._extra_state": {"scale": 1},
    }
    for only in (["w"], ["!" + name for name in others]):
        fluvial.save_model(path, {"w": torch.ones(2), **others}, only=only)
        assert list(fluvial.load_model(path)) == ["w"] and fluvial.model_metadata(path)["fluvial.left_out"] == str(len(others))
    for name, other in others.items():
        if name != "huge":
            with pytest.raises(fluvial.ModelMismatch, match=f"{name}.* leave (it )?out.*only="):
                fluvial.save_model(path, {"w": torch.ones(2), name: other})


def test_a_module_with_other_things_is_loaded_and_handed_over_by_only(small):
    torch = pytest.importorskip("torch", reason="needs PyTorch")

    class Extra(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)
            self.register_buffer("freqs", torch.ones(3, dtype=torch.complex64))
            self.register_buffer("base", torch.ones(3, device="meta"))
            self.register_buffer("adjacency", torch.eye(3).to_sparse())

        def get_extra_state(self):
            return {"scale": 1}

        def set_extra_state(self, state):
            pass

    model, only = Extra(), ["linear.*"]
    small.start_run("beside", model, only=only, rounds=1)
    for round in small.connect(0).rounds("beside"):
        round.load_into(model, only=only)
        round.load_into(model)  # says nothing of what cannot travel anyway
        with torch.no_grad():
            model.linear.bias.fill_(4)
        round.submit(model, samples=1, only=only)
    small.wait("beside", timeout_s=60)
    assert small.model("beside")["linear.bias"].tolist() == [4, 4]


@pytest.mark.parametrize("only, there", [(["layers[0].w"], 1), (["layers[0].*"], 2), (["layers[?].w"], 2), (["a*b"], 1), ("layers[[]0].w", 0)])
def test_brackets_of_a_name_stand_for_themselves(tmp_path, only, there):
    model = {name: np.ones(1, np.float32) for name in ("layers[0].w", "layers[0].b", "layers[1].w", "a*b")}
    path = str(tmp_path / "model")
    if there:
        fluvial.save_model(path, model, only=only)
        assert len(fluvial.load_model(path)) == there
    else:
        with pytest.raises(fluvial.ModelMismatch, match="fits no tensor"):
            fluvial.save_model(path, model, only=only)
