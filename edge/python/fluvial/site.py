"""What a training script holds: its connection to the agent."""

from __future__ import annotations

import collections
import contextlib
import os
import threading
import time
import warnings
import weakref
from typing import Any, Deque, Dict, Generator, Iterator, List, Mapping, Optional, Set, Tuple

import numpy as np

from . import _messages, _places, models
from ._channel import Channel
from ._ends import Ends
from ._numbers import metrics_of
from ._progress import Waiting
from ._results import Results
from ._shared import SharedModel
from .errors import (
    AgentRefused, AgentUnavailable, ModelMismatch, ProtocolError, RoundClosed, RunEnded, TooManySamples, UpdateRefused,
)  # fmt: skip
from .overlap import OverlappedRound
from .round import Round
from .selection import Only

_RANKS_MAX = 64
_HEARD_SECONDS = 5.0


def connect(
    socket: Optional[str] = None,
    *,
    name: Optional[str] = None,
    group: Optional[str] = None,
    rank: int = 0,
    ranks: int = 0,
    device: bool = True,
    patience_s: float = 10.0,
) -> "Site":
    """Attaches to the agent (`fluvial edge`) on this machine.

    socket: the agent's worker socket; by default ``FLUVIAL_WORKER_SOCKET``, or where an agent listens that was installed as
    the documentation says (the package's, a user's own, a container's).
    name: what the agent's logs and the status call this worker, and by which it knows a worker that comes back: one of that name
    in another process, which is stuck or was forgotten, ends with AgentRefused. By default one of this connection's own.
    group, rank, ranks: this process is one rank of a sharded trainer. The ranks of a group are one worker to the agent:
    each is given every task, and hands over its share (Round.submit_shard). At most 64.
    device: hand results that are on a GPU over where they are, when the agent uses that GPU; otherwise, and where that
    cannot be, they go through host memory.
    patience_s: how long to wait for an agent that is only just starting.

    The connection is of this process: a process that is forked off closes its copy, and connects for itself. Threads may have
    one each. Of a thread that connects twice to an agent, the connection over which it does not iterate is closed, and attaches
    again when it is used.

    AgentUnavailable: nobody listens there. AgentRefused: the agent said no, and why.
    """
    if group is None and (rank or ranks):
        raise ValueError("rank and ranks belong to a group: fluvial.connect(group=..., rank=..., ranks=...)")
    if group is not None and not 0 <= rank < ranks <= _RANKS_MAX:
        raise ValueError(f"rank {rank} of {ranks}; a group has 1 to {_RANKS_MAX} ranks, counted from 0")
    path = socket or _places.worker_socket()
    attach = _messages.LocalMessage().attach
    attach.protocol = _messages.PROTOCOL
    attach.worker = name or (_own_name() if group is None else f"{group}-{rank}")
    attach.named = name is not None and group is None
    attach.wants_models = True
    if group is not None:
        attach.group, attach.rank, attach.ranks = group, rank, ranks
    return Site(path, attach, patience_s, device)


def _own_name() -> str:
    """A name that no other connection of this process has."""
    first = f"python-{os.getpid()}"
    taken = {site._attach.worker for site in _others() if not site.closed}
    return next(name for name in (first, *(f"{first}-{i}" for i in range(2, len(taken) + 2))) if name not in taken)


_sites: "weakref.WeakSet[Site]" = weakref.WeakSet()  # of this process
_sites_lock = threading.Lock()


def _others() -> List["Site"]:
    with _sites_lock:
        return list(_sites)


def _forked() -> None:
    global _sites_lock
    _sites_lock = threading.Lock()  # a thread that is not in this process may have had it
    _sites.clear()


os.register_at_fork(after_in_child=_forked)


