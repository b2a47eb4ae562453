"""What is said while somebody waits. For rounds, a line for each that is committed. By a worker: on a terminal a line that
counts (tqdm, where it is installed), else a line now and then.

FLUVIAL_PROGRESS=off, or fluvial.progress(False): nothing. FLUVIAL_PROGRESS=lines: whole lines, on a terminal too.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import Any, Optional, Set, Tuple

_LINES_AFTER_SECONDS = (5.0, 30.0, 120.0)
_LINE_EVERY_SECONDS = 600.0
_BAR_AFTER_SECONDS = 2.0
_BAR_EVERY_SECONDS = 0.5
_enabled: Optional[bool] = None  # None: as the environment says


def progress(enabled: bool) -> None:
    """Whether workers of this process say what they wait for."""
    global _enabled
    _enabled = enabled


def _mode() -> str:
    """ "off", "lines" or "bar"."""
    asked = os.environ.get("FLUVIAL_PROGRESS", "").lower()
    if _enabled is False or (_enabled is None and asked in ("off", "0", "no", "false")):
        return "off"
    return "bar" if asked != "lines" and sys.stderr is not None and sys.stderr.isatty() else "lines"


class Waiting:
    """One wait: of whom, and for what. `receive` says so once it takes long."""

    def __init__(self, who: str, what: str, hint: str = "`fluvial status` at the coordinator says what runs") -> None:
        self._who, self._what, self._hint = who, what, hint
        self._begun = time.monotonic()
        self._lines = 0
        self._bar: Any = None
        self._warned: Set[Tuple[str, str]] = set()
        self._note = ""

    def receive(self, channel: Any, timeout_s: Optional[float] = None) -> Any:
        """channel.receive(timeout_s), with words."""
        try:
            return self._receive(channel, timeout_s)
        except TimeoutError as error:
            raise TimeoutError(self._in_vain()) from error

    def _in_vain(self) -> str:
        said = f"{self._who} has waited in vain for {self._what}, for {time.monotonic() - self._begun:.3g} s"
        for there, wanted in sorted(self._warned):
            said += f"; there is work of run {there!r}{_perhaps(there, wanted)}"
        return "; ".join(filter(None, (said, self._note, self._hint)))

    def _receive(self, channel: Any, timeout_s: Optional[float]) -> Any:
        end = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while True:
                left = None if end is None else max(0.0, end - time.monotonic())
                pause = self._pause()
                if pause is None or (left is not None and left <= pause):
                    return channel.receive(left)
                try:
                    return channel.receive(pause)
                except TimeoutError:
                    self._say()
        finally:
            if self._bar is not None:
                self._bar.close()
                self._bar = None

    def another_run(self, there: str, wanted: Optional[str]) -> None:
        """Rounds of another run came by, which this worker leaves to others: a name that was mistyped looks like that."""
        if wanted is None or (there, wanted) in self._warned:
            return
        self._warned.add((there, wanted))
        text = f"{self._who}: there is work of run {there!r}, and this worker waits for {wanted!r}; it leaves that to others"
        warnings.warn(text + _perhaps(there, wanted), RuntimeWarning, stacklevel=4)

    def ended_before(self, run: str, number: int, state: str) -> None:
        """A run of that name was over before: who waits for that one waits in vain, and hears of it when it takes long."""
        self._note = f"run {number}, {run!r}, is {state} already, and this waits for another of that name"

    def _pause(self) -> Optional[float]:
        """Until there is something to say; None: never."""
        mode, waited = _mode(), time.monotonic() - self._begun
        if mode == "off":
            return None
        if mode == "bar":
            return _BAR_EVERY_SECONDS if waited >= _BAR_AFTER_SECONDS else _BAR_AFTER_SECONDS - waited
        if self._lines < len(_LINES_AFTER_SECONDS):
            return max(0.01, _LINES_AFTER_SECONDS[self._lines] - waited)
        return _LINE_EVERY_SECONDS

    def _say(self) -> None:
        waited = time.monotonic() - self._begun
        note = f" ({self._note})" if self._note else ""
        text = f"fluvial: {self._who} waits for {self._what}{note}"
        if _mode() != "bar":
            self._lines += 1
            print(f"{text}, {_seconds(waited)} so far; {self._hint}", file=sys.stderr, flush=True)
            return
        if self._bar is None:
            self._bar = _bar(text)
        self._bar.refresh()


class RoundLines:
    """Prints a line for each round that was committed since it last looked, or for each `every`-th."""

    def __init__(self, admin: Any, run: int, every: int = 1) -> None:
        self._admin, self._run, self._every, self._next = admin, run, every, 1

    def print_new(self) -> None:
        for round in self._admin.rounds(self._run, self._next):
            self._next = round["round"] + 1
            if round["round"] % self._every:
                continue
            metrics = {**round["metrics"], **round["evaluation"]}
            words = "".join(f"  {name} {value:.4g}" for name, value in metrics.items())
            print(f"round {round['round']}: {len(round['contributors'])} sites{words}  {round['seconds']:.2f} s", flush=True)


class Sending:
    """A model on its way to the coordinator: how far it is, once that takes long."""

    def __init__(self, size: int) -> None:
        self._size, self._begun, self._lines, self._said_at, self._is_drawn = size, time.monotonic(), 0, 0.0, False

    def have(self, sent: int) -> None:
        """So many bytes are there."""
        mode, waited = _mode(), time.monotonic() - self._begun
        text = f"fluvial: {sent / 2**20:.0f} of {self._size / 2**20:.0f} MiB of the model are sent"
        if mode == "bar" and waited >= _BAR_AFTER_SECONDS and waited - self._said_at >= _BAR_EVERY_SECONDS:
            self._said_at, self._is_drawn = waited, True
            sys.stderr.write(f"\r{text}\033[K")
            sys.stderr.flush()
        elif mode == "lines" and waited >= self._next_line():
            self._lines += 1
            print(f"{text}, after {_seconds(waited)}", file=sys.stderr, flush=True)

    def cut(self, why: Exception, pause: float) -> None:
        self.close()
        if _mode() != "off":
            print(f"fluvial: {why}; going on with the model in {pause:.1f} s", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._is_drawn = False

    def _next_line(self) -> float:
        known = len(_LINES_AFTER_SECONDS)
        if self._lines < known:
            return _LINES_AFTER_SECONDS[self._lines]
        return _LINES_AFTER_SECONDS[-1] + (self._lines - known + 1) * _LINE_EVERY_SECONDS


class _PlainBar:
    """For a terminal without tqdm."""

    def __init__(self, text: str) -> None:
        self._text, self._begun = text, time.monotonic()

    def refresh(self) -> None:
        sys.stderr.write(f"\r{self._text}, {_seconds(time.monotonic() - self._begun + _BAR_AFTER_SECONDS)} so far\033[K")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()


def _bar(text: str) -> Any:
    try:
        from tqdm import tqdm
    except ImportError:
        return _PlainBar(text)
    return tqdm(desc=text, total=None, leave=False, bar_format="{desc}, {elapsed} so far", file=sys.stderr)


def _perhaps(there: str, wanted: str) -> str:
    import difflib

    return f". Did you mean {there!r}?" if difflib.get_close_matches(wanted, [there], cutoff=0.75) else ""


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
