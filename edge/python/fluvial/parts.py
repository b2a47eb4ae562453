"""An update that is handed over piece by piece, while the rest of it is still being computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from . import _messages, _pieces, models
from .errors import ModelMismatch

if TYPE_CHECKING:
    from .round import Round


_EARLY_RANGES_MAX = 2_048  # that do not touch, of which an agent takes note before all is there


class UpdateInParts:
    """An update that is handed over as its tensors become ready. Made by Round.parts()."""

    def __init__(self, round: "Round", weight: int) -> None:
        self._round = round
        self._weight = weight
        self._missing = {tensor.name: tensor for tensor in round.schema}
        # What the agent was told of: the end of each range by its beginning, and the reverse.
        self._ends: Dict[int, int] = {}
        self._begins: Dict[int, int] = {}

    @property
    def missing(self) -> List[str]:
        """What is averaged and not there yet."""
        return [tensor.name for tensor in self._missing.values() if tensor.averaged]

    @property
    def complete(self) -> bool:
        """Whether every tensor that is averaged is there."""
        return not any(tensor.averaged for tensor in self._missing.values())

    def add(self, tensors: Mapping[str, Any]) -> None:
        """Copies these tensors of the update out, and tells the site that they are there; each comes once."""
        round = self._round
        round._checked(None, parts=True)
        unknown = [name for name in tensors if name not in self._missing]
        if unknown:
            why = "is there already" if unknown[0] in round.schema else "is not in the run's model"
            raise ModelMismatch(f"tensor {unknown[0]} {why}")
        round._write(models.fitting(tensors, [self._missing[name] for name in tensors]))
        message = _messages.LocalMessage()
        message.task_ready.id = round._id
        message.task_ready.weight = self._weight
        message.task_ready.update = True
        ranges = _pieces.ranges_of([_pieces.whole(self._missing.pop(name)) for name in tensors])
        if len(self._ends) + len(ranges) <= _EARLY_RANGES_MAX:
            for begin, count in ranges.tolist():
                message.task_ready.ranges.add(first_byte=begin, bytes=count)
                self._note(begin, begin + count)
        elif round._in_parts:
            return  # the site sums these when all is there
        round._send_result(message, message.task_ready)
        round._in_parts = True

    def _note(self, begin: int, end: int) -> None:
        begin, end = self._begins.pop(begin, begin), self._ends.pop(end, end)
        self._ends[begin], self._begins[end] = end, begin

    def finish(self, metrics: Optional[Mapping[str, float]] = None) -> None:
        """Says that all is there; counters that were not given stay as they are. ModelMismatch: a tensor is missing."""
        round = self._round
        round._checked(None, parts=True)
        if not self.complete:
            raise ModelMismatch(f"the update is not complete; without: {', '.join(self.missing[:5])}")
        done = round._answer(self._weight, metrics)
        done.task_done.update = True
        round._write_unchanged({tensor.name for tensor in round.schema if tensor.name not in self._missing})
        round._hand_over(done)