class Site(contextlib.AbstractContextManager):
    """This process's attachment to the agent. A context manager; one thread at a time."""

    def __init__(self, path: str, attach: Any, patience_s: float, device: bool) -> None:
        self._path = path
        self._device = device and not attach.ranks  # a rank's share is a part of the model's bytes, in the host's memory
        self._attach = attach
        self._lock = threading.Lock()
        self._thread = threading.get_ident()  # that used it last
        self._watched = False  # somebody waits for its messages in his own way
        self.rank: int = attach.rank  # within its group
        self.ranks: int = attach.ranks  # 0: of no group
        self.error: Optional[BaseException] = None  # that left the `with` block
        self._looked_at: Set[int] = set()  # runs of which a model was loaded, and looked at for what they do not have
        self._ends = Ends()
        self._refusals: Dict[int, Tuple[int, str]] = {}  # of each run the last round that counts nowhere, and why
        self._unheard: Optional[Tuple[int, int, str]] = None  # run, round and reason of a refusal of the last answer
        self._not_finite: Set[Tuple[str, str]] = set()  # runs and metrics that a warning was about
        self.left: Optional[str] = None  # the round that its loop left in the middle last, until it takes another
        self.works_for: Tuple[Optional[str], Optional[int]] = None, None  # the run it asked for last; its number, with a round of it
        self._open_channel(patience_s)
        with _sites_lock:
            _sites.add(self)

    def _open_channel(self, patience_s: float = 0.0) -> None:
        before: Optional[Channel] = getattr(self, "_channel", None)
        if before is not None and before.replaced:
            raise AgentRefused(f"this worker does not come back: {before.replaced}")
        del self._attach.follows[:]
        self._attach.follows.extend(self._ends.followed())
        self._channel = Channel.attach(self._path, self._attach, patience_s=patience_s)
        self._ends.attached(self._channel.active)
        self.detach_reason: Optional[str] = None  # why the agent ended the connection, once it did
        self._inbox: Deque[Tuple[Any, Any]] = collections.deque()  # read, and nobody's yet
        self._commit: Optional[Tuple[int, int, SharedModel]] = None  # run, round and model: the newest
        # Runs that are over, with their state; of those from before it attached, the ones that it took part in.
        self._ended: Dict[int, str] = {ended.run: ended.state for ended in self._channel.ended if ended.run in self._ends.taken}
        self._results = Results(self._channel.devices if self._device else (), sparse=self.ranks > 1)
        self._current: Optional[Round] = None
        self._overlapped: Optional[Round] = None  # the round that goes on from one in the air
        for other in _others():
            if other is not self and other._path == self._path and other._thread == self._thread:
                other._give_way()

    def _give_way(self) -> None:
        """The thread that used this connection has another one: a round that came here would wait for nobody."""
        if self.ranks or self._watched or not self._lock.acquire(blocking=False):
            return
        try:
            self._say_good_bye("its thread uses another connection")
        finally:
            self._lock.release()

    @property
    def name(self) -> str:
        """The site's name in the federation."""
        return self._channel.node

    def rounds(
        self, run: Optional[str] = None, *, timeout_s: Optional[float] = None, reconnect_s: float = 0.0
    ) -> Generator[Round, None, None]:
        """The rounds of a run, as they come: blocks until there is work, ends when the run ends.

        run: the run's name; None: whichever run asks this site, until the agent ends. A round of another run is left
        to others: this worker declines it.
        timeout_s: TimeoutError when no round of it came for this long; it names the runs whose rounds came.
        reconnect_s: when the agent goes away while this waits, how long to try to attach to it again.

        AgentUnavailable: the agent went away, and the named run is not over. The next rounds() attaches again. When the run
        has ended meanwhile, it ends as ever.

        The run whose end ends it is the one of that name that goes on when the loop begins, or that begins later, whether
        this site is drawn for its rounds or not. A run that was over before the loop began, and that this worker was not
        in, is the past: it waits for another of that name; the lines that say what it waits for, and the TimeoutError, say
        that, too.

        RuntimeWarning: what the site's workers gave in a round counts nowhere, and why; `round.previous` has it, too.
        TooManySamples: because their `samples` are more together than the site's token allows.

        A round that is not answered when the next one is asked for counts as failed: the site sits it out. Leaving the
        loop in the middle of a round (break, an exception, Ctrl-C) hands it back instead: it goes to another worker
        that is there, and this one attaches again when it next asks for rounds.
        """
        if run is not None:
            _messages.check_run(run)
        return self._rounds(run, timeout_s, reconnect_s)

    def _rounds(
        self, run: Optional[str], timeout_s: Optional[float], reconnect_s: float
    ) -> Generator[Round, None, None]:
        with self._attached(reconnect_s), self._following(run):
            self.works_for = run, None
            while True:
                try:
                    self._current = self._overlapped_round(timeout_s) or self._next_round(run, timeout_s)
                except AgentUnavailable as gone:
                    if reconnect_s <= 0:
                        raise
                    self._open_channel(reconnect_s)
                    warnings.warn(f"{gone}: this worker has attached to it again", RuntimeWarning, stacklevel=2)
                    continue
                if self._current is None:
                    return
                self.left = None
                yield self._current

    def evaluate(
        self, function: Any, model: Any = None, *, run: str, only: Only = None, timeout_s: Optional[float] = None
    ) -> Dict[str, float]:
        """Answers a run that evaluates a model on the sites' own data (Admin.evaluate); returns this site's metrics.

        function: is given `model` with the round's values in it, or without a model the named arrays; returns metrics by name
        and how many samples they are of, by which the mean over the sites is weighted: ({"accuracy": 0.9}, 500).
        """
        found: Dict[str, float] = {}
        for round in self.rounds(run, timeout_s=timeout_s):
            if model is not None:
                round.load_into(model, only=only)
            metrics, samples = _metrics_and_samples(function(round.arrays() if model is None else model))
            round.report(metrics, samples=samples)
            found = metrics_of(metrics)
        return found

    def allreduce(self, values: Any, run: str, *, samples: int = 1, timeout_s: Optional[float] = None) -> Any:
        """The mean of `values` over all sites (and a site's workers), weighted with their `samples`.

        values: an array or tensor, or a mapping from names to such, of the shapes of the run's model: one that began as
        fluvial.zeros_like(values), with the optimizer `mean`. Each call is one round of the run, which all sites enter.
        Returns the same kind of thing, in the dtypes given; numpy arrays are read-only.

        PlanMismatch: the run has another optimizer. UpdateRefused: the site's values were refused (one is not finite, say), and why;
        the next call answers the round's next attempt, or the next round. RunEnded: the run is over. AgentUnavailable: the agent is gone, and the run
        is not over. TimeoutError: no round, or no result, within `timeout_s`; after it this process may be a round behind the
        others.
        """
        _messages.check_run(run)
        with self._attached(), self._following(run):
            self.works_for = run, None
            round = self._current = self._next_round(run, timeout_s)
            if round is None:
                raise RunEnded(f"run {run} is over")
            round._check_is_mean("allreduce")
            named = values
            if not isinstance(values, Mapping):
                if len(round.schema) != 1:
                    raise ModelMismatch(f"run {run} has {len(round.schema)} tensors; pass a mapping from their names")
                named = {tensor.name: values for tensor in round.schema}
            round.submit_update(named, samples=samples)
            result = round.result(timeout_s)
            means = {name: models.like(given, result[name]) for name, given in named.items() if name in result}
            return means if named is values else next(iter(means.values()))

    @contextlib.contextmanager
    def _attached(self, patience_s: float = 0.0) -> Iterator[None]:
        """The connection, to one user of rounds at a time; a round it leaves in the middle is handed back."""
        if self._channel.is_of_parent:
            raise AgentUnavailable(self._channel.closed_because)
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("rounds() is already being iterated over; one loop a connection")
        try:
            self._thread = threading.get_ident()
            if self._channel.closed:
                self._open_channel(patience_s)
            yield
        finally:
            current, self._current, self._overlapped = self._current, None, None
            if current is not None:
                if current._open:
                    self.left = f"round {current.number} of {current.run}"
                    self._say_good_bye("the worker left in the middle of a round")
                current._let_go()
            self._lock.release()

    @contextlib.contextmanager
    def _following(self, run: Optional[str]) -> Iterator[None]:
        """A loop over the run of that name: of what ended before, it waits for nothing."""
        with contextlib.suppress(AgentUnavailable):  # whoever asks for a round hears of it
            while self.detach_reason is None and self._channel.has_message():
                self._receive(None)
        if run is None:
            yield
            return
        self._ends.begin(run)
        try:
            yield
        finally:
            self._ends.end(run)

    def _overlapped_round(self, timeout_s: Optional[float]) -> Optional[Round]:
        """The round that goes on from the current one, if it was submitted so. Lets that go."""
        current, self._current = self._current, None
        if current is not None:
            if current._open:
                current.fail("the training loop left the round without an update")
            current._let_go()
        before, self._overlapped = self._overlapped, None
        if before is not None and not self._over(before):
            return OverlappedRound(before, timeout_s)
        return None

    def _next_round(self, run: Optional[str], timeout_s: Optional[float], *, peek: bool = False) -> Optional[Round]:
        """The next round of the run that the agent gives out; None when the run has ended, or the agent without a run's name.

        peek: the end stays there for whoever asks next; None for the agent's, too.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s  # whatever else comes meanwhile
        waiting = Waiting(f"a worker at {self.name}", f"a round of run {run!r}" if run else "a round of any run")
        if run is not None and self._ends.before(self._channel.ended, run, waiting, peek):
            return None
        while True:
            if not self._inbox:
                self._receive(None if end is None else max(0.0, end - time.monotonic()), waiting)
                continue
            message, model = self._inbox.popleft()
            body = message.WhichOneof("body")
            if body == "task":
                given = Round(self, message.task, model)
                if run is None or given.run == run:
                    self._ends.taken[given.run_id] = given.run
                    self.works_for = given.run, given.run_id
                    return given
                given.fail(f"this worker trains {run}")
                waiting.another_run(given.run, run)
            elif body == "detach" or (run is not None and self._ends.is_followed(message.run_ended, run)):
                if peek:
                    self._inbox.appendleft((message, None))
                elif body == "run_ended":
                    self._ends.told(message.run_ended.run)
                else:
                    self._channel.close()
                    if run is not None:
                        raise AgentUnavailable(
                            f"the agent ended ({message.detach.reason}), and run {run} is not over; connect again when it is back"
                        )
                return None
            elif run is not None and self._ends.is_of(message.run_ended, run):
                waiting.ended_before(run, message.run_ended.run, message.run_ended.state)

    def _receive(self, timeout_s: Optional[float], waiting: Optional[Waiting] = None) -> None:
        """Reads one message and puts it where it belongs."""
        message, descriptor = (waiting.receive if waiting else Channel.receive)(self._channel, timeout_s)
        body = message.WhichOneof("body")
        if body == "detach" and message.detach.replaced:
            self._channel.close()
            raise AgentRefused(f"this worker ends: {message.detach.reason}")
        if body == "detach" and self._results.unheard:
            self._device = False
            self._channel.close()
            raise AgentRefused(f"the agent took no result from a GPU's memory: {message.detach.reason}")
        self._results.unheard = False
        model: Any = None
        if descriptor is not None:
            size = message.task.model_bytes if body == "task" else message.committed.model_bytes
            model = SharedModel(descriptor, size)
        if body in ("task", "committed") and model is None:
            raise ProtocolError(f"the agent sent a {body} without its model")
        if body == "committed":
            self._commit = message.committed.run, message.committed.round, model
        elif body in ("task", "run_ended", "detach"):
            self._inbox.append((message, model))
            if body == "run_ended":
                self._ended[message.run_ended.run] = message.run_ended.state
                self._ends.ended(message.run_ended.run)
                self._results.forget(message.run_ended.run)
            elif body == "detach":
                self.detach_reason = message.detach.reason
        elif body == "run_active":
            self._ends.active(message.run_active)
        elif body == "update_refused":
            self._refused(message.update_refused)
        else:
            raise ProtocolError(f"the agent sent {body}, which no worker expects")

    def _refused(self, refused: Any) -> None:
        run = self._ends.taken.get(refused.run)
        if run is None:  # of a run that it leaves to other workers
            return
        self._refusals[refused.run] = refused.round, refused.reason
        if refused.weight_max:  # and so it would be in each later round
            raise TooManySamples(f"round {refused.round} of {run} does without {self.name}: {refused.reason}")
        self._unheard = refused.run, refused.round, refused.reason
        warnings.warn(
            f"the update of {self.name} in round {refused.round} of {run} counts nowhere: {refused.reason}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _committed(self, round: Round, timeout_s: Optional[float]) -> SharedModel:
        end = None if timeout_s is None else time.monotonic() + timeout_s
        waiting = Waiting(f"a worker at {self.name}", f"the commit of round {round.number} of {round.run}")
        if round._open:
            raise RoundClosed(f"round {round.number} of {round.run} has no answer yet; submit comes before result")
        while True:
            if self._commit is not None and self._commit[0] == round.run_id and self._commit[1] >= round.number:
                _, number, model = self._commit
                if number > round.number:
                    raise RoundClosed(f"the model of round {round.number} of {round.run} went by; {number} is committed")
                return model
            if round.run_id in self._ended:
                state = self._ended[round.run_id]
                raise RunEnded(f"run {round.run} is {state}, and round {round.number} was not committed")
            self._check_not_refused(round)
            if self.detach_reason is not None:
                self._channel.close()
                raise AgentUnavailable(f"the agent ended ({self.detach_reason}) before the commit of round {round.number}")
            self._receive(None if end is None else max(0.0, end - time.monotonic()), waiting)

    def _check_not_refused(self, round: Round) -> None:
        """UpdateRefused, once for an answer: the round may be waiting for this worker to answer its next attempt."""
        unheard, self._unheard = self._unheard, None
        if unheard is not None and unheard[:2] == (round.run_id, round.number):
            raise UpdateRefused(round.run, round.number, unheard[2])
        tasks = (message.task for message, _ in self._inbox if message.WhichOneof("body") == "task")
        if any((task.run, task.round) == (round.run_id, round.number) for task in tasks):
            raise UpdateRefused(round.run, round.number, "the round is tried again, without the results of the attempt before")

    def _over(self, round: Round) -> bool:
        """Whether the agent said, so far, that no more rounds of the run will come."""
        while self.detach_reason is None and self._channel.has_message():
            self._receive(None)
        return round.run_id in self._ended or self.detach_reason is not None

    def _go_on_from(self, round: Round) -> None:
        self._overlapped = round

    def close(self) -> None:
        """Says good-bye to the agent. A round in hand is handed back."""
        self._say_good_bye("the worker ends")

    @property
    def closed(self) -> bool:
        """Whether this end of the connection is closed."""
        return self._channel.closed

    def fileno(self) -> int:
        """Of the connection: readable when there is a message, or its end. For select and its like."""
        self._watched = True
        return self._channel.fileno()

    def forget_results(self) -> None:
        """Frees the host's memory that is kept for the next result; the agent has its own hold of the last one."""
        self._results.forget_host()

    def _say_good_bye(self, reason: str) -> None:
        # A rank that comes back at once would find its own place taken still. And memory of a GPU can be opened only
        # while this process has it.
        heard = self.ranks or self._results.unheard
        self._channel.close(reason, heard_within_s=_HEARD_SECONDS if heard else 0.0)

    def __exit__(self, kind: object, error: Optional[BaseException], *_: object) -> None:
        if isinstance(error, Exception):
            self.error = error
        self.close()


def _metrics_and_samples(answer: Any) -> Tuple[Mapping[str, float], int]:
    """What a function for Site.evaluate returned. TypeError when it is something else."""
    if not (isinstance(answer, (tuple, list)) and len(answer) == 2 and isinstance(answer[0], Mapping)):
        shown = str(answer)[:80] if isinstance(answer, (tuple, list, Mapping)) else f"a {type(answer).__name__}"
        raise TypeError(f"the function returns (metrics by name, samples), as ({{'accuracy': 0.9}}, 500); this one gave {shown}")
    return answer[0], answer[1]
