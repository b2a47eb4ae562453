"""What becomes of dtypes, shapes, names and shared storage on the way to a run and back."""

import json
import os
import struct
import warnings

import numpy as np
import pytest

import fluvial
from fluvial import models
from fluvial.schema import Schema, dtype_name


def schema_of(arrays):
    return Schema((name, dtype_name(array.dtype), array.shape) for name, array in arrays.items())


def write(views, source, schema):
    for tensor, given in models.fitting(source, list(schema)):
        models.write_tensor(views[tensor.name], given)


def round_trip(source, target):
    """What `target` holds after it was loaded with `source`."""
    arrays = models.to_arrays(source)
    schema = schema_of(arrays)
    data = np.empty(schema.nbytes, np.uint8)
    write(schema.views(data), source, schema)
    models.load_into(target, schema, schema.views(data))
    return target


def test_arrays_travel_bit_for_bit():
    rng = np.random.default_rng(1)
    source = {
        "w": rng.standard_normal((3, 5)).astype(np.float32),
        "flag": np.array([True, False, True]),
        "steps": np.array(2**62, np.int64),
        "small": np.arange(-3, 3, dtype=np.int8),
        "scalar": np.float32(1.5) * np.ones((), np.float32),
        "none": np.empty((0, 4), np.float32),
    }
    target = round_trip(source, {name: np.zeros_like(array) for name, array in source.items()})
    for name, array in source.items():
        assert target[name].dtype == array.dtype and target[name].tobytes() == array.tobytes(), name


def test_floats_travel_as_fp32_and_come_back_as_they_were():
    source = {"half": np.array([1.5, -2.25], np.float16), "double": np.array([0.1, 1e-3])}
    assert {name: array.dtype for name, array in models.to_arrays(source).items()} == {
        "half": np.float32,
        "double": np.float32,
    }
    target = round_trip(source, {"half": np.zeros(2, np.float16), "double": np.zeros(2)})
    assert target["half"].tolist() == [1.5, -2.25]
    assert target["double"].tolist() == [float(np.float32(0.1)), float(np.float32(1e-3))]


def test_not_contiguous_and_other_byte_orders():
    source = {"w": np.arange(12, dtype=">f4").reshape(3, 4).T}
    target = round_trip(source, {"w": np.zeros((4, 3), np.float32)})
    assert np.array_equal(target["w"], source["w"])


def test_one_storage_under_two_names_travels_once():
    w = np.ones(4, np.float32)
    assert list(models.to_arrays({"encoder": w, "decoder": w, "copy": w.copy()})) == ["encoder", "copy"]


def test_order_of_names_does_not_matter():
    schema = schema_of({"a": np.zeros(2, np.float32), "b": np.zeros(1, np.float32)})
    data = np.empty(3, np.float32)
    write(schema.views(data), {"b": np.array([3.0]), "a": np.array([1.0, 2.0]), "unused": np.zeros(9)}, schema)
    assert data.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "model, message",
    [
        ({"a": np.zeros(2, np.float32)}, "1 are not in this one: b"),
        ({"a": np.zeros(2, np.float32), "b": np.zeros((1, 1), np.float32)}, r"shape \[1, 1\]; in the run it is \[1\]"),
        ({"a": np.zeros(2, np.int64), "b": np.zeros(1, np.float32)}, "dtype int64; in the run it is float32"),
        ({"a": np.zeros(2, complex), "b": np.zeros(1, np.float32)}, "complex128"),
    ],
)
def test_what_does_not_fit_is_named(model, message):
    schema = schema_of({"a": np.zeros(2, np.float32), "b": np.zeros(1, np.float32)})
    with pytest.raises(fluvial.ModelMismatch, match=message):
        models.fitting(model, list(schema))


