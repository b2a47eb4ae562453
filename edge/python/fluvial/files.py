"""Model files (safetensors, docs/formats/model.md): what a run starts from, and what it commits."""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import struct
from typing import Any, BinaryIO, Dict, List, Mapping, NamedTuple, Optional, Set, Tuple

import numpy as np

from . import models
from .errors import ModelMismatch, ProtocolError
from .schema import dtype_name, dtype_of
from .selection import Only, patterns_of

_HEADER_BYTES_MAX = 16 << 20  # the coordinator's
_READ_AS_FP32 = {"F16": np.dtype("<f2"), "BF16": np.dtype("<u2"), "F64": np.dtype("<f8")}


def made_anew(path: str, mode: int = 0o666) -> BinaryIO:
    """A new file to write, of this user. What had the name goes: nothing is written through another user's link."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode), "wb")


def save_model(path: str, model: Any, metadata: Optional[Mapping[str, str]] = None, *, only: Only = None) -> None:
    """Writes a model (a torch module, a state dict, a mapping of arrays) as a file a run can start from.

    The file appears whole or not at all.

    only: names or patterns of the tensors that travel (fluvial/selection.py): adapters, say. The file has these alone and says
    so in its metadata, as "fluvial.only" and "fluvial.left_out" (how many it is without). What is left out may be anything:
    quantised, sparse, on the device meta, no tensor at all.
    """
    tensors, left_out = models.selected(model, only)
    if only is not None:
        said = {"fluvial.only": json.dumps(patterns_of(only)), "fluvial.left_out": str(left_out)}
        metadata = {**said, **(metadata or {})}
    travel = {name: (models.travels_as(name, tensor), tuple(np.shape(tensor))) for name, tensor in tensors.items()}
    if not any(dtype.kind == "f" and math.prod(shape) for dtype, shape in travel.values()):
        raise ModelMismatch("a model needs at least one floating-point tensor: there is nothing here to train")
    header: Dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, (dtype, shape) in travel.items():
        end = offset + dtype.itemsize * math.prod(shape)
        header[name] = {"dtype": dtype_name(dtype), "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _HEADER_BYTES_MAX:
        raise ModelMismatch(_too_long(f"{len(tensors)} tensors", len(text)))
    temporary = f"{path}.tmp"
    with made_anew(temporary) as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in tensors.items():  # one converted at a time
            array = models.as_travelling(name, tensor)
            out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    os.replace(temporary, path)


def model_metadata(path: str) -> Dict[str, str]:
    """What a model file says of itself; of one with some tensors only, which ("fluvial.only", a JSON list of patterns)."""
    with open(path, "rb") as file:
        return dict(_header(path, file).get("__metadata__", {}))


def load_model(path: str) -> Dict[str, np.ndarray]:
    """The tensors of a model file by name, in the order of their data; those of F16, BF16 and F64 as fp32.

    path: a safetensors file, or the index of one in shards (model.safetensors.index.json), which are in its folder.

    ModelMismatch: a tensor of a dtype that is not known here. ValueError: a file or an index that is none. FileNotFoundError: a
    shard is missing.
    """
    return {name: tensor.read() for name, tensor in stored_tensors(path).items()}


class StoredTensor(NamedTuple):
    """A tensor in a file, of which nothing is read yet. numpy reads it, as anything with __array__."""

    path: str
    name: str
    written_as: str
    shape: Tuple[int, ...]
    offset: int  # in the file

    @property
    def dtype(self) -> np.dtype:
        """That it has once it is read."""
        return np.dtype(np.float32) if self.written_as in _READ_AS_FP32 else dtype_of(self.written_as)

    def read(self) -> np.ndarray:
        dtype = _READ_AS_FP32.get(self.written_as, self.dtype)
        values = np.fromfile(self.path, dtype, math.prod(self.shape), offset=self.offset)
        if values.size != math.prod(self.shape):
            raise ValueError(f"{self.path}: it ended within tensor {self.name}")
        if self.written_as == "BF16":  # the upper half of an fp32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):
            return values.astype(self.dtype, copy=False).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray:
        return self.read() if dtype is None else self.read().astype(dtype)


def stored_tensors(path: str) -> Dict[str, StoredTensor]:
    """What load_model() reads, unread: shard after shard, by their names."""
    if not is_index(path):
        return _stored(path)
    tensors: Dict[str, StoredTensor] = {}
    for file, names in sorted(_index(path).items()):
        shard = os.path.join(os.path.dirname(path), file)
        if not os.path.isfile(shard):
            raise FileNotFoundError(f"{path}: its shard {file} is not in that folder")
        found = _stored(shard)
        wrong = sorted(names.symmetric_difference(found))
        if wrong:
            why = "is not in it" if wrong[0] in names else "is in it as well, and the index does not say so"
            raise ValueError(f"{path}: shard {file}: tensor {wrong[0]} {why}")
        tensors.update(found)
    return tensors


def is_index(path: str) -> bool:
    return path.endswith(".json")


def _index(path: str) -> Dict[str, Set[str]]:
    """The names of each shard's tensors. ValueError for what is no index, or leads out of its folder."""
    with open(path, "rb") as file:
        text = file.read(_HEADER_BYTES_MAX + 1)
    try:
        if len(text) > _HEADER_BYTES_MAX:
            raise ValueError(f"it is longer than {_HEADER_BYTES_MAX} bytes")
        weights = json.loads(text, object_pairs_hook=_without_repeats).get("weight_map")
        if not isinstance(weights, dict):
            raise ValueError("expected an object with a weight_map, from each tensor's name to its shard's")
        shards: Dict[str, Set[str]] = {}
        for name, shard in weights.items():
            if not isinstance(shard, str) or os.path.basename(shard) != shard or not shard.endswith(".safetensors"):
                raise ValueError(f"tensor {name} is in {shard!r}, expected the name of a .safetensors file in the index's folder")
            shards.setdefault(shard, set()).add(name)
    except (ValueError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} is no index of a model's shards: {str(error)[:300]}") from None
    return shards


