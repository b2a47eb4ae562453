"""Agents that are not there, or not what they should be: a clear error, and no descriptor left open."""

import fcntl
import gc
import os
import socket
import struct
import threading

import pytest

import fluvial
from fluvial import _messages, _shared


def frame(message):
    body = message.SerializeToString()
    return struct.pack("<I", len(body)) + body


def attached(node="here", code=0, message=""):
    answer = _messages.LocalMessage()
    answer.attached.node = node
    answer.attached.code = code
    answer.attached.message = message
    return frame(answer)


def task(nbytes=12, **fields):
    message = _messages.LocalMessage()
    message.task.id = 1
    message.task.kind = _messages.KIND_TRAIN
    message.task.run_name = "run"
    message.task.model_bytes = nbytes
    message.task.schema.tensors.add(name="w", dtype=fields.get("dtype", "F32"), shape=[3])
    return frame(message)


class Agent:
    """Answers one worker with given bytes, the last of them with a descriptor, and hangs up."""

    def __init__(self, path, answers, descriptor=None, extra=None):
        self.path = str(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, args=(answers, descriptor, extra))
        self._thread.start()

    def _serve(self, answers, descriptor, extra):
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(1 << 16)
            for number, answer in enumerate(answers):
                if number == len(answers) - 1 and descriptor is not None:
                    descriptors = [descriptor] if extra is None else [descriptor, extra]
                    sent = socket.send_fds(connection, [answer], descriptors)
                    connection.sendall(answer[sent:])
                else:
                    connection.sendall(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._thread.join()
        self._listener.close()


def descriptors():
    gc.collect()  # what an earlier test has left is not of this one
    return len(os.listdir("/proc/self/fd"))


SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
F_SEAL_FUTURE_WRITE = 0x0010


def model(size=12, seals=SIZE_SEALS | fcntl.F_SEAL_WRITE):
    descriptor = os.memfd_create("model", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def test_nobody_listens(tmp_path):
    with pytest.raises(fluvial.AgentUnavailable, match="FLUVIAL_WORKER_SOCKET"):
        fluvial.connect(str(tmp_path / "none"), patience_s=0)
    with pytest.raises(ValueError, match="at most 107 bytes"):
        fluvial.connect("/" + "x" * 107, patience_s=0)


def test_waits_for_an_agent_that_is_starting(tmp_path):
    path = tmp_path / "late"
    agents = []
    starter = threading.Timer(0.05, lambda: agents.append(Agent(path, [attached()])))
    starter.start()
    try:
        site = fluvial.connect(str(path), patience_s=30)
        assert site.name == "here"
        site.close()
    finally:
        starter.join()
        for agent in agents:
            agent.__exit__()


def test_a_refusal_says_why(tmp_path):
    with Agent(tmp_path / "a", [attached(code=4, message="only user 7 may attach")]) as agent:
        with pytest.raises(fluvial.AgentRefused, match="only user 7 may attach"):
            fluvial.connect(agent.path, patience_s=0)


@pytest.mark.parametrize(
    "answers, error",
    [
        ([], fluvial.AgentUnavailable),
        ([b"\x05\x00"], fluvial.AgentUnavailable),
        ([struct.pack("<I", 0)], fluvial.ProtocolError),
        ([struct.pack("<I", 1 << 31)], fluvial.ProtocolError),
        ([struct.pack("<I", 3) + b"\xff\xff\xff"], fluvial.ProtocolError),
        ([task()], fluvial.ProtocolError),
    ],
)
def test_what_is_no_answer(tmp_path, answers, error):
    before = descriptors()
    with Agent(tmp_path / "a", answers) as agent:
        with pytest.raises(error):
            fluvial.connect(agent.path, patience_s=0)
    assert descriptors() == before


def unsealed():
    descriptor = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, 12)
    return descriptor


@pytest.mark.parametrize(
    "make, answer, message",
    [
        (lambda: os.open("/dev/null", os.O_RDONLY), task(), "no memfd"),
        (unsealed, task(), "not sealed"),
        (lambda: model(seals=SIZE_SEALS), task(), "not sealed"),
        (lambda: model(seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE), task(), "not sealed"),
        (lambda: model(11), task(), "11 bytes, expected 12"),
        (lambda: model(13), task(nbytes=13), "13 bytes with a schema of 12"),
        (model, task(dtype="F99"), "F99"),
    ],
)
def test_models_that_cannot_be_trusted(tmp_path, make, answer, message):
    before = descriptors()
    descriptor = make()
    with Agent(tmp_path / "a", [attached(), answer], descriptor) as agent:
        site = fluvial.connect(agent.path, patience_s=0)
        with pytest.raises(fluvial.ProtocolError, match=message):
            next(site.rounds())
        site.close()
    os.close(descriptor)
    assert descriptors() == before


def test_a_task_without_model_or_with_two(tmp_path):
    with Agent(tmp_path / "a", [attached(), task()]) as agent:
        with pytest.raises(fluvial.ProtocolError, match="without its model"):
            next(fluvial.connect(agent.path, patience_s=0).rounds())
    before = descriptors()
    first, second = model(), model()
    with Agent(tmp_path / "b", [attached(), task()], first, second) as agent:
        site = fluvial.connect(agent.path, patience_s=0)
        with pytest.raises(fluvial.ProtocolError, match="more than one"):
            next(site.rounds())
        site.close()
    os.close(first)
    os.close(second)
    assert descriptors() == before


def test_an_agent_that_dies_while_we_wait(tmp_path):
    with Agent(tmp_path / "a", [attached()]) as agent:
        with pytest.raises(fluvial.AgentUnavailable, match="connect again"):
            next(fluvial.connect(agent.path, patience_s=0).rounds())


def nobody_else_has(descriptor):
    """How an agent asks before it uses the memory of a model again (docs/formats/local.md)."""
    set_lease = getattr(fcntl, "F_SETLEASE", 1024)
    try:
        fcntl.fcntl(descriptor, set_lease, fcntl.F_WRLCK)
    except OSError:
        return False
    fcntl.fcntl(descriptor, set_lease, fcntl.F_UNLCK)
    return True


def test_an_array_keeps_the_agent_from_using_its_memory_again():
    memory = model(seals=SIZE_SEALS | F_SEAL_FUTURE_WRITE)
    agents = os.open(f"/proc/self/fd/{memory}", os.O_RDWR)
    try:
        if not nobody_else_has(agents):
            pytest.skip("this kernel grants no leases on memfds")
        handed_over = _shared.SharedModel(os.open(f"/proc/self/fd/{memory}", os.O_RDONLY), 12)
        assert not nobody_else_has(agents)
        part = handed_over.array[4:8]
        del handed_over
        assert not nobody_else_has(agents), "a part of it is held"
        assert not part.flags.writeable
        del part
        assert nobody_else_has(agents)
    finally:
        os.close(agents)
        os.close(memory)