def test_what_is_no_model_is_said_so():
    with pytest.raises(TypeError, match="this is a list"):
        models.to_arrays([1, 2])
    with pytest.raises(fluvial.ModelMismatch, match="uint32"):
        models.to_arrays({"w": np.zeros(1, np.uint32)})
    with pytest.raises(fluvial.ModelMismatch, match="nothing here to train"):
        fluvial.save_model("/nonexistent/never-written", {"n": np.zeros(1, np.int64)})


def test_files(tmp_path):
    path = str(tmp_path / "model.safetensors")
    model = {"z": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.array([7], np.int32), "e": np.empty(0, np.float32)}
    fluvial.save_model(path, model, {"by": "a test"})
    loaded = fluvial.load_model(path)
    assert set(loaded) == set(model)
    for name, array in model.items():
        assert loaded[name].dtype == array.dtype and np.array_equal(loaded[name], array)
    whole = (tmp_path / "model.safetensors").read_bytes()
    for size in (0, 7, 20, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:size])
        with pytest.raises(ValueError):
            fluvial.load_model(str(tmp_path / "cut"))


def test_a_file_is_never_written_through_a_link(tmp_path):
    path, other = tmp_path / "model.safetensors", tmp_path / "of-another"
    for make in (os.symlink, os.link):
        other.write_text("theirs")
        make(other, f"{path}.tmp")
        fluvial.save_model(str(path), {"w": np.ones(1, np.float32)})
        assert other.read_text() == "theirs"
        assert fluvial.load_model(str(path))["w"].tolist() == [1]


class Immutable:
    """What the package sees of a JAX array: shape, dtype, and numpy's way to its values. A stand-in, not JAX."""

    def __init__(self, values, dtype=np.float32):
        self._values = np.array(values, dtype)

    shape = property(lambda self: self._values.shape)
    dtype = property(lambda self: self._values.dtype)

    def __array__(self, dtype=None, copy=None):
        return self._values.astype(dtype or self._values.dtype)


def test_arrays_of_a_kind_that_only_numpy_can_read():
    source = {"w": Immutable([[1, 2], [3, 4]], np.float16), "n": Immutable([5], np.int32)}
    assert {name: array.dtype for name, array in models.to_arrays(source).items()} == {"w": np.float32, "n": np.int32}
    target = round_trip(source, {"w": np.zeros((2, 2)), "n": np.zeros(1, np.int32)})
    assert target["w"].tolist() == [[1, 2], [3, 4]] and target["n"].tolist() == [5]
    assert {name: array.shape for name, array in fluvial.zeros_like(source).items()} == {"w": (2, 2)}
    assert fluvial.zeros_like(Immutable([1, 2]))["value"].tolist() == [0, 0]
    with pytest.raises(TypeError, match="round.arrays"):
        models.load_arrays(source, models.to_arrays(source))
    with pytest.raises(fluvial.ModelMismatch, match="complex64"):
        models.fitting({"w": Immutable([1j], np.complex64)}, list(schema_of({"w": np.zeros(1, np.float32)})))


def test_arrays_of_a_kind_that_numpy_has_to_ask_for():
    """As CuPy's: they refuse to become numpy's by themselves."""

    class OnRequest(Immutable):
        def __array__(self, dtype=None, copy=None):
            raise TypeError("Implicit conversion to a NumPy array is not allowed.")

        def get(self):
            return self._values

    source = {"w": OnRequest([1, 2], np.float64)}
    assert models.to_arrays(source)["w"].tolist() == [1, 2]
    assert round_trip(source, {"w": np.zeros(2)})["w"].tolist() == [1, 2]


def named(model):
    return {name: np.full(shape, 7, np.float32) for name, shape in model.items()}