def _without_repeats(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError(f"{next(name for name, count in collections.Counter(name for name, _ in pairs).items() if count > 1)} is there twice")
    return made


def _stored(path: str) -> Dict[str, StoredTensor]:
    with open(path, "rb") as file:
        header = _header(path, file)
        begins, size = file.tell(), os.fstat(file.fileno()).st_size
    header.pop("__metadata__", None)
    tensors = {}
    try:
        entries = sorted(
            (int(about["data_offsets"][0]), int(about["data_offsets"][1]), name, tuple(map(int, about["shape"])), str(about["dtype"]))
            for name, about in header.items()
        )
    except (KeyError, TypeError, ValueError, IndexError):
        raise ValueError(f"{path}: expected dtype, shape and data_offsets of each tensor in its header") from None
    for begin, end, name, shape, written_as in entries:
        dtype = _dtype_in_file(path, name, written_as)
        if not 0 <= begin <= end <= size - begins or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{path}: tensor {name} does not fit the file")
        tensors[name] = StoredTensor(path, name, written_as, shape, begins + begin)
    return tensors


def _dtype_in_file(path: str, name: str, dtype: str) -> np.dtype:
    """In which numpy reads a tensor's bytes."""
    if dtype in _READ_AS_FP32:
        return _READ_AS_FP32[dtype]
    try:
        return dtype_of(dtype)
    except ProtocolError:
        raise ModelMismatch(
            f"{path}: tensor {name} has dtype {dtype}; what is read is F32, F16, BF16, F64 and counters (I8 to I64, U8, BOOL)"
        ) from None


def _too_long(what: str, header_bytes: int) -> str:
    return (
        f"{what}: their names and shapes take {header_bytes} bytes of a model file's header, of at most {_HEADER_BYTES_MAX}; "
        "give the tensors shorter names, or leave some of them out (only=...)"
    )


def _header(path: str, file: Any) -> Dict[str, Any]:
    size = os.fstat(file.fileno()).st_size
    head = file.read(8)
    length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
    if _HEADER_BYTES_MAX < length <= size - 8:
        raise ValueError(_too_long(path, length))
    if not 2 <= length <= size - 8:
        raise ValueError(f"{path} is no model file: its header would have {length} bytes")
    return json.loads(file.read(length), object_pairs_hook=_without_repeats)
