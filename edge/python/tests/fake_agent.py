"""An agent that a test plays by hand: what a worker sends, byte for byte, and answers in any order."""

import contextlib
import fcntl
import mmap
import os
import socket
import struct
import threading

import numpy as np

import fluvial
from fluvial import _messages
from fluvial.schema import Schema, dtype_name

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def sealed(data):
    descriptor = os.memfd_create("model", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, len(data))
    # Populated, as an agent does it: other pages cost the reader more.
    with mmap.mmap(descriptor, len(data), flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)) as mapping:
        mapping[:] = data
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    return descriptor


class FakeAgent:
    """One worker's agent. `model` (a mapping of arrays) fixes the run's schema; `devices` are the GPUs it takes results from."""

    def __init__(self, path, model, devices=(), **connect):
        self.schema = Schema((name, dtype_name(array.dtype), array.shape) for name, array in model.items())
        self._devices = devices
        self.ended = []  # runs that were over before a worker attaches: number, name, state
        self._task = 0
        self._models = []
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen()
        accepting = threading.Thread(target=self._accept, args=(listener,))
        accepting.start()
        self.site = fluvial.connect(str(path), **connect)
        accepting.join()
        listener.close()
        self.rounds = self.site.rounds("run")
        self.result = None  # the memfd that the worker sent last

    def _accept(self, listener):
        self._connection, _ = listener.accept()
        self.attach, _ = self.receive()
        answer = _messages.LocalMessage()
        answer.attached.node = "fake"
        answer.attached.devices.extend(self._devices)
        for run, name, state in self.ended:
            answer.attached.ended.add(run=run, run_name=name, state=state)
        self._send(answer)

    def _send(self, message, data=None):
        body = message.SerializeToString()
        frame = struct.pack("<I", len(body)) + body
        if data is None:
            self._connection.sendall(frame)
            return
        self._models.append(sealed(data))  # an agent keeps the newest model, so that it is not the worker that frees it
        sent = socket.send_fds(self._connection, [frame], self._models[-1:])
        self._connection.sendall(frame[sent:])
        if len(self._models) > 1:
            os.close(self._models.pop(0))

    def _bytes(self, model):
        return b"".join(np.ascontiguousarray(model[tensor.name], tensor.dtype).tobytes() for tensor in self.schema)

    def task(self, round, model, previous=None, run="run", parameters=(), optimizer="", weight_max=0):
        message = _messages.LocalMessage()
        task = message.task
        self._task += 1
        task.id, task.kind, task.run, task.run_name = self._task, _messages.KIND_TRAIN, 1, run
        task.round, task.version, task.local_steps, task.model_bytes = round, round - 1, 1, self.schema.nbytes
        for tensor in self.schema:
            task.schema.tensors.add(name=tensor.name, dtype=dtype_name(tensor.dtype), shape=tensor.shape)
        task.parameters.update(parameters)
        task.optimizer, task.weight_max = optimizer, weight_max
        if previous is not None:
            task.previous.round, task.previous.outcome = previous[0], _messages.OUTCOMES.index(previous[1])
        self._send(message, self._bytes(model))

    def committed(self, round, model):
        message = _messages.LocalMessage()
        about = message.committed
        about.run, about.run_name, about.round, about.version = 1, "run", round, round
        about.model_bytes = self.schema.nbytes
        self._send(message, self._bytes(model))

    def run_active(self, name="run", run=1):
        message = _messages.LocalMessage()
        message.run_active.run, message.run_active.run_name = run, name
        self._send(message)

    def run_ended(self, state="done", name="run", run=1):
        message = _messages.LocalMessage()
        message.run_ended.run, message.run_ended.run_name, message.run_ended.state = run, name, state
        self._send(message)

    def refused(self, round, reason, run=1, weight_max=0):
        message = _messages.LocalMessage()
        refused = message.update_refused
        refused.run, refused.round, refused.reason, refused.weight_max = run, round, reason, weight_max
        self._send(message)

    def detach(self, reason):
        message = _messages.LocalMessage()
        message.detach.reason = reason
        self._send(message)
        self._connection.close()

    def receive(self):
        """The worker's next message, and whether a result's memfd came with it; the memfd is kept."""
        self._connection.settimeout(30)
        head, descriptors, _, _ = socket.recv_fds(self._connection, 4, 1)
        (length,) = struct.unpack("<I", head)
        body = b""
        while len(body) < length:
            body += self._connection.recv(length - len(body))
        if descriptors:
            self._forget()
            (self.result,) = descriptors
        return _messages.LocalMessage.FromString(body), bool(descriptors)

    def answer_of_rank(self):
        """The TaskDone of a rank, whether memory came with it, and the ranges that it answers for, as (first byte, bytes)."""
        numbers = []
        while True:
            message, with_memory = self.receive()
            if message.WhichOneof("body") != "task_ranges":
                break
            numbers += message.task_ranges.numbers
        ranges, end = [], 0
        for gap, count in zip(numbers[::2], numbers[1::2]):
            ranges.append((end + gap, count))
            end += gap + count
        return message, with_memory, ranges

    def result_arrays(self):
        """What the result holds now, by name."""
        data = np.frombuffer(mmap.mmap(self.result, self.schema.nbytes, prot=mmap.PROT_READ), np.uint8).copy()
        return self.schema.views(data)

    def _forget(self):
        if self.result is not None:
            os.close(self.result)
            self.result = None

    def close(self):
        with contextlib.suppress(OSError):  # it may have detached its worker
            self._connection.shutdown(socket.SHUT_WR)
        self.site.close()
        self._forget()
        for descriptor in self._models:
            os.close(descriptor)
        self._connection.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
