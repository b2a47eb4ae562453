"""A few threads that train for many sites: each takes the next round that any of the sites has.

A site costs a connection here, and nothing else between its rounds: no thread, no model, no memory for results.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import select
import signal
import threading
import time
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from . import site
from .round import Round

Step = Callable[[Round, int], Any]
Failed = Callable[[int, BaseException], None]  # is told of the site of that index; called by any thread


class _StepFailed(Exception):
    """What a step raised, told apart from what rounds() raises."""


class Crew:
    """Calls step(round, index) for every round of the run at the sites of `sockets` (by index), on `threads` threads.

    Of one site's rounds one at a time, and the threads go on with other sites until the next one is there.
    """

    def __init__(self, sockets: Mapping[int, str], step: Step, run: str, threads: int, failed: Failed) -> None:
        """Attaches to all of them. A site that `failed` hears of is served no more."""
        self._step, self._run, self._failed = step, run, failed
        self._sites: Dict[int, Tuple[int, site.Site]] = {}  # by file descriptor
        self._lock = threading.Lock()
        self._poll = select.epoll()
        self._awake, self._wake = os.pipe()  # readable once all is over, for every thread
        self._poll.register(self._awake, select.EPOLLIN)
        try:
            for index, socket in sockets.items():
                attached = site.connect(socket)
                attached._ends.begin(run)  # its loops come and go with what there is to do
                self._sites[attached.fileno()] = index, attached
        except BaseException:
            self._close()
            raise
        # Each descriptor tells one thread, and no other until it is armed again.
        for descriptor in self._sites:
            self._poll.register(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(min(threads, len(sockets)))]

    def start(self) -> "Crew":
        for thread in self._threads:
            thread.start()
        return self

    def join(self, timeout_s: Optional[float] = None) -> bool:
        """Until the run is over at every site, or its agent has ended. False: not yet."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
        over = not any(thread.is_alive() for thread in self._threads)
        if over:
            self._close()
        return over

    def _work(self) -> None:
        while self._sites:
            for descriptor, _ in self._poll.poll(maxevents=1):
                if descriptor == self._awake:
                    return
                index, attached = self._sites[descriptor]
                if self._goes_on(index, attached):
                    self._poll.modify(descriptor, select.EPOLLIN | select.EPOLLONESHOT)
                else:
                    self._over(descriptor)

    def _goes_on(self, index: int, attached: site.Site) -> bool:
        """Trains whatever the site has by now. False: nothing more will come."""
        try:
            with contextlib.closing(attached.rounds(self._run, timeout_s=0)) as rounds:
                for round in rounds:
                    try:
                        self._step(round, index)
                    except BaseException as error:
                        raise _StepFailed from error
        except TimeoutError:
            attached.forget_results()
            return True
        except _StepFailed as failed:
            self._failed(index, failed.__cause__ or failed)
        except BaseException as error:  # whatever it is, it is the end of this site's training
            self._failed(index, error)
        return False

    def _over(self, descriptor: int) -> None:
        with self._lock:
            _, attached = self._sites.pop(descriptor)
            is_last = not self._sites
        if not attached.closed:
            self._poll.unregister(descriptor)
        attached.close()
        if is_last:
            os.write(self._wake, b"\0")

    def _close(self) -> None:
        if self._poll.closed:
            return
        while self._sites:
            self._sites.popitem()[1][1].close()
        self._poll.close()
        os.close(self._awake)
        os.close(self._wake)


class CrewProcess:
    """A Crew in a process of its own, as multiprocessing starts them: `step` is inherited, or pickled."""

    def __init__(self, sockets: Mapping[int, str], step: Step, run: str, threads: int) -> None:
        self._news, told = multiprocessing.Pipe(duplex=False)
        self._failure: Optional[Tuple[Optional[int], str]] = None
        arguments = (dict(sockets), step, run, threads, told)
        self._process = multiprocessing.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        told.close()

    def failure(self) -> Optional[Tuple[Optional[int], str]]:
        """The site (None: all that it serves) at which nobody trains any more, and why. None: there is none."""
        ended = self._process.exitcode
        with contextlib.suppress(EOFError):  # it has ended, and said all it had to say
            if self._failure is None and self._news.poll():
                self._failure = self._news.recv()
        if self._failure is None and ended not in (None, 0):
            self._failure = None, f"its process ended with status {ended}"
        return self._failure

    def join(self, timeout_s: Optional[float] = None) -> bool:
        """As Crew.join()."""
        self._process.join(timeout_s)
        return self._process.exitcode is not None

    def end(self) -> None:
        if self._process.exitcode is None:
            self._process.terminate()
        self._process.join()


def _serve(sockets: Mapping[int, str], step: Step, run: str, threads: int, told: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the federation, and these end with it
    lock = threading.Lock()

    def failed(index: Optional[int], error: BaseException) -> None:
        with lock, contextlib.suppress(OSError):  # nobody listens any more
            told.send((index, f"{type(error).__name__}: {error}"))

    try:
        Crew(sockets, step, run, threads, failed).start().join()
    except Exception as error:
        failed(None, error)


def raise_open_files(needed: int) -> None:
    """Lets this process have so many files open, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
