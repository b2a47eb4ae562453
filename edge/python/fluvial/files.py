"""Model files (safetensors, docs/formats/model.md): what a run starts from, and what it commits."""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from typing import Any, BinaryIO, Dict, Mapping, Optional

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
    so in its metadata, as "fluvial.only" and "fluvial.left_out" (how many it is without).
    """
    arrays = models.to_arrays(model, only)
    if only is not None:
        left_out = len(models.to_arrays(model)) - len(arrays)
        said = {"fluvial.only": json.dumps(patterns_of(only)), "fluvial.left_out": str(left_out)}
        metadata = {**said, **(metadata or {})}
    if not any(array.dtype.kind == "f" and array.size for array in arrays.values()):
        raise ModelMismatch("a model needs at least one floating-point tensor: there is nothing here to train")
    header: Dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    offset = 0
    for name, array in arrays.items():
        header[name] = {
            "dtype": dtype_name(array.dtype),
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _HEADER_BYTES_MAX:
        raise ModelMismatch(_too_long(f"{len(arrays)} tensors", len(text)))
    temporary = f"{path}.tmp"
    with made_anew(temporary) as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            out.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    os.replace(temporary, path)


def model_metadata(path: str) -> Dict[str, str]:
    """What a model file says of itself; of one with some tensors only, which ("fluvial.only", a JSON list of patterns)."""
    with open(path, "rb") as file:
        return dict(_header(path, file).get("__metadata__", {}))


def load_model(path: str) -> Dict[str, np.ndarray]:
    """The tensors of a model file by name, in the order of their data; those of F16, BF16 and F64 as fp32.

    ModelMismatch: a tensor of a dtype that is not known here.
    """
    with open(path, "rb") as file:
        header = _header(path, file)
        data = np.fromfile(file, np.uint8)
    header.pop("__metadata__", None)
    arrays = {}
    for name, about in sorted(header.items(), key=lambda entry: entry[1]["data_offsets"]):
        begin, end = about["data_offsets"]
        dtype = _dtype_in_file(path, name, about["dtype"])
        shape = tuple(about["shape"])
        if not 0 <= begin <= end <= data.size or end - begin != math.prod(shape) * dtype.itemsize:
            raise ValueError(f"{path}: tensor {name} does not fit the file")
        values = data[begin:end].view(dtype) if end > begin else np.empty(0, dtype)
        if about["dtype"] == "BF16":  # the upper half of an fp32
            values = (values.astype(np.uint32) << 16).view(np.float32)
        arrays[name] = (values.astype(np.float32) if about["dtype"] in _READ_AS_FP32 else values).reshape(shape)
    return arrays


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
    return json.loads(file.read(length))
