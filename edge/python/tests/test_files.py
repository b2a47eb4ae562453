"""Model files of others: half precision, shards with an index, files that are none."""

import json
import struct

import numpy as np
import pytest

import fluvial

VALUES = {"a": np.array([[1.5, -2.25], [0.5, 8]], np.float32), "b": np.array([3, 0.125, -1], np.float32)}
WIDTHS = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}


def encoded(values, dtype):
    if dtype == "BF16":  # of these values the upper half is all
        return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
    return values.astype(WIDTHS.get(dtype, dtype)).tobytes()


def write(path, tensors):
    """tensors: name, dtype in the file, values."""
    header, data = {}, b""
    for name, dtype, values in tensors:
        bytes_ = encoded(values, dtype) if dtype in ("BF16", *WIDTHS) else values.tobytes()
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return str(path)


def sharded(folder, weight_map=None, shards=None):
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    for name, tensors in (shards or {one: [("a", "BF16", VALUES["a"])], two: [("n", "I64", np.array([7])), ("b", "F16", VALUES["b"])]}).items():
        write(folder / name, tensors)
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map or {"b": two, "a": one, "n": two}}))
    return str(path)


def test_a_model_in_shards_is_read_by_its_index(tmp_path):
    read = fluvial.load_model(sharded(tmp_path))
    assert list(read) == ["a", "n", "b"] and read["n"].tolist() == [7]
    for name, values in VALUES.items():
        assert read[name].dtype == np.float32 and np.array_equal(read[name], values)


@pytest.mark.parametrize(
    "weight_map, what",
    [
        ({"a": "../model.safetensors"}, "tensor a is in '../model.safetensors', expected the name of a .safetensors file"),
        ({"a": "/etc/model.safetensors"}, "expected the name of a .safetensors file"),
        ({"a": "pytorch_model.bin"}, "expected the name of a .safetensors file"),
        ({"a": 3}, "expected the name of a .safetensors file"),
        ({"a": "elsewhere.safetensors"}, "its shard elsewhere.safetensors is not in that folder"),
        ({"a": "model-00001-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}, "tensor c is not in it"),
        ({"n": "model-00002-of-00002.safetensors"}, "tensor b is in it as well, and the index does not say so"),
        (["a"], "expected an object with a weight_map"),
    ],
)
def test_an_index_that_is_wrong_says_what(tmp_path, weight_map, what):
    path = sharded(tmp_path, weight_map)
    with pytest.raises((ValueError, FileNotFoundError), match=what):
        fluvial.load_model(path)


def test_names_twice_and_headers_that_are_none(tmp_path):
    path = tmp_path / "model.safetensors.index.json"
    path.write_text('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}')
    with pytest.raises(ValueError, match="a is there twice"):
        fluvial.load_model(str(path))
    for header in (b'{"a":{"dtype":"F32"}}', b'{"a":3}', b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}'):
        (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        with pytest.raises(ValueError, match="expected dtype, shape and data_offsets"):
            fluvial.load_model(str(tmp_path / "x.safetensors"))


@pytest.fixture(scope="module")
def local():
    with fluvial.testing.LocalFederation(sites=1) as federation:
        yield federation


def begun_from(local, name, **start):
    """The model that a run's sites are given, trained on by nobody."""
    local.start_run(name, rounds=1, codec="fp32", **start)
    with local.connect(0) as site:
        for round in site.rounds(name):
            given = {tensor: array.copy() for tensor, array in round.arrays().items()}
            round.submit(given, samples=1)
    local.wait(name, timeout_s=60)
    return given


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F64"])
def test_a_run_begins_from_a_file_in_any_precision(local, tmp_path, dtype):
    path = write(tmp_path / "hub.safetensors", [("a", dtype, VALUES["a"]), ("n", "I64", np.array([7])), ("b", "F32", VALUES["b"])])
    given = begun_from(local, f"precision-{dtype}", model=path)
    assert list(given) == ["a", "n", "b"] and given["n"].tolist() == [7]
    for name, values in VALUES.items():
        assert np.array_equal(given[name], values)


def test_a_run_begins_from_shards_and_from_some_of_their_tensors(local, tmp_path):
    path = sharded(tmp_path)
    given = begun_from(local, "shards", model=path)
    assert sorted(given) == ["a", "b", "n"] and np.array_equal(given["a"], VALUES["a"])
    given = begun_from(local, "adapters", model=path, only=["b"])
    assert list(given) == ["b"] and np.array_equal(given["b"], VALUES["b"])


@pytest.mark.parametrize(
    "extra, what",
    [
        (np.triu(np.full((3, 3), -np.inf, np.float32), 1), "tensor 'mask', value 1 is -inf"),
        (np.array([1, np.nan], np.float32), "tensor 'mask', value 1 is nan"),
        (np.array([1e300]), "tensor 'mask', value 0 is inf"),
        (np.zeros((1, 1, 1024, 1024), bool), r"more than 2\^19 integer values at tensor 'mask'"),
    ],
)
def test_constants_that_cannot_travel_are_refused_at_the_start_with_what_to_do(local, extra, what):
    with pytest.raises(fluvial.errors.FederationFailed, match=f"{what}.*only="):
        local.start_run("constants", {"w": np.zeros(2, np.float32), "mask": extra}, rounds=1)
