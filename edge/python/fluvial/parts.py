"""An update that is handed over piece by piece, while the rest of it is still being computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Optional

import numpy as np

from . import _messages, models
from .errors import ModelMismatch

if TYPE_CHECKING:
    from .round import Round


class UpdateInParts:
    """An update that is handed over as its tensors become ready. Made by Round.parts()."""

    def __init__(self, round: "Round", weight: int) -> None:
        self._round = round
        self._weight = weight
        self._missing = {tensor.name: tensor for tensor in round.schema}
        self._views = round.schema.views(round._result().array)

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
        for tensor, source in models.fitting(tensors, [self._missing[name] for name in tensors]):
            models.write_tensor(self._views[tensor.name], source)
        message = _messages.LocalMessage()
        message.task_ready.id = round._id
        message.task_ready.weight = self._weight
        message.task_ready.update = True
        for tensor in sorted((self._missing.pop(name) for name in tensors), key=lambda tensor: tensor.offset):
            ranges = message.task_ready.ranges
            if ranges and ranges[-1].first_byte + ranges[-1].bytes == tensor.offset:
                ranges[-1].bytes += tensor.nbytes
            elif tensor.nbytes:
                ranges.add(first_byte=tensor.offset, bytes=tensor.nbytes)
        round._site._channel.send(message, None if round._in_parts else round._result().descriptor)
        round._in_parts = True

    def finish(self, metrics: Optional[Mapping[str, float]] = None) -> None:
        """Says that all is there; counters that were not given stay as they are. ModelMismatch: a tensor is missing."""
        round = self._round
        round._checked(None, parts=True)
        if not self.complete:
            names = ", ".join([tensor.name for tensor in self._missing.values() if tensor.averaged][:5])
            raise ModelMismatch(f"the update is not complete; without: {names}")
        done = round._answer(self._weight, metrics)
        done.task_done.update = True
        for name in self._missing:
            np.copyto(self._views[name], round.arrays()[name])
        round._hand_over(done)
