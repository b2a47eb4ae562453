"""Pieces of a model that one process of several hands over: where they stand in the model's bytes."""

from __future__ import annotations

import math
from typing import Any, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import _messages
from .errors import ModelMismatch
from .schema import Schema, Tensor

RANGES_MAX = 1 << 20  # of one rank's answer, that do not touch
_RANGES_PER_MESSAGE = 3_000  # of at most 20 bytes: below 64 KiB


class Piece(NamedTuple):
    """A box of a tensor, or a stretch of its values."""

    tensor: Tensor
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]  # in bytes
    offset: int  # of its first value

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def view(self, data: np.ndarray) -> np.ndarray:
        """It, as an array over a model's bytes, without a copy."""
        if not self.size:
            return np.empty(self.shape, self.tensor.dtype)
        return np.ndarray(self.shape, self.tensor.dtype, buffer=data, offset=self.offset, strides=self.strides)

    def runs(self) -> Tuple[np.ndarray, int]:
        """The first byte of each contiguous run in it, in order, and the bytes of each."""
        run, dimensions = self.tensor.dtype.itemsize, len(self.shape)
        while dimensions and (self.shape[dimensions - 1] == 1 or self.strides[dimensions - 1] == run):
            dimensions -= 1
            run *= self.shape[dimensions]
        starts = np.array([self.offset], np.int64)
        for length, stride in zip(self.shape[:dimensions], self.strides[:dimensions]):
            starts = np.add.outer(starts, np.arange(length, dtype=np.int64) * stride).reshape(-1)
        return (starts, run) if self.size else (starts[:0], 0)


class Given(NamedTuple):
    """What is handed over for a piece."""

    piece: Piece
    values: Any  # of the piece's shape
    trained: Any  # the tensor that these are of, as it was trained


def box_of(tensor: Tensor, begin: Sequence[int], end: Sequence[int]) -> Piece:
    """Of a tensor what lies within begin and end in each dimension."""
    strides = [tensor.dtype.itemsize * math.prod(tensor.shape[d + 1 :]) for d in range(len(tensor.shape))]
    offset = tensor.offset + sum(first * stride for first, stride in zip(begin, strides))
    return Piece(tensor, tuple(last - first for first, last in zip(begin, end)), tuple(strides), offset)


def whole(tensor: Tensor) -> Piece:
    return box_of(tensor, [0] * len(tensor.shape), tensor.shape)


def of_share(schema: Schema, first: int, count: int) -> Iterator[Tuple[Piece, Optional[slice]]]:
    """A share of the flat vector, with each piece's place in it; None for the counters that stand among its values."""
    for name, begin, length in schema.flat_tensors(first, count):
        tensor = schema[name]
        offset = tensor.offset + tensor.dtype.itemsize * (begin - schema.flat_place(name).start)
        yield Piece(tensor, (length,), (tensor.dtype.itemsize,), offset), slice(begin - first, begin - first + length)
    for counter in schema.counters_within(schema.byte_of(first), schema.byte_of(first + count)):
        yield whole(counter), None


def ranges_of(pieces: Iterable[Piece]) -> np.ndarray:
    """The pieces as ranges of bytes that do not touch: (first byte, bytes) each, in order.

    ModelMismatch: two pieces overlap, or there are more ranges than an agent takes.
    """
    runs = [(starts, run) for starts, run in (piece.runs() for piece in pieces) if len(starts)]
    if not runs:
        return np.empty((0, 2), np.int64)
    starts = np.concatenate([starts for starts, _ in runs])
    sizes = np.concatenate([np.full(len(starts), run, np.int64) for starts, run in runs])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], (starts + sizes)[order]
    overlap = np.flatnonzero(starts[1:] < ends[:-1])
    if overlap.size:
        raise ModelMismatch(f"byte {starts[overlap[0] + 1]} of the model is in two of the pieces that are handed over")
    gaps = np.flatnonzero(starts[1:] != ends[:-1])
    firsts, lasts = starts[np.append(0, gaps + 1)], ends[np.append(gaps, len(ends) - 1)]
    if len(firsts) > RANGES_MAX:
        raise ModelMismatch(
            f"what this rank hands over is {len(firsts):,} ranges of the model's bytes, of which an agent takes {RANGES_MAX:,}: "
            "cut large tensors along an earlier dimension (Shard(0)), or over more ranks"
        )
    return np.stack([firsts, lasts - firsts], axis=1)


def there(given: Iterable[Given], nbytes: int) -> Optional[np.ndarray]:
    """The ranges of what is given; None for all of the model."""
    ranges = ranges_of([one.piece for one in given])
    return ranges if int(ranges[:, 1].sum()) < nbytes else None


def covers(ranges: np.ndarray, others: np.ndarray) -> bool:
    """Whether each of the others is within one of the ranges."""
    if not len(ranges) or not len(others):
        return not len(others)
    at = np.searchsorted(ranges[:, 0], others[:, 0], side="right") - 1
    return bool(np.all((at >= 0) & (ranges[at].sum(axis=1) >= others.sum(axis=1))))


def messages_of(task: int, ranges: np.ndarray) -> Iterable[Any]:
    """What tells the agent that a rank answers for these ranges; for none, too."""
    ends = ranges.sum(axis=1)
    numbers = np.stack([ranges[:, 0] - np.append(0, ends[:-1])[: len(ends)], ranges[:, 1]], axis=1)
    for at in range(0, max(len(numbers), 1), _RANGES_PER_MESSAGE):
        message = _messages.LocalMessage()
        message.task_ranges.id = task
        message.task_ranges.numbers.extend(numbers[at : at + _RANGES_PER_MESSAGE].reshape(-1).tolist())
        yield message
