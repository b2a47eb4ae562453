"""What a run starts from: a plan (a file, its text, a mapping) and a model (a file, a module, arrays)."""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import Any, Iterator, List, Mapping, Sequence, Tuple, Union

import numpy as np

from . import files
from ._toml import plan_text
from .selection import Only

Plan = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class StartedRun(int):
    """A run's number, which goes wherever a run is asked for, with its name and what the coordinator noted about its plan."""

    name: str
    notes: List[str]

    def __new__(cls, number: int, name: str = "", notes: Sequence[str] = ()) -> "StartedRun":
        made = super().__new__(cls, number)
        made.name, made.notes = name, list(notes)
        return made

    def __repr__(self) -> str:
        return f"<run {int(self)}: {self.name}>"

    __str__ = int.__repr__


def plan_source(plan: Plan) -> Tuple[str, str, str]:
    """A plan as TOML, what errors call it, and the folder that a model which it names is in."""
    if isinstance(plan, Mapping):
        return plan_text(plan), "plan", ""
    if isinstance(plan, str) and _is_toml(plan):
        return plan, "plan", ""
    path = os.path.expanduser(os.fspath(plan))
    with open(path, encoding="utf-8") as file:
        return file.read(), os.path.basename(path), os.path.dirname(path)


def _is_toml(text: str) -> bool:
    """A text with a key in it, and not the path of a file, whose folder may be called "lr=0.1"."""
    return "\n" in text or ("=" in text and not text.endswith(".toml") and not os.path.exists(text))


@contextlib.contextmanager
def model_file(model: Any, only: Only) -> Iterator[str]:
    """The path of the model as a model file, while the block lasts."""
    path = os.path.expanduser(os.fspath(model)) if isinstance(model, (str, os.PathLike)) else None
    is_archive = path is not None and path.endswith(".npz")
    if path is not None and not is_archive and only is None and not files.is_index(path):
        yield path
        return
    if is_archive:
        with np.load(path) as archive:
            model = dict(archive)
    elif path is not None:
        model = files.stored_tensors(path)
    with tempfile.TemporaryDirectory(prefix="fluvial-start-") as folder:
        written = os.path.join(folder, "initial.safetensors")
        files.save_model(written, model, only=only)
        yield written
