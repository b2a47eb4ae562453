"""Memory of a GPU that the agent reads where it lies (docs/formats/local.md): what it takes of the CUDA driver.

Through ctypes, so that it serves the values of any framework, by way of `__cuda_array_interface__`. All of it happens
in a device's primary context, the one that CUDA's runtime and so every framework is in.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from . import _precision, models
from .errors import FluvialError

LIBRARY = "libcuda.so.1"
FLOAT_BYTES = 4

_HANDLE_BYTES = 64
_UUID_BYTES = 16
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
# Smaller allocations may share a block of the driver's with others, and then those would be shared with the agent, too.
_BLOCK_BYTES = 2 << 20

_INT, _UINT, _SIZE = ctypes.c_int, ctypes.c_uint, ctypes.c_size_t
_HOST = ctypes.c_void_p
_POINTER = ctypes.c_uint64  # CUdeviceptr
_CALLS: Dict[str, Sequence[Any]] = {  # as cuda.h has them, where many a name stands for one with a _v2
    "cuInit": [_UINT],
    "cuGetErrorString": [_INT, ctypes.POINTER(ctypes.c_char_p)],
    "cuDeviceGetCount": [ctypes.POINTER(_INT)],
    "cuDeviceGet": [ctypes.POINTER(_INT), _INT],
    "cuDeviceGetUuid_v2": [_HOST, _INT],
    "cuDevicePrimaryCtxGetState": [_INT, ctypes.POINTER(_UINT), ctypes.POINTER(_INT)],
    "cuDevicePrimaryCtxRetain": [ctypes.POINTER(_HOST), _INT],
    "cuCtxPushCurrent_v2": [_HOST],
    "cuCtxPopCurrent_v2": [ctypes.POINTER(_HOST)],
    "cuCtxSynchronize": [],
    "cuPointerGetAttribute": [_HOST, _INT, _POINTER],
    "cuMemAlloc_v2": [ctypes.POINTER(_POINTER), _SIZE],
    "cuMemFree_v2": [_POINTER],
    "cuMemcpyDtoDAsync_v2": [_POINTER, _POINTER, _SIZE, _HOST],
    "cuMemcpyHtoD_v2": [_POINTER, _HOST, _SIZE],
    "cuIpcGetMemHandle": [_HOST, _POINTER],
}


class DeviceError(FluvialError):
    """The driver refused, or is not there: so results go through host memory, unless a part of one is on the GPU already."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; fluvial.connect(device=False) leaves GPU memory alone")


class _Driver:
    """The library, each call checked."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
            for name, arguments in _CALLS.items():
                function = getattr(self._library, name)
                function.argtypes, function.restype = arguments, _INT
        except (OSError, AttributeError) as error:
            raise DeviceError(f"no CUDA driver that fits: {error}") from error
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        if code != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(code, ctypes.byref(text))
            raise DeviceError(f"{name}: {(text.value or b'unknown error').decode()} ({code})")

    def integer(self, name: str, *arguments: Any) -> int:
        """What a call writes to its first argument."""
        value = _INT()
        self.call(name, ctypes.byref(value), *arguments)
        return value.value

    @functools.cached_property
    def devices(self) -> List["Device"]:
        """Those that this process sees, by ordinal."""
        return [Device(self, ordinal) for ordinal in range(self.integer("cuDeviceGetCount"))]


class Device:
    """A GPU, as this process sees it."""

    def __init__(self, driver: _Driver, ordinal: int) -> None:
        self._driver = driver
        self._number = driver.integer("cuDeviceGet", ordinal)
        uuid = ctypes.create_string_buffer(_UUID_BYTES)
        self.call("cuDeviceGetUuid_v2", uuid, self._number)
        self.uuid = uuid.raw

    def call(self, name: str, *arguments: Any) -> None:
        self._driver.call(name, *arguments)

    @property
    def active(self) -> bool:
        """Whether this process has its primary context."""
        flags, active = _UINT(), _INT()
        self.call("cuDevicePrimaryCtxGetState", self._number, ctypes.byref(flags), ctypes.byref(active))
        return bool(active.value)

    @functools.cached_property
    def _context(self) -> Any:
        context = _HOST()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._number)
        return context  # until the process ends, as the runtime does it

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Its primary context is this thread's, within the block."""
        self.call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", ctypes.byref(_HOST()))

    def synchronize(self) -> None:
        """Waits for all that this process put on the device, in whatever stream. Within current()."""
        self.call("cuCtxSynchronize")


