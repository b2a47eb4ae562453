"""One worker's socket to its agent: frames of protobuf messages, with a file descriptor beside some of them.

Blocking; one thread at a time. docs/formats/local.md is the specification.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
import weakref
from typing import Any, FrozenSet, Optional, Tuple

from . import _messages
from .errors import AgentRefused, AgentUnavailable, ProtocolError

_LENGTH = struct.Struct("<I")
_FROM_AGENT_BYTES_MAX = 32 << 20
_FROM_WORKER_BYTES_MAX = 64 << 10
_ATTACH_SECONDS = 10.0
_MESSAGE_SECONDS = 30.0
_RETRY_SECONDS = (0.01, 0.5)
_PATH_BYTES_MAX = 107
_CLOSED = "the connection to the agent is closed; connect again"
_FORKED = (
    "this connection belongs to the process that this one was forked from; call fluvial.connect() in the process that trains"
)


class Channel:
    """An attached worker's connection. `node` is the agent's name, `devices` are the UUIDs of GPUs whose memory it takes,
    `ended` the runs (RunEnded) that had ended before, `active` those (RunActive) that went on.

    It is closed once send() or receive() have found the agent gone (AgentUnavailable).
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.node = ""
        self.devices: FrozenSet[bytes] = frozenset()
        self.ended: Tuple[Any, ...] = ()
        self.active: Tuple[Any, ...] = ()
        self.replaced = ""  # why: another worker has attached by this one's name
        self.closed_because = _CLOSED
        self.is_of_parent = False
        _open.add(self)

    @classmethod
    def attach(cls, path: str, attach, *, patience_s: float = 0.0) -> "Channel":
        """Connects and sends an `Attach`; for `patience_s` seconds tries again while nobody listens."""
        if len(os.fsencode(path)) > _PATH_BYTES_MAX:
            raise ValueError(f"{path}: a socket's path has at most {_PATH_BYTES_MAX} bytes")
        end = time.monotonic() + patience_s
        pause, pause_max = _RETRY_SECONDS
        while True:
            try:
                return cls._attach_once(path, attach)
            except AgentUnavailable:
                if time.monotonic() + pause > end:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, pause_max)

    @classmethod
    def _attach_once(cls, path: str, attach) -> "Channel":
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_ATTACH_SECONDS)
            try:
                connection.connect(path)
            except OSError as error:
                raise AgentUnavailable(
                    f"nobody listens at {path} ({error.strerror}); start `fluvial edge` on this machine, or say where its "
                    "worker socket is: fluvial.connect(path), or FLUVIAL_WORKER_SOCKET (`fluvial doctor` finds it)"
                ) from error
            channel = cls(connection)
            message = _messages.LocalMessage()
            message.attach.CopyFrom(attach)
            message.attach.takes_kept_models = True
            message.attach.hears_refusals = not attach.evaluates
            channel.send(message)
            try:
                answer, descriptor = channel.receive(_ATTACH_SECONDS)
            except TimeoutError as error:
                raise AgentUnavailable(f"the agent at {path} does not answer") from error
            _close(descriptor)
            if answer.WhichOneof("body") != "attached":
                raise ProtocolError("the agent's first message is no answer to attaching")
            if answer.attached.code != 0:
                raise AgentRefused(f"the agent at {path} refused: {answer.attached.message}")
            channel.node, channel.devices = answer.attached.node, frozenset(answer.attached.devices)
            channel.ended, channel.active = tuple(answer.attached.ended), tuple(answer.attached.active)
            return channel
        except BaseException:
            connection.close()
            raise

    def send(self, message, descriptor: Optional[int] = None) -> None:
        """Sends one message; a descriptor accompanies its first byte and stays the caller's to close."""
        body = message.SerializeToString()
        if len(body) > _FROM_WORKER_BYTES_MAX:
            raise ValueError(f"a message of {len(body)} bytes; at most {_FROM_WORKER_BYTES_MAX}: too many metrics")
        if self.closed:
            raise AgentUnavailable(self.closed_because)
        frame = _LENGTH.pack(len(body)) + body
        self._socket.settimeout(_MESSAGE_SECONDS)
        try:
            sent = socket.send_fds(self._socket, [frame], [descriptor]) if descriptor is not None else 0
            self._socket.sendall(frame[sent:])
        except (OSError, TimeoutError) as error:
            why = self._last_words() or str(error)
            self._socket.close()
            raise AgentUnavailable(f"the agent is gone ({why}); connect again when it is back") from error

    def receive(self, timeout_s: Optional[float] = None):
        """The next message and the descriptor that came with it (the caller's to close) or None.

        Waits `timeout_s` for the first byte (None: for ever; TimeoutError when it passes), then a bounded time for the
        rest. Ctrl-C while waiting for the first byte loses nothing.
        """
        if self.closed:
            raise AgentUnavailable(self.closed_because)
        try:
            return self._receive(timeout_s)
        except AgentUnavailable:
            self._socket.close()
            raise

    def _receive(self, timeout_s: Optional[float]):
        self._socket.settimeout(timeout_s)
        head, descriptor = self._receive_some(_LENGTH.size)
        try:
            self._socket.settimeout(_MESSAGE_SECONDS)
            head += self._receive_rest(_LENGTH.size - len(head))
            (length,) = _LENGTH.unpack(head)
            if not 1 <= length <= _FROM_AGENT_BYTES_MAX:
                raise ProtocolError(f"the agent announces a message of {length} bytes; at most {_FROM_AGENT_BYTES_MAX}")
            message = _messages.LocalMessage()
            try:
                message.ParseFromString(self._receive_rest(length))
            except Exception as error:  # protobuf's DecodeError, whichever implementation is in use
                raise ProtocolError("the agent sent bytes that are no message") from error
            if message.detach.replaced:
                self.replaced = message.detach.reason
            return message, descriptor
        except BaseException:
            _close(descriptor)
            raise

    def _receive_some(self, size: int) -> Tuple[bytes, Optional[int]]:
        try:
            data, descriptors, flags, _ = socket.recv_fds(self._socket, size, 1)
        except (socket.timeout, BlockingIOError) as error:  # the former is a TimeoutError from Python 3.10 on
            raise TimeoutError("no message from the agent in the time given") from error
        except OSError as error:
            raise AgentUnavailable(f"the agent is gone ({error})") from error
        descriptor = descriptors[0] if descriptors else None
        for surplus in descriptors[1:]:
            os.close(surplus)
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
        if flags & socket.MSG_CTRUNC or len(descriptors) > 1:
            _close(descriptor)
            raise ProtocolError("the agent sent more than one file descriptor with a message")
        if not data:
            _close(descriptor)
            raise AgentUnavailable("the agent is gone; connect again when it is back")
        return data, descriptor

    def _receive_rest(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except socket.timeout as error:
                raise AgentUnavailable("the agent stopped in the middle of a message") from error
            except OSError as error:
                raise AgentUnavailable(f"the agent is gone ({error})") from error
            if not part:
                raise AgentUnavailable("the agent ended in the middle of a message")
            data += part
        return bytes(data)

    def _last_words(self) -> str:
        """Why the agent ended the connection, if it said so."""
        try:
            while self.has_message():
                message, descriptor = self.receive(0)
                _close(descriptor)
                if message.WhichOneof("body") == "detach":
                    return message.detach.reason
        except (AgentUnavailable, ProtocolError, TimeoutError):
            pass
        return ""

    def has_message(self) -> bool:
        """Whether receive() would find something at once: a message, its beginning, or the end."""
        if self.closed:
            return True
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(0))

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def closed(self) -> bool:
        return self.fileno() < 0

    def close(self, reason: str = "", *, heard_within_s: float = 0.0) -> None:
        """Says good-bye, if the agent is there to hear it, and closes. May be called twice.

        heard_within_s: wait so long at most until the agent has closed its end, too, and so knows of it.
        """
        if self.closed:
            return
        message = _messages.LocalMessage()
        message.detach.reason = reason
        try:
            self.send(message)
            end = time.monotonic() + heard_within_s
            while heard_within_s and time.monotonic() < end:
                self._socket.settimeout(heard_within_s)
                if not self._socket.recv(1 << 16):  # what else it sent is for nobody
                    break
        except (AgentUnavailable, OSError):
            pass
        finally:
            self._socket.close()


_open: "weakref.WeakSet[Channel]" = weakref.WeakSet()


def _forked() -> None:
    """In a process that was forked off: while it kept the connections, nobody would see the end of the one that has them."""
    for channel in list(_open):
        channel._socket.close()
        channel.closed_because, channel.is_of_parent = _FORKED, True
    _open.clear()


os.register_at_fork(after_in_child=_forked)


def _close(descriptor: Optional[int]) -> None:
    if descriptor is not None:
        os.close(descriptor)
