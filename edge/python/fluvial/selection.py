"""Some tensors of a model only: adapters, what is not frozen, what is not personal.

`only` is a name or a pattern (``*`` stands for any letters, dots too, ``?`` for one; all else stands for itself, brackets too), or
several; one that begins with ``!`` takes away what it fits: only=["*.lora_*"], only=["*", "!head.*"]. Patterns apply in order.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Set, Union

from .errors import ModelMismatch

Only = Optional[Union[str, Sequence[str]]]


def patterns_of(only: Only) -> List[str]:
    if only is None:
        return ["*"]
    patterns = [only] if isinstance(only, str) else list(only)
    if not patterns or not all(isinstance(pattern, str) and pattern.strip("!") for pattern in patterns):
        raise ValueError(f"only is {only!r}, expected a name or pattern, or a list of them")
    return ["*"] + patterns if patterns[0].startswith("!") else patterns


def chosen(names: Iterable[str], only: Only, whose: str) -> Set[str]:
    """Those of the names that `only` selects. ModelMismatch: a pattern that fits nothing, or nothing is left."""
    there = list(names)
    if only is None:
        return set(there)
    kept: Set[str] = set()
    for pattern in patterns_of(only):
        fits = re.compile(re.escape(pattern.lstrip("!")).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
        fitting = {name for name in there if name == pattern.lstrip("!") or fits.fullmatch(name)}
        if not fitting and there:
            near = difflib.get_close_matches(pattern.lstrip("!"), there, n=3, cutoff=0.5) or there[:3]
            more = ", ..." if len(there) > len(near) else ""
            raise ModelMismatch(f"only: {pattern!r} fits no tensor of {whose}; there are {', '.join(near)}{more}")
        kept = kept - fitting if pattern.startswith("!") else kept | fitting
    if not kept:
        raise ModelMismatch(f"only: {only!r} selects no tensor of {whose}")
    return kept


def check_against(schema_names: Sequence[str], only: Only, tensors: Mapping[str, Any]) -> None:
    """That the run's tensors are those which `only` selects here. ModelMismatch names the difference."""
    if only is None:
        return
    kept = chosen(tensors, only, "the model")
    run = set(schema_names)
    extra = [name for name in schema_names if name not in kept]
    missing = [name for name in tensors if name in kept and name not in run]
    if extra:
        raise ModelMismatch(
            f"the run's model has {len(extra)} tensors that only={only!r} leaves out here: {_shown(extra)}; start the run "
            "from fluvial.save_model(path, model, only=...) with the same patterns"
        )
    if missing:
        raise ModelMismatch(
            f"only={only!r} selects {len(missing)} tensors that the run's model has not: {_shown(missing)}; start the run from "
            "fluvial.save_model(path, model, only=...) with the same patterns"
        )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
