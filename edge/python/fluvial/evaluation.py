"""Evaluating committed models, at the coordinator's side: on data that no site has.

    def accuracy(model):
        return {"test_accuracy": ..., "test_loss": ...}

    fluvial.evaluate(accuracy, model, run="digits")            # each committed model, until the run ends

It attaches to the coordinator's worker socket, on the coordinator's machine. Evaluation delays no round: an evaluator that is
slower than the rounds skips models and takes the newest. The results stand with their rounds: `evaluation` in Admin.rounds(),
`fluvial rounds list`, the console. On the sites' own data models are evaluated by Site.evaluate.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from typing import Any, Callable, Dict, Generator, Iterator, Mapping, Optional, Set, Tuple

import numpy as np

from . import _messages, _places, models
from ._channel import Channel
from ._ends import Ends
from ._numbers import metrics_of, warn_of_not_finite
from ._progress import Waiting
from ._shared import SharedModel
from .config import Config, config_of
from .errors import AgentUnavailable, ProtocolError, RoundClosed
from .schema import Schema
from .selection import Only

Function = Callable[[Any], Mapping[str, float]]


def evaluate(
    function: Function,
    model: Any = None,
    *,
    run: Optional[str] = None,
    socket: Optional[str] = None,
    name: Optional[str] = None,
    patience_s: float = 10.0,
    reconnect_s: float = 0.0,
) -> Dict[int, Dict[str, float]]:
    """Evaluates each committed model with `function`, until the run ends; the results by round.

    function: is given `model` with the committed values in it, or without a model the named arrays; returns metrics by name.
    What it raises counts as a failed evaluation, and ends this with the same exception.
    run: the run's name; None: whichever there is, until the coordinator ends.
    socket: the coordinator's worker socket; by default ``FLUVIAL_EVALUATION_SOCKET``, or the usual places.
    reconnect_s: when the coordinator goes away, how long to try to attach to it again.

    AgentUnavailable: the coordinator went away, and the named run is not over.
    When a run of that name was over before, this waits for another, and says so while it waits.
    """
    results: Dict[int, Dict[str, float]] = {}
    for given in evaluations(run, socket=socket, name=name, patience_s=patience_s, reconnect_s=reconnect_s):
        if model is not None:
            given.load_into(model)
        metrics = function(given.arrays() if model is None else model)
        if not isinstance(metrics, Mapping):
            raise TypeError(
                f"the function returns metrics by name, as {{'accuracy': 0.9}}; this one gave a {type(metrics).__name__} "
                "(samples beside them are for site.evaluate)"
            )
        try:
            given.report(metrics)
        except AgentUnavailable:
            if reconnect_s <= 0:
                raise
            continue  # nobody is there to take it; the next model comes from whoever is there by then
        results[given.round] = metrics_of(metrics)
    return results


def evaluations(
    run: Optional[str] = None,
    *,
    socket: Optional[str] = None,
    name: Optional[str] = None,
    timeout_s: Optional[float] = None,
    patience_s: float = 10.0,
    reconnect_s: float = 0.0,
) -> Iterator["Evaluation"]:
    """The committed models, as they come, for a loop of one's own; each is answered with `report`. Ends when the run does.

    timeout_s: TimeoutError when none came for this long.
    reconnect_s: as evaluate() has it, while this waits for a model; `report` raises AgentUnavailable all the same.
    """
    if run is not None:
        _messages.check_run(run)
    return _evaluations(_Evaluator(run, socket, name, patience_s, reconnect_s), timeout_s)


def _evaluations(evaluator: "_Evaluator", timeout_s: Optional[float]) -> Generator["Evaluation", None, None]:
    with evaluator:
        while True:
            given = evaluator.next(timeout_s)
            if given is None:
                return
            try:
                yield given
            except BaseException as error:
                given._give_up(f"{type(error).__name__}: {error}")
                raise
            given._give_up("the evaluator went on without a result")


class _Evaluator:
    """The attachment to the coordinator, which may come and go."""

    def __init__(
        self, run: Optional[str], socket: Optional[str], name: Optional[str], patience_s: float, reconnect_s: float
    ) -> None:
        self._run = run
        self._path = socket or _places.evaluation_socket()
        self._attach = _messages.LocalMessage().attach
        self._attach.protocol = _messages.PROTOCOL
        self._attach.worker = name or f"python-{os.getpid()}"
        self._attach.evaluates = True
        self._patience_s, self._reconnect_s = patience_s, reconnect_s
        self._ends = Ends()
        self.looked_at: Set[int] = set()  # runs of which a model was loaded
        self.not_finite: Set[Tuple[str, str]] = set()  # runs and metrics that a warning was about

    def __enter__(self) -> "_Evaluator":
        if self._run is not None:
            self._ends.begin(self._run)
        self._open_channel(self._patience_s)
        return self

    def _open_channel(self, patience_s: float) -> None:
        self.channel = Channel.attach(self._path, self._attach, patience_s=patience_s)
        self._ends.attached(self.channel.active)

    def __exit__(self, *_: object) -> None:
        self.channel.close("the evaluator ends")

    def next(self, timeout_s: Optional[float]) -> Optional["Evaluation"]:
        """The next model; None when the run has ended, or without a run's name the coordinator."""
        while True:
            try:
                return self._next(timeout_s)
            except AgentUnavailable as gone:
                if self._reconnect_s <= 0:
                    raise
                self._open_channel(self._reconnect_s)
                warnings.warn(f"{gone}: this evaluator has attached to it again", RuntimeWarning, stacklevel=3)

    def _next(self, timeout_s: Optional[float]) -> Optional["Evaluation"]:
        run = self._run
        end = None if timeout_s is None else time.monotonic() + timeout_s  # whatever else comes meanwhile
        waiting = Waiting(f"evaluator at {self.channel.node}", f"a model of run {run!r}" if run else "a committed model")
        if run is not None and self._ends.before(self.channel.ended, run, waiting):
            return None
        while True:
            message, descriptor = self._receive(waiting, None if end is None else max(0.0, end - time.monotonic()))
            body = message.WhichOneof("body")
            if body == "task":
                if descriptor is None:
                    raise ProtocolError("the coordinator sent a task without its model")
                given = Evaluation(self, message.task, SharedModel(descriptor, message.task.model_bytes))
                if run is None or given.run in (run, ""):  # a coordinator of version 0.2 does not say which run
                    self._ends.taken[given.run_id] = given.run
                    return given
                given._give_up(f"this evaluator evaluates {run}")
                waiting.another_run(given.run, run)
                continue
            if descriptor is not None:
                os.close(descriptor)
            if body == "detach":
                self.channel.close()
                if run is None:
                    return None
                raise AgentUnavailable(f"the coordinator ended ({message.detach.reason}), and run {run} is not over")
            if body == "run_active":
                self._ends.active(message.run_active)
            if body == "run_ended" and run is not None and self._ends.is_of(message.run_ended, run):
                return None

    def _receive(self, waiting: Waiting, timeout_s: Optional[float]) -> Tuple[Any, Optional[int]]:
        try:
            return waiting.receive(self.channel, timeout_s)
        except AgentUnavailable as gone:
            of = f", and run {self._run} is not over" if self._run is not None else ""
            raise AgentUnavailable(f"the coordinator went away{of}") from gone


