"""What a plan's [worker] table says, as a script has it in `round.config`."""

from __future__ import annotations

from typing import Any, Dict, List, Union

from .errors import ProtocolError

Value = Union[float, bool, str, List[float], List[str]]
Config = Dict[str, Value]
_BOOLEAN, _TEXT, _NUMBERS, _TEXTS = 1, 2, 3, 4  # WorkerValue.Kind


def config_of(task: Any) -> Config:
    """The whole table of a task: numbers are floats, also those that stand as whole numbers in the plan."""
    config: Config = dict(task.parameters)
    for value in task.values:
        if value.kind == _BOOLEAN and len(value.numbers) == 1:
            config[value.name] = value.numbers[0] == 1
        elif value.kind == _TEXT and len(value.texts) == 1:
            config[value.name] = value.texts[0]
        elif value.kind == _NUMBERS:
            config[value.name] = list(value.numbers)
        elif value.kind == _TEXTS:
            config[value.name] = list(value.texts)
        else:
            raise ProtocolError(f"the plan's worker.{value.name} is of a kind that this version does not know")
    return config