@pytest.mark.parametrize(
    "here, run, message",
    [
        ("module.", "", r"pass model\.module$"),
        ("_orig_mod.", "", r"pass model\._orig_mod$"),
        ("module._orig_mod.", "", r"pass model\.module\._orig_mod$"),
        ("", "module.", r"start it from model\.module$"),
        ("other.", "", r"not in this one: 0\.weight, 0\.bias$"),
    ],
)
def test_a_model_in_a_wrapper_is_told_from_another_model(here, run, message):
    shapes = {"0.weight": (2, 3), "0.bias": (3,)}
    run_model = named({run + name: shape for name, shape in shapes.items()})
    model = named({here + name: shape for name, shape in shapes.items()})
    with pytest.raises(fluvial.ModelMismatch, match=message):
        models.fitting(model, list(schema_of(run_model)))
    with pytest.raises(fluvial.ModelMismatch, match=message):
        fluvial.load_arrays(model, run_model)


def test_named_arrays_of_any_floating_point_dtype_are_loaded():
    target = {"half": np.zeros(2, np.float32), "double": np.zeros(2, np.float32), "n": np.zeros(1, np.int64)}
    fluvial.load_arrays(target, {"half": np.ones(2, np.float16), "double": np.full(2, 0.1), "n": np.array([3], np.int64)})
    assert target["half"].tolist() == [1, 1] and target["double"].tolist() == [np.float32(0.1)] * 2 and target["n"].tolist() == [3]


def test_a_number_is_not_cut_to_a_whole_one():
    target = {"v": np.zeros(2, np.float32), "w": np.zeros(2, np.int64)}
    with pytest.raises(fluvial.ModelMismatch, match="tensor w has dtype int64 here, and float32 in the run"):
        fluvial.load_arrays(target, {"v": np.ones(2), "w": np.full(2, 0.9)})
    assert target["v"].tolist() == [0, 0], "all of it or nothing"


def test_a_checkpoint_is_not_a_model(tmp_path):
    model = {"w": np.zeros(2, np.float32)}
    checkpoint = {"epoch": 3, "optimizer": {"state": {}}, "model": model}
    for use in (
        lambda: fluvial.save_model(str(tmp_path / "never"), checkpoint),
        lambda: fluvial.load_arrays(model, checkpoint),
        lambda: fluvial.load_arrays(checkpoint, model),
        lambda: models.fitting(checkpoint, list(schema_of(model))),
    ):
        with pytest.raises(fluvial.ModelMismatch, match=r"pass the model alone, checkpoint\['model'\]"):
            use()


def test_what_the_run_does_not_have_is_said_to_stay():
    w = np.zeros((2, 3), np.float32)
    target = {"w": w, "tied": w.T, "part": w[1:], "copy": w.copy(), "steps": np.zeros(1, np.int64), "name": "mine"}
    with pytest.warns(RuntimeWarning, match=r"^1 floating-point tensors are not in .* stay as they are here.* only=.*\(copy\)") as told:
        fluvial.load_arrays(target, {"w": np.ones((2, 3), np.float32)})
    assert len(told) == 1 and told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fluvial.load_arrays(target, {"w": np.ones((2, 3), np.float32)}, only="w")


def stored(path, dtype, shape, data):
    text = json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(path)


def test_files_of_other_floating_point_dtypes_are_read_as_fp32(tmp_path):
    path, values = tmp_path / "model", np.array([1.5, -2.25, 2**-20], np.float32)
    brain = (values.view(np.uint32) >> 16).astype("<u2")
    for dtype, data in (("F16", values.astype("<f2")), ("F64", values.astype("<f8")), ("BF16", brain)):
        loaded = fluvial.load_model(stored(path, dtype, [3], data.tobytes()))["w"]
        assert loaded.dtype == np.float32 and loaded.tolist() == pytest.approx([1.5, -2.25, 2**-20], rel=0.05), dtype
    scalar = fluvial.load_model(stored(path, "BF16", [], brain[:1].tobytes()))["w"]
    assert isinstance(scalar, np.ndarray) and scalar.shape == () and scalar == 1.5
    assert fluvial.load_model(stored(path, "BF16", [0, 4], b""))["w"].shape == (0, 4)
    with pytest.raises(fluvial.ModelMismatch, match=f"{path}: tensor w has dtype F8_E4M3"):
        fluvial.load_model(stored(path, "F8_E4M3", [3], b"abc"))
