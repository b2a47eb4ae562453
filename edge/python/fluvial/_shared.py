"""Memory shared with the agent (docs/formats/local.md, "Models"): models it hands out, results handed to it."""

from __future__ import annotations

import fcntl
import mmap
import os

import numpy as np

from .errors import ProtocolError

_RESULT_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_F_SEAL_FUTURE_WRITE = 0x0010  # fcntl has no name for it yet
_CONTENT_SEALS = fcntl.F_SEAL_WRITE | _F_SEAL_FUTURE_WRITE  # either: the agent's kept memory has the second
_MAP_POPULATE = getattr(mmap, "MAP_POPULATE", 0)  # from Python 3.10 on


def _mapped(descriptor: int, size: int, protection: int, populate: bool = True) -> np.ndarray:
    if not size:
        return np.empty(0, np.uint8)
    # Where all of it will be used: mapped at once, it costs a third less than a page fault at a time.
    flags = mmap.MAP_SHARED | (_MAP_POPULATE if populate else 0)
    return np.frombuffer(mmap.mmap(descriptor, size, flags, protection), np.uint8)


class SharedModel:
    """A model from the agent: a memfd nobody can change, mapped for reading when it is first looked at.

    `array` is its bytes, without a copy; it lives as long as somebody uses it. Only when no mapping and no descriptor of
    it is left may the agent use the memory for another model.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        """Takes the descriptor over, and checks it: a memfd, sealed, of exactly `size` bytes."""
        self._descriptor = descriptor
        self._size = size
        self._array: np.ndarray | None = None
        try:
            seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
        except OSError as error:
            self.close()
            raise ProtocolError("the agent sent a model that is no memfd") from error
        found = os.fstat(descriptor).st_size
        sealed = seals & _RESULT_SEALS == _RESULT_SEALS and seals & _CONTENT_SEALS
        if not sealed or found != size:
            self.close()
            wrong = "not sealed" if found == size else f"of {found} bytes, expected {size}"
            raise ProtocolError(f"the agent sent a model that is {wrong}")

    @property
    def array(self) -> np.ndarray:
        if self._array is None:
            self._array = _mapped(self._descriptor, self._size, mmap.PROT_READ)
            self.close()
        return self._array

    def close(self) -> None:
        """Lets go of the descriptor; what was mapped stays. May be called twice."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class ResultBuffer:
    """Where a worker's results go, one round's after another's: a memfd of fixed size, mapped for writing for good.

    Reusing it is what makes handing a model over cost one copy: fresh pages would be zeroed and faulted in first. The
    agent reads it from the answer to a task until the worker has its next task; in between nobody writes to it.
    """

    def __init__(self, size: int, *, sparse: bool = False) -> None:
        """sparse: only a part of it will be written, and only that takes memory."""
        self.descriptor = os.memfd_create("fluvial-result", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            if size and not sparse:
                os.posix_fallocate(self.descriptor, 0, size)  # memory that is not there shows here, not as SIGBUS
            os.ftruncate(self.descriptor, size)
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _RESULT_SEALS)
            self.array = _mapped(self.descriptor, size, mmap.PROT_READ | mmap.PROT_WRITE, populate=not sparse)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of the descriptor; arrays over the memory stay valid. May be called twice."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
