"""Nobody waits in silence: what a worker says, and where it looks for its agent."""

import io
import socket
import sys
import threading
import types
import warnings

import numpy as np
import pytest

import fluvial
from fluvial import _places, _progress
from fake_agent import FakeAgent

MODEL = {"w": np.zeros(2, np.float32)}


@pytest.fixture
def agent(tmp_path):
    with FakeAgent(tmp_path / "agent.sock", MODEL) as fake:
        yield fake


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.delenv("FLUVIAL_PROGRESS", raising=False)
    monkeypatch.setattr(_progress, "_enabled", None)
    monkeypatch.setattr(_progress, "_LINES_AFTER_SECONDS", (0.02, 0.04))
    monkeypatch.setattr(_progress, "_BAR_AFTER_SECONDS", 0.02)
    monkeypatch.setattr(_progress, "_BAR_EVERY_SECONDS", 0.02)


def test_a_long_wait_is_a_line_now_and_then(agent, capsys):
    with pytest.raises(TimeoutError):
        next(agent.site.rounds("digits", timeout_s=0.3))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2, "not one a moment"
    assert lines[0].startswith("fluvial: a worker at fake waits for a round of run 'digits', 0 s so far; `fluvial status`")


def test_the_commit_is_waited_for_aloud_too(agent, capsys):
    agent.task(1, MODEL)
    round = next(agent.rounds)
    round.submit(MODEL, samples=1)
    with pytest.raises(TimeoutError):
        round.result(timeout_s=0.2)
    assert "waits for the commit of round 1 of run" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["environment", "call"])
def test_it_can_be_turned_off(agent, capsys, monkeypatch, how):
    if how == "call":
        fluvial.progress(False)
    else:
        monkeypatch.setenv("FLUVIAL_PROGRESS", "off")
    with pytest.raises(TimeoutError):
        next(agent.site.rounds("digits", timeout_s=0.2))
    assert capsys.readouterr().err == ""


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_one_line_that_goes_again(agent, monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(TimeoutError):
        next(agent.site.rounds("digits", timeout_s=0.2))
    assert "\n" not in screen.getvalue() and screen.getvalue().endswith("\r\033[K")
    assert "a worker at fake waits for a round of run 'digits'" in screen.getvalue()
    monkeypatch.setenv("FLUVIAL_PROGRESS", "lines")
    with pytest.raises(TimeoutError):
        next(agent.site.rounds("digits", timeout_s=0.2))
    assert screen.getvalue().count("\n") == 2


def test_tqdm_draws_it_where_it_is(agent, monkeypatch):
    bars = []

    class Bar:
        def __init__(self, **about):
            self.about, self.drawn, self.open = about, 0, True
            bars.append(self)

        def refresh(self):
            self.drawn += 1

        def close(self):
            self.open = False

    monkeypatch.setattr(sys, "stderr", Screen())
    monkeypatch.setitem(sys.modules, "tqdm", types.SimpleNamespace(tqdm=Bar))
    with pytest.raises(TimeoutError):
        next(agent.site.rounds("digits", timeout_s=0.3))
    assert len(bars) == 1 and bars[0].drawn > 1 and not bars[0].open
    assert "waits for a round of run 'digits'" in bars[0].about["desc"]


def test_a_mistyped_run_is_told_at_once(agent):
    rounds = agent.site.rounds("digit", timeout_s=0.2)
    agent.task(1, MODEL, run="digits")
    agent.task(2, MODEL, run="digits")
    slip = "work of run 'digits', and this worker waits for 'digit'.*Did you mean 'digits'"
    with pytest.warns(RuntimeWarning, match=slip) as told:
        with pytest.raises(TimeoutError):
            next(rounds)
    assert len(told) == 1, "once"
    assert told[0].filename == __file__
    assert agent.receive()[0].task_failed.message == "this worker trains digit"


def test_a_run_that_was_over_before_is_told_and_another_of_its_name_is_waited_for(agent, tmp_path, capsys):
    agent.ended = [(1, "digits", "done"), (4, "digits", "stopped"), (5, "letters", "done")]
    site = attach_another(agent, tmp_path)
    rounds = site.rounds("digits", timeout_s=0.1)
    told_of = "run 4, 'digits', is stopped already, and this waits for another of that name"
    with pytest.raises(TimeoutError, match=told_of):
        next(rounds)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"fluvial: a worker at fake waits for a round of run 'digits' ({told_of}), 0 s so far")
    agent.task(1, MODEL, run="digits")
    assert next(site.rounds("digits")).number == 1
    assert capsys.readouterr().err == "", "what comes at once is the other"
    site.close()


def attach_another(agent, folder):
    """A second worker of the same agent, which from then on plays to that one."""
    path = folder / "again.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    first, accepting = agent._connection, threading.Thread(target=agent._accept, args=(listener,))
    accepting.start()
    site = fluvial.connect(str(path))
    accepting.join()
    listener.close()
    first.close()
    return site


def test_work_of_a_run_with_another_name_is_no_slip(agent):
    rounds = agent.site.rounds("digits", timeout_s=0.1)
    agent.task(1, MODEL, run="letters")
    with pytest.warns(RuntimeWarning) as told, pytest.raises(TimeoutError):
        next(rounds)
    assert "Did you mean" not in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.task(2, MODEL, run="digits")
        assert next(agent.site.rounds("digits")).number == 2


def listening(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_the_agent_of_an_installation_is_found(tmp_path, monkeypatch):
    for name in ("FLUVIAL_WORKER_SOCKET", "FLUVIAL_DATA_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    package = tmp_path / "run" / "worker.sock"
    places = (str(package), "~/fluvial/worker.sock")
    monkeypatch.setattr(_places, "_WORKERS", places)
    assert _places.worker_socket() == str(package), "none is there: the package's is named in the error"
    with listening(tmp_path / "fluvial" / "worker.sock"):
        assert _places.worker_socket() == str(tmp_path / "fluvial" / "worker.sock")
        listening(package).close()  # left behind: nobody listens
        assert _places.worker_socket() == str(tmp_path / "fluvial" / "worker.sock")
        with listening(tmp_path / "data" / "worker.sock"):
            monkeypatch.setenv("FLUVIAL_DATA_DIR", str(tmp_path / "data"))
            assert _places.worker_socket() == str(tmp_path / "data" / "worker.sock")
        monkeypatch.setenv("FLUVIAL_WORKER_SOCKET", "~/mine.sock")
        assert _places.worker_socket() == str(tmp_path / "mine.sock")


def test_the_places_are_those_of_the_documentation():
    assert _places._WORKERS[0] == "/run/fluvial/worker.sock"  # deploy/systemd/fluvial-edge.service, Kubernetes
    assert "~/fluvial/worker.sock" in _places._WORKERS  # docs/operations/install.md
    assert "/var/lib/fluvial-site/worker.sock" in _places._WORKERS  # docs/operations/enrol.md
    assert _places._EVALUATORS[0] == "/var/lib/fluvial/worker.sock"  # deploy/systemd/fluvial-coordinator.service