class Evaluation:
    """A committed model to be evaluated."""

    def __init__(self, evaluator: _Evaluator, task: Any, model: SharedModel) -> None:
        self._evaluator = evaluator
        self._channel = evaluator.channel
        self._id = task.id
        self._model = model
        self._open = True
        self.run: str = task.run_name
        self.run_id: int = task.run
        self.round: int = task.round  # that committed it
        self.version: int = task.version
        self.config: Config = config_of(task)  # the plan's [worker] table, as that round had it
        self.parameters: Dict[str, float] = dict(task.parameters)  # its numbers alone
        self.schema = Schema.from_message(task.schema)

    def arrays(self) -> Dict[str, np.ndarray]:
        """The model as named, read-only arrays over shared memory, without a copy. They stay valid for good."""
        return self.schema.views(self._model.array)

    def load_into(self, model: Any, *, only: Only = None) -> None:
        """Copies it into a torch module, a state dict or a dict of arrays, as Round.load_into does."""
        models.load_into(model, self.schema, self.arrays(), only)
        if only is None and self.run_id not in self._evaluator.looked_at:
            self._evaluator.looked_at.add(self.run_id)
            models.warn_of_others(model, self.schema)

    def report(self, metrics: Mapping[str, float]) -> None:
        """The result; once. Numbers by name."""
        if not self._open:
            raise RoundClosed(f"the model of round {self.round} has its result already")
        numbers = metrics_of(metrics)
        of = f"the evaluation of round {self.round} of {self.run}"
        warn_of_not_finite(numbers, of, self.run, self._evaluator.not_finite)
        message = _messages.LocalMessage()
        message.task_done.id = self._id
        message.task_done.metrics.update(numbers)
        self._open = False
        self._channel.send(message)

    def _give_up(self, reason: str) -> None:
        if not self._open:
            return
        self._open = False
        message = _messages.LocalMessage()
        message.task_failed.id = self._id
        message.task_failed.message = reason[:1024]
        with contextlib.suppress(AgentUnavailable):  # then nobody waits for it
            self._channel.send(message)
