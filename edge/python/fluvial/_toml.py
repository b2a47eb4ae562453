"""A plan as the text of a TOML file, from what a script has: numpy's numbers too."""

from __future__ import annotations

import json
from typing import Any, Mapping


def plan_text(head: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    """ValueError and TypeError name the key whose value no plan can have."""
    text = "".join(_line(key, value, key) for key, value in head.items())
    for name, table in tables.items():
        if table:
            text += f"\n[{name}]\n" + "".join(_line(key, value, f"{name}.{key}") for key, value in table.items())
    return text


def _line(key: str, value: Any, where: str) -> str:
    return f"{_text_of(key, where)} = {_text_of(value, where)}\n"


def _text_of(value: Any, where: str) -> str:
    if hasattr(value, "tolist"):  # a number, or an array, of numpy or PyTorch
        value = value.tolist()
    if isinstance(value, Mapping):  # a schedule
        return "{" + ", ".join(f"{key} = {_text_of(part, f'{where}.{key}')}" for key, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text_of(item, where) for item in value) + "]"
    if value is None:
        raise ValueError(f"{where} is None; leave the key out, or give it a value")
    if not isinstance(value, (str, bool, int, float)):
        raise TypeError(f"{where} is a {type(value).__name__}; expected a number, a text, a truth value, or a list or mapping of these")
    return json.dumps(value, ensure_ascii=False)  # JSON's texts, numbers and truth values are TOML's
