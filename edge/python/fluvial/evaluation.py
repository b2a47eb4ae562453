"""Evaluating committed models, at the coordinator's side: on data that no site has.

    def accuracy(model):
        return {"test_accuracy": ..., "test_loss": ...}

    fluvial.evaluate(accuracy, model, run="digits")            # each committed model, until the run ends

It attaches to the coordinator's worker socket, on the coordinator's machine. Evaluation delays no round: an evaluator that is
slower than the rounds skips models and takes the newest. The results stand with their rounds: `evaluation` in Admin.rounds(),
`fluvial rounds list`, the console. On the sites' own data models are evaluated by Site.evaluate.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Set

import numpy as np

from . import _messages, _places, models
from ._channel import Channel
from ._progress import Waiting
from ._shared import SharedModel
from .config import Config, config_of
from .errors import ProtocolError, RoundClosed
from .round import check_metrics
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
) -> Dict[int, Dict[str, float]]:
    """Evaluates each committed model with `function`, until the run ends; the results by round.

    function: is given `model` with the committed values in it, or without a model the named arrays; returns metrics by name.
    What it raises counts as a failed evaluation, and ends this with the same exception.
    run: the run's name; None: whichever there is, until the coordinator ends.
    socket: the coordinator's worker socket; by default ``FLUVIAL_EVALUATION_SOCKET``, or the usual places.
    """
    results: Dict[int, Dict[str, float]] = {}
    for given in evaluations(run, socket=socket, name=name, patience_s=patience_s):
        if model is not None:
            given.load_into(model)
        metrics = function(given.arrays() if model is None else model)
        if not isinstance(metrics, Mapping):
            raise TypeError(
                f"the function returns metrics by name, as {{'accuracy': 0.9}}; this one gave a {type(metrics).__name__} "
                "(samples beside them are for site.evaluate)"
            )
        given.report(metrics)
        results[given.round] = {key: float(value) for key, value in metrics.items()}
    return results


def evaluations(
    run: Optional[str] = None,
    *,
    socket: Optional[str] = None,
    name: Optional[str] = None,
    timeout_s: Optional[float] = None,
    patience_s: float = 10.0,
) -> Iterator["Evaluation"]:
    """The committed models, as they come, for a loop of one's own; each is answered with `report`. Ends when the run does.

    timeout_s: TimeoutError when none came for this long.
    """
    if run is not None:
        _messages.check_run(run)
    return _evaluations(run, socket, name, timeout_s, patience_s)


def _evaluations(
    run: Optional[str], socket: Optional[str], name: Optional[str], timeout_s: Optional[float], patience_s: float
) -> Iterator["Evaluation"]:
    path = socket or _places.evaluation_socket()
    attach = _messages.LocalMessage().attach
    attach.protocol = _messages.PROTOCOL
    attach.worker = name or f"python-{os.getpid()}"
    attach.evaluates = True
    channel = Channel.attach(path, attach, patience_s=patience_s)
    looked_at: Set[int] = set()
    try:
        while True:
            given = _next(channel, run, timeout_s, looked_at)
            if given is None:
                return
            try:
                yield given
            except BaseException as error:
                given._give_up(f"{type(error).__name__}: {error}")
                raise
            given._give_up("the evaluator went on without a result")
    finally:
        channel.close("the evaluator ends")


def _next(
    channel: Channel, run: Optional[str], timeout_s: Optional[float], looked_at: Set[int]
) -> Optional["Evaluation"]:
    waiting = Waiting(f"evaluator at {channel.node}", f"a model of run {run!r}" if run else "a committed model")
    while True:
        message, descriptor = waiting.receive(channel, timeout_s)
        body = message.WhichOneof("body")
        if body == "task":
            if descriptor is None:
                raise ProtocolError("the coordinator sent a task without its model")
            given = Evaluation(channel, message.task, SharedModel(descriptor, message.task.model_bytes), looked_at)
            if run is None or given.run in (run, ""):  # a coordinator of version 0.2 does not say which run
                return given
            given._give_up(f"this evaluator evaluates {run}")
            waiting.another_run(given.run, run)
            continue
        if descriptor is not None:
            os.close(descriptor)
        if body == "detach" or (body == "run_ended" and run is not None and message.run_ended.run_name == run):
            return None


class Evaluation:
    """A committed model to be evaluated."""

    def __init__(self, channel: Channel, task: Any, model: SharedModel, looked_at: Set[int]) -> None:
        self._channel = channel
        self._looked_at = looked_at  # runs of which this evaluator has loaded a model
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
        if only is None and self.run_id not in self._looked_at:
            self._looked_at.add(self.run_id)
            models.warn_of_others(model, self.schema)

    def report(self, metrics: Mapping[str, float]) -> None:
        """The result; once. Numbers by name."""
        if not self._open:
            raise RoundClosed(f"the model of round {self.round} has its result already")
        check_metrics(metrics)
        message = _messages.LocalMessage()
        message.task_done.id = self._id
        for key, value in metrics.items():
            message.task_done.metrics[key] = float(value)
        self._open = False
        self._channel.send(message)

    def _give_up(self, reason: str) -> None:
        if not self._open:
            return
        self._open = False
        message = _messages.LocalMessage()
        message.task_failed.id = self._id
        message.task_failed.message = reason[:1024]
        self._channel.send(message)