@functools.lru_cache(maxsize=None)
def _driver(path: str) -> _Driver:
    return _Driver(path)


def device_of(sources: Sequence[Any]) -> Optional[Device]:
    """The GPU that the memory of all of these is in, contiguous and readable as it is; None when there is no such."""
    addresses = [_address(source) for source in sources]
    if not addresses or None in addresses:
        return None
    devices = _driver(LIBRARY).devices
    asking = next((device for device in devices if device.active), None)
    if asking is None:
        return None
    ordinal, found = _INT(), set()
    with asking.current():  # the driver answers a thread that is in some context
        for address in addresses:
            asking.call("cuPointerGetAttribute", ctypes.byref(ordinal), _DEVICE_ORDINAL, address)
            found.add(ordinal.value)
    if len(found) != 1 or ordinal.value not in range(len(devices)):  # it is negative for memory that is no GPU's
        return None
    return devices[ordinal.value]


class Memory:
    """Memory of a device that the agent opens by its handle."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.device = device
        pointer, handle = _POINTER(), ctypes.create_string_buffer(_HANDLE_BYTES)
        with device.current():
            device.call("cuMemAlloc_v2", ctypes.byref(pointer), -(-nbytes // _BLOCK_BYTES) * _BLOCK_BYTES)
            self._pointer = pointer.value
            device.call("cuIpcGetMemHandle", handle, self._pointer)
        self.handle = handle.raw

    def write(self, pieces: Iterable[Tuple[int, Any, Any]]) -> None:
        """Copies each of these, wherever it is, to its place (in bytes) as fp32. They are there when this returns.

        With each goes what it began from, or None: its base and the casts of that (_precision.hand_over).
        """
        device = self.device
        with device.current():
            device.synchronize()  # whatever streams compute them in
            for place, source, start in pieces:
                values = _as_floats(source, start)
                if isinstance(values, np.ndarray):
                    device.call("cuMemcpyHtoD_v2", self._pointer + place, values.ctypes.data, values.nbytes)
                    continue
                nbytes = FLOAT_BYTES * math.prod(values.shape)
                if values is not source:
                    device.synchronize()  # it was made just now, in a stream of the framework's
                device.call("cuMemcpyDtoDAsync_v2", self._pointer + place, _address(values), nbytes, None)
                if values is not source:
                    device.synchronize()  # before it goes
            device.synchronize()

    def __del__(self) -> None:
        if hasattr(self, "_pointer"):
            with contextlib.suppress(DeviceError), self.device.current():  # at the process's end the driver may be gone
                self.device.call("cuMemFree_v2", self._pointer)


def _address(source: Any) -> Optional[int]:
    """Where in a GPU's memory the values of a tensor begin; None for what is not there in a form that can be copied.

    A torch tensor of any dtype and strides has one: torch converts it first.
    """
    try:
        if models._is_torch(source):
            return source.data_ptr() if source.is_cuda else None
        getattr(source, "block_until_ready", lambda: None)()  # JAX: there may be no memory yet
        about = source.__cuda_array_interface__
    except Exception:  # no attribute, or whatever else a framework raises for an array that is elsewhere
        return None
    strides = [FLOAT_BYTES * math.prod(about["shape"][axis + 1 :]) for axis in range(len(about["shape"]))]
    if about["typestr"] != "<f4" or list(about.get("strides") or strides) != strides or about.get("mask") is not None:
        return None
    return about["data"][0]


def _as_floats(source: Any, start: Any) -> Any:
    """The values as fp32, contiguous: where they are when that is in a GPU's memory, and otherwise as a numpy array.

    With a start, what is to be handed over: in memory of its own.
    """
    on_gpu = source.is_cuda if models._is_torch(source) else start is None and _address(source) is not None
    if not on_gpu:
        array = np.ascontiguousarray(models._as_array("", source), np.float32)
        values = array if start is None else array.copy()
    elif not models._is_torch(source):
        return source
    else:
        import torch

        if start is None and source.dtype == torch.float32 and source.is_contiguous():
            return source
        values = source.detach().to(torch.float32, copy=start is not None).contiguous()
    if start is not None:
        _precision.hand_over(values, *start)
    return values
