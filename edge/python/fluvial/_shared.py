"""Models in shared memory: memfds that nobody can change any more (docs/formats/local.md, "Models")."""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Iterable

import numpy as np

from .errors import ProtocolError

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_MAP_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # from Python 3.10 on
_IOV_MAX = 1024  # buffers a writev takes


class SharedModel:
    """A sealed memfd, mapped for reading. `array` is its bytes, without a copy; it lives as long as somebody uses it."""

    def __init__(self, descriptor: int, size: int) -> None:
        """Takes the descriptor over, and checks it before it is mapped: a memfd, sealed, of exactly `size` bytes."""
        try:
            try:
                seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
            except OSError as error:
                raise ProtocolError("the agent sent a model that is no memfd") from error
            if seals & _SEALS != _SEALS:
                raise ProtocolError("the agent sent a model that is not sealed")
            found = os.fstat(descriptor).st_size
            if found != size:
                raise ProtocolError(f"the agent sent a model of {found} bytes, expected {size}")
            self.array = np.empty(0, np.uint8)
            if size:
                # All of it will be read: mapped at once, it costs a third less than a page fault at a time.
                mapping = mmap.mmap(descriptor, size, mmap.MAP_SHARED | _MAP_POPULATE, mmap.PROT_READ)
                self.array = np.frombuffer(mapping, np.uint8)
        finally:
            os.close(descriptor)


def write_sealed(parts: Iterable[np.ndarray], size: int) -> int:
    """A sealed memfd of the arrays' bytes, one after the other, `size` in all. The descriptor is the caller's to close.

    Written rather than mapped: the kernel copies into fresh pages, which are then neither zeroed nor faulted in first.
    """
    descriptor = os.memfd_create("fluvial-model", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        views = [memoryview(part.reshape(-1).view(np.uint8)) for part in parts if part.nbytes]
        written = 0
        while views:
            count = os.writev(descriptor, views[:_IOV_MAX])
            written += count
            while views and count >= len(views[0]):
                count -= len(views[0])
                views.pop(0)
            if views and count:
                views[0] = views[0][count:]
        if written != size:
            raise ValueError(f"a model of {written} bytes, expected {size}")
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise
