"""The tensors of a run's model: names, dtypes and shapes, in the order in which their bytes stand."""

from __future__ import annotations

import bisect
import dataclasses
import math
from typing import Dict, Iterable, Iterator, List, Tuple

import numpy as np

from .errors import ProtocolError

# As safetensors names them. F32 is averaged; the others are counters, of which the federation takes the maximum.
_DTYPES: Dict[str, np.dtype] = {
    "F32": np.dtype("<f4"),
    "I8": np.dtype("i1"),
    "I16": np.dtype("<i2"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}


def dtype_name(dtype: np.dtype) -> str:
    """What a model file calls a numpy dtype. KeyError when it has no name for it."""
    for name, known in _DTYPES.items():
        if known == dtype:
            return name
    raise KeyError(str(dtype))


def dtype_of(name: str) -> np.dtype:
    """The numpy dtype of a model file's; ProtocolError for one this version of the package does not know."""
    if name not in _DTYPES:
        raise ProtocolError(f"tensors of dtype {name} are not known to this version of the package")
    return _DTYPES[name]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor: `offset` is where its bytes begin in the model."""

    name: str
    dtype: np.dtype
    shape: Tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def averaged(self) -> bool:
        """Whether it is trained; otherwise it is a counter, of which the greatest among the sites is kept."""
        return self.dtype == _DTYPES["F32"]


class Schema:
    """The model's tensors, by name and in order. Iterating gives the tensors."""

    def __init__(self, tensors: Iterable[Tuple[str, str, Tuple[int, ...]]]) -> None:
        self._tensors: Dict[str, Tensor] = {}
        self._places: Dict[str, slice] = {}  # of averaged tensors in the flat vector
        offset = 0
        self._averaged: List[Tensor] = []  # that have values, and where these begin in the flat vector
        self._firsts: List[int] = []
        self.values = 0  # that are averaged: the length of the flat vector
        # Where they stand: (first value, its byte, values), one for each stretch without a counter in between.
        self._stretches: List[Tuple[int, int, int]] = []
        for name, dtype, shape in tensors:
            tensor = Tensor(name, dtype_of(dtype), tuple(int(length) for length in shape), offset)
            self._tensors[name] = tensor
            if tensor.averaged:
                self._places[name] = slice(self.values, self.values + tensor.size)
            if tensor.averaged and tensor.size:
                self._averaged.append(tensor)
                self._firsts.append(self.values)
                if self._stretches and self._stretches[-1][1] + 4 * self._stretches[-1][2] == offset:
                    first, byte, count = self._stretches.pop()
                    self._stretches.append((first, byte, count + tensor.size))
                else:
                    self._stretches.append((self.values, offset, tensor.size))
                self.values += tensor.size
            offset += tensor.nbytes
        self.nbytes = offset
        self._starts = [start for start, _, _ in self._stretches]
        self._counters = [tensor for tensor in self if not tensor.averaged and tensor.nbytes]
        self._counted = [tensor.offset for tensor in self._counters]

    @classmethod
    def from_message(cls, message) -> "Schema":
        return cls((tensor.name, tensor.dtype, tuple(tensor.shape)) for tensor in message.tensors)

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self._tensors.values())

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def views(self, data: np.ndarray) -> Dict[str, np.ndarray]:
        """The tensors as arrays over a model's bytes, without a copy.

        Tensors stand without padding, so one behind a counter of odd length may begin at any byte; numpy reads such an
        array too, only more slowly.
        """
        return {
            tensor.name: np.ndarray(tensor.shape, tensor.dtype, buffer=data, offset=tensor.offset)
            if tensor.nbytes
            else np.empty(tensor.shape, tensor.dtype)
            for tensor in self
        }

    def flat(self, data: np.ndarray) -> np.ndarray:
        """What is averaged, as one fp32 vector over a model's bytes; a copy when counters stand in between."""
        parts = [part for _, part in self.flat_parts(data, 0, self.values)]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.float32), *parts])

    def flat_parts(self, data: np.ndarray, first: int, count: int) -> Iterator[Tuple[int, np.ndarray]]:
        """Values `first` to `first + count` of the flat vector as arrays, each with its first value's place."""
        for start, byte, length in self._stretches:
            begin, end = max(first, start), min(first + count, start + length)
            if begin < end:
                offset = byte + 4 * (begin - start)
                yield begin, np.ndarray((end - begin,), _DTYPES["F32"], buffer=data, offset=offset)

    def counters_within(self, begin: int, end: int) -> List[Tensor]:
        """The counters that begin between two bytes of the model."""
        return self._counters[bisect.bisect_left(self._counted, begin) : bisect.bisect_left(self._counted, end)]

    def flat_tensors(self, first: int, count: int) -> Iterator[Tuple[str, int, int]]:
        """The tensors with values among `first` to `first + count` of the flat vector: name, first of these values, how many."""
        for place in range(max(bisect.bisect_right(self._firsts, first) - 1, 0), len(self._firsts)):
            tensor, start = self._averaged[place], self._firsts[place]
            begin, end = max(first, start), min(first + count, start + tensor.size)
            if start >= first + count:
                return
            if begin < end:
                yield tensor.name, begin, end - begin

    def flat_place(self, name: str) -> slice:
        """Where an averaged tensor's values stand in the flat vector. KeyError for a name that is not one."""
        return self._places[name]

    def byte_of(self, value: int) -> int:
        """Where a share of the flat vector that begins with this value begins in the model's bytes.

        Counters belong to the share before them, those at the model's begin to the first: so shares that divide the
        flat vector divide the bytes, too.
        """
        if not 0 < value < self.values:
            return self.nbytes if value else 0
        start, byte, _ = self._stretches[bisect.bisect_right(self._starts, value) - 1]
        return byte + 4 * (value - start)
