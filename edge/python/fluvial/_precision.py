"""What a worker trained from, where it loaded the global model in half precision.

A model that is loaded as bf16 or fp16 is the base rounded, so what is handed over is base + (trained - loaded). The trained
values themselves would bring the rounding error with them, and hide each step that is smaller. The base is rounded again, block
by block, when the model is handed over: no second model is kept.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import numpy as np

from . import models

Casts = Tuple[str, ...]  # the half-precision dtypes through which a base went before it was trained
_BLOCK_VALUES = 1 << 16  # stays in a processor's cache
_GPU_BLOCK_VALUES = 1 << 24


def dtype_of(tensor: Any) -> str:
    """The name of its dtype, the same in every framework: "bfloat16"."""
    dtype = getattr(tensor, "dtype", "float64")
    return getattr(dtype, "name", None) or str(dtype).rpartition(".")[2]


def is_half(dtype: str) -> bool:
    return dtype in ("float16", "bfloat16") or dtype.startswith("float8")


def casts_of(target: Any) -> Casts:
    """What a base goes through when it is loaded into this."""
    dtype = dtype_of(target)
    return (dtype,) if is_half(dtype) else ()


class Loads:
    """In which dtypes a round's tensors were loaded, by name."""

    def __init__(self) -> None:
        self._dtypes: Dict[str, Set[str]] = {}
        self._memory: Set[Any] = set()  # of what was loaded into
        self.unrounded = False  # whether the script has the base as it is, too: whatever it makes of that

    def note(self, targets: Mapping[str, Any]) -> None:
        """The model was copied into these."""
        for name, target in targets.items():
            self._dtypes.setdefault(name, set()).add(dtype_of(target))
            self._memory.add(_memory_of(target))

    def starts(self, name: str, trained: Any) -> List[Casts]:
        """Of which of these `trained` began: one, unless the round was loaded in several precisions, and this was cast from one."""
        own, memory = dtype_of(trained), _memory_of(trained)
        if memory is not None and memory in self._memory:
            return [casts_of(trained)]
        loaded = self._dtypes.get(name, set()) | ({"float32"} if self.unrounded else set())
        ways = ((start, own) for start in loaded or {own})
        return sorted({tuple(dtype for dtype in dict.fromkeys(way) if is_half(dtype)) for way in ways})


# Of the rounds' arrays that scripts were given: their memory, and where to note into what they are loaded.
_given_out: "weakref.WeakValueDictionary[int, Loads]" = weakref.WeakValueDictionary()


def give_out(arrays: Mapping[str, np.ndarray], loads: Loads) -> None:
    """A script has them: it may train from them unrounded, or load_arrays() them."""
    loads.unrounded = True
    _given_out.update({array.ctypes.data: loads for array in arrays.values()})


def note_arrays(arrays: Mapping[str, np.ndarray], targets: Mapping[str, Any]) -> None:
    """These arrays, perhaps a round's, were copied into these targets."""
    for name, array in arrays.items():
        loads = _given_out.get(array.ctypes.data)
        if loads is not None:
            loads.note({name: targets[name]})


def hand_over(trained: Any, base: np.ndarray, starts: Sequence[Casts], onto: Optional[np.ndarray] = None) -> None:
    """Makes `onto` + (trained - loaded) of `trained`, in place: `loaded` is `base` after the casts, `onto` is `base` if not given.

    trained: contiguous fp32, of numpy or torch. Where a value was not trained, the result is exactly that of `onto`, infinities
    and NaN too. Of several starts it takes the one that left most values as they are, and then the nearest.
    """
    if onto is None:
        onto = base
        if not any(starts):
            return
    values, begun, goal = trained.reshape(-1), base.reshape(-1), onto.reshape(-1)
    casts = starts[0] if len(starts) == 1 else min(starts, key=lambda casts: _change(values, begun, casts))
    if onto is base and not casts:
        return
    library = _library(values)
    with np.errstate(invalid="ignore", over="ignore"):
        for block in _blocks(values):
            now, loaded, there = values[block], rounded(_like(values, begun[block]), casts), _like(values, goal[block])
            moved = there + (now - loaded)
            if not library.isfinite(moved).all():
                same = (now == loaded) | (library.isnan(now) & library.isnan(loaded))
                moved = library.where(same, there, moved)
            values[block] = moved


def rounded(values: Any, casts: Casts) -> Any:
    """fp32 values as they are after these casts and back: what was loaded."""
    for cast in casts:
        if not isinstance(values, np.ndarray):
            values = values.to(getattr(_torch(), cast)).to(values.dtype)
        elif cast == "float16":
            with np.errstate(over="ignore"):
                values = values.astype(np.float16).astype(np.float32)
        elif cast == "bfloat16":
            bits = np.ascontiguousarray(values).view(np.uint32)
            nearest = ((bits + (0x7FFF + ((bits >> 16) & 1))) & 0xFFFF0000).view(np.float32)  # ties to even
            values = np.where(np.isnan(values), values, nearest) if np.isnan(values).any() else nearest
        else:  # only torch has others
            values = rounded(_torch().from_numpy(values), (cast,)).numpy()
    return values


def _change(values: Any, base: np.ndarray, casts: Casts) -> Tuple[int, float]:
    """How many values are others than they would have begun as, and the squared distance."""
    changed, distance = 0, 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for block in _blocks(values):
            moved = values[block] - rounded(_like(values, base[block]), casts)
            changed += int((moved != 0).sum())
            distance += float(_library(values).nansum(moved * moved))
    return changed, distance


def _blocks(values: Any) -> List[slice]:
    step = _BLOCK_VALUES if isinstance(values, np.ndarray) else _GPU_BLOCK_VALUES
    return [slice(first, first + step) for first in range(0, len(values), step)]


def _like(values: Any, block: np.ndarray) -> Any:
    """A copy, where `values` are."""
    copied = np.array(block)
    return copied if isinstance(values, np.ndarray) else _torch().from_numpy(copied).to(values.device)


def _memory_of(tensor: Any) -> Any:
    try:
        return models._storage_key(tensor)
    except RuntimeError:  # torch's, where a tensor has no memory that this process sees
        return None


def _library(values: Any) -> Any:
    return np if isinstance(values, np.ndarray) else _torch()


def _torch() -> Any:
    import torch

    return torch
