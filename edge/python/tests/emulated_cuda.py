"""Arrays in the memory of emulated GPUs: what a framework with a GPU gives, for tests on machines without one.

The driver behind them is kernels/cuda/emulated/driver.cc. It has two GPUs, and what is asynchronous on a GPU is late there.
"""

import ctypes
import os
import struct

import numpy as np
import pytest

from fluvial import _device

LIBRARY = os.environ.get("FLUVIAL_EMULATED_CUDA")
needs_library = pytest.mark.skipif(not LIBRARY, reason="needs the driver's library of emulated GPUs (the build makes it)")
UUIDS = [b"fluvial emulate" + bytes([ordinal]) for ordinal in range(2)]
_STREAM = 1  # not the one that everything else waits for
_HANDLE = struct.Struct("<8xiii4x8xQQQ8x")  # device, process, descriptor; file's bytes, first byte, bytes


def use():
    """From here on this process's driver is the emulated one."""
    _device.LIBRARY = LIBRARY
    return ctypes.CDLL(LIBRARY)


def _call(ordinal, name, *arguments):
    device = _device._driver(LIBRARY).devices[ordinal]
    with device.current():
        assert getattr(use(), name)(*arguments) == 0


class Array:
    """Computed on a GPU, and perhaps not there yet. numpy can have its values, as it can have JAX's."""

    def __init__(self, values, ordinal=0, dtype=np.float32):
        values = np.ascontiguousarray(values, dtype)
        self.shape, self.dtype, self.nbytes, self.ordinal = values.shape, values.dtype, values.nbytes, ordinal
        pointer = ctypes.c_uint64()
        _call(ordinal, "cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(values.nbytes, 1)))
        self.pointer = pointer.value
        self.set(values)

    def set(self, values):
        values = np.ascontiguousarray(values, self.dtype)
        source, size = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
        _call(self.ordinal, "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(self.pointer), source, size, ctypes.c_void_p(_STREAM))

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.pointer, False), "version": 3, "stream": 1}

    def numpy(self):
        values = np.empty(self.shape, self.dtype)
        _call(self.ordinal, "cuCtxSynchronize")
        target, size = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
        _call(self.ordinal, "cuMemcpyDtoH_v2", target, ctypes.c_uint64(self.pointer), size)
        return values

    def __array__(self, dtype=None, copy=None):
        return self.numpy().astype(dtype or self.dtype)

    def __del__(self):
        _call(self.ordinal, "cuMemFree_v2", ctypes.c_uint64(self.pointer))


def opened(memory):
    """What a DeviceMemory message names, as fp32 values that change with it."""
    ordinal, process, descriptor, file_bytes, first, nbytes = _HANDLE.unpack(memory.handle)
    assert memory.device == UUIDS[ordinal]
    data = np.memmap(f"/proc/{process}/fd/{descriptor}", np.uint8, "r", shape=(file_bytes,))
    return data[first + memory.first_byte : first + nbytes].view(np.float32)


def allocations():
    """How many pieces of GPU memory this process has."""
    names = [os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    return sum("memfd:emulated" in os.readlink(name) for name in names if os.path.islink(name))
