"""A model's file on its way to the coordinator: declared, then sent in parts that follow each other on one connection.

After a cut the coordinator is asked what has come, and it goes on from there. A few parts of the file are in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import deque
from typing import Any, BinaryIO, Callable, Deque

from . import _http, files
from ._progress import Sending
from .errors import CoordinatorUnavailable

_PART_BYTES = 256 << 10  # the coordinator waits ten seconds for one
_UNDER_WAY_MAX = 64  # parts without an answer
_TRIES_MAX = 10  # that bring nothing further
_PAUSE_SECONDS = (0.5, 10.0)

Check = Callable[[int, bytes], None]  # raises for an answer that is no success


def upload(path: str, declare: Callable[[Any], Any], connect: _http.Connector, check: Check) -> str:
    """The upload's name at the coordinator, for the body of POST /v1/runs.

    declare: POST /v1/uploads. ValueError, before anything is sent: the file is no model. CoordinatorUnavailable: the
    coordinator cannot be reached any more.
    """
    files.model_metadata(path)
    with open(path, "rb") as file:
        declared = {"bytes": os.fstat(file.fileno()).st_size, "sha256": _sha256(file)}
        sending = Sending(declared["bytes"])
        furthest, tries, pause = -1, 0, _PAUSE_SECONDS[0]
        while True:
            try:
                begun = declare(declared)
                if begun["bytes"] > furthest:
                    tries, pause = 0, _PAUSE_SECONDS[0]
                furthest = begun["bytes"]
                _send(file, begun["upload"], begun["bytes"], declared["bytes"], connect, check, sending)
                sending.close()
                return str(begun["upload"])
            except CoordinatorUnavailable as error:
                tries += 1
                if furthest < 0 or tries == _TRIES_MAX:
                    raise
                sending.cut(error, pause)
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS[1])


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    for block in iter(lambda: file.read(1 << 20), b""):
        digest.update(block)
    return digest.hexdigest()


def _send(
    file: BinaryIO,
    name: str,
    begin: int,
    size: int,
    connect: _http.Connector,
    check: Check,
    sending: Sending,
) -> None:
    file.seek(begin)
    under_way: Deque[int] = deque()  # where each part without an answer ends

    with _http.pipe(connect) as pipe:

        def hear() -> None:
            check(*pipe.answer())
            sending.have(under_way.popleft())

        while begin < size:
            part = file.read(min(_PART_BYTES, size - begin))
            if not part:
                raise ValueError(f"{file.name} has become shorter while it was sent")
            if len(under_way) == _UNDER_WAY_MAX:
                hear()
            under_way.append(begin + len(part))
            try:
                pipe.ask("PUT", f"/v1/uploads/{name}?from={begin}", part)
            except OSError:
                while under_way:  # whoever refuses may close before all is read: then the refusal is there
                    hear()
                raise
            begin += len(part)
        while under_way:
            hear()
