"""A plan as the text of a TOML file, from what a script has: numpy's numbers too."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping

_INTEGER_MAX = 2**63 - 1  # TOML's


def plan_text(plan: Mapping[str, Any]) -> str:
    """Tables are mappings, {"optimizer": {"name": "fedavg"}}, or keys with a dot, {"optimizer.name": "fedavg"}; the later one counts.

    ValueError and TypeError name the key whose value no plan can have.
    """
    head: Dict[str, Any] = {}
    tables: Dict[str, Dict[str, Any]] = {}
    for key, value in plan.items():
        table, dot, rest = key.partition(".")
        if dot:
            tables.setdefault(table, {})[rest] = value
        elif isinstance(value, Mapping):
            tables.setdefault(key, {}).update(value)
        else:
            head[key] = value
    text = "".join(_line(key, value, key) for key, value in head.items())
    for name, entries in tables.items():
        if entries:
            text += f"\n[{json.dumps(name)}]\n" + "".join(_line(key, value, f"{name}.{key}") for key, value in entries.items())
    return text


def _line(key: str, value: Any, where: str) -> str:
    return f"{_text_of(key, where)} = {_text_of(value, where)}\n"


def _text_of(value: Any, where: str) -> str:
    if hasattr(value, "tolist"):  # a number, or an array, of numpy or PyTorch
        value = value.tolist()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, Mapping):  # a schedule
        return "{" + ", ".join(f"{key} = {_text_of(part, f'{where}.{key}')}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text_of(item, where) for item in value) + "]"
    if value is None:
        raise ValueError(f"{where} is None; leave the key out, or give it a value")
    if not isinstance(value, (str, bool, int, float)):
        raise TypeError(f"{where} is a {type(value).__name__}; expected a number, a text, a truth value, or a list or mapping of these")
    if isinstance(value, int) and value > _INTEGER_MAX:
        value = str(value)  # a seed may be; a plan takes it as a text, too
    return json.dumps(value, ensure_ascii=False)  # JSON's texts, numbers and truth values are TOML's
