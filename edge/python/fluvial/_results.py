"""Where a worker's results go: memory of the host's, or that of the GPU that they are in. The choice is made here alone."""

from __future__ import annotations

import warnings
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _device, _precision, models
from ._shared import ResultBuffer
from .schema import Schema, Tensor

Given = Sequence[Tuple[Tensor, Any]]  # tensors of a run, with what is to be copied for each
# Of those that were trained in half precision, the base and what they may have begun from (_precision.hand_over).
Starts = Mapping[str, Tuple[np.ndarray, List[_precision.Casts]]]


class HostResult:
    """Results of a run in shared memory of the host's, which is kept from round to round."""

    def __init__(self, schema: Schema, *, sparse: bool = False) -> None:
        """sparse: only a part of it will be written, and only that takes memory."""
        self._memory = ResultBuffer(schema.nbytes, sparse=sparse)
        self.array: np.ndarray = self._memory.array
        self._views = schema.views(self.array)

    def write(self, given: Given, starts: Starts = {}) -> None:
        for tensor, source in given:
            models.write_tensor(self._views[tensor.name], source)
            if tensor.name in starts:
                _precision.hand_over(self._views[tensor.name], *starts[tensor.name])

    def introduce(self, answer: Any) -> Optional[int]:
        """What the first message (TaskDone, TaskReady) that speaks of the result brings: a descriptor beside it."""
        return self._memory.descriptor


class DeviceResult:
    """Results of a run in memory of a GPU: what is averaged, one flat vector. Counters are in the host's."""

    def __init__(self, schema: Schema, device: _device.Device) -> None:
        self._memory = _device.Memory(device, _device.FLOAT_BYTES * schema.values)
        self._places: Dict[str, int] = {}
        place = 0
        for tensor in schema:
            if tensor.averaged:
                self._places[tensor.name] = place
                place += tensor.nbytes
        counted = len(self._places) < len(schema)
        self._counters = HostResult(schema, sparse=True) if counted else None

    def write(self, given: Given, starts: Starts = {}) -> None:
        averaged = [(tensor.name, source) for tensor, source in given if tensor.averaged and tensor.size]
        self._memory.write((self._places[name], source, starts.get(name)) for name, source in averaged)
        if self._counters is not None:
            self._counters.write([(tensor, source) for tensor, source in given if not tensor.averaged])

    def introduce(self, answer: Any) -> Optional[int]:
        """As HostResult's: the memory's handle in the message, and a descriptor if there are counters."""
        answer.device.device = self._memory.device.uuid
        answer.device.handle = self._memory.handle
        return None if self._counters is None else self._counters.introduce(answer)


Result = Union[HostResult, DeviceResult]


class Results:
    """One connection's results: the same memory for each round of a run."""

    def __init__(self, devices: Collection[bytes], *, sparse: bool) -> None:
        """devices: the UUIDs of the GPUs whose memory the agent takes. sparse: as in HostResult."""
        self._devices = frozenset(devices)
        self._sparse = sparse
        self._kept: Dict[int, Dict[Optional[bytes], Any]] = {}  # by run, and UUID or None for the host's memory
        self.unheard = False  # a result is in memory of a GPU, and it is not known yet whether the agent could open it

    def written(self, run: int, schema: Schema, given: Given, starts: Starts = {}) -> Result:
        """A result with these tensors in it: on the GPU that they are in, if there is one that the agent takes."""
        if self._devices:
            try:
                device = _device.device_of([source for tensor, source in given if tensor.averaged and tensor.size])
                if device is not None and device.uuid in self._devices:
                    return self._on_device(run, schema, given, starts, device)
            except _device.DeviceError as error:
                self._devices = frozenset()
                warnings.warn(f"results go through host memory from now on: {error}", RuntimeWarning, stacklevel=5)
        result = self.host(run, schema)
        result.write(given, starts)
        return result

    def _on_device(
        self, run: int, schema: Schema, given: Given, starts: Starts, device: _device.Device
    ) -> DeviceResult:
        is_new = device.uuid not in self._kept.get(run, {})
        found = self._keep(run, device.uuid, lambda: DeviceResult(schema, device))
        found.write(given, starts)
        self.unheard = self.unheard or is_new
        return found

    def host(self, run: int, schema: Schema) -> HostResult:
        return self._keep(run, None, lambda: HostResult(schema, sparse=self._sparse))

    def _keep(self, run: int, where: Optional[bytes], make: Callable[[], Any]) -> Any:
        kept = self._kept.setdefault(run, {})
        if where not in kept:
            kept[where] = make()
        return kept[where]

    def forget_host(self) -> None:
        """Of all runs, what is in the host's memory."""
        for kept in self._kept.values():
            kept.pop(None, None)

    def forget(self, run: int) -> None:
        """Of a run that is over."""
        self._kept.pop(run, None)
