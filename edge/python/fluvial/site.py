"""What a training script holds: its connection to the agent, and the round it is in."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any, Dict, Iterator, Mapping, Optional

import numpy as np

from . import _messages, models
from ._channel import Channel
from ._shared import SharedModel, write_sealed
from .errors import ProtocolError, RoundClosed
from .schema import Schema

_DEFAULT_SOCKETS = ("/run/fluvial/worker.sock", "/var/lib/fluvial/edge/worker.sock")
_WEIGHT_MAX = 2**29 - 1
_METRICS_MAX = 64
_METRIC_NAME_MAX = 64


def connect(socket: Optional[str] = None, *, name: Optional[str] = None, patience_s: float = 10.0) -> "Site":
    """Attaches to the agent (`fluvial edge`) on this machine.

    socket: the agent's worker socket; by default ``FLUVIAL_WORKER_SOCKET``, or the usual places.
    name: what the agent's logs call this worker.
    patience_s: how long to wait for an agent that is only just starting.

    AgentUnavailable: nobody listens there. AgentRefused: the agent said no, and why.
    """
    path = socket or os.environ.get("FLUVIAL_WORKER_SOCKET")
    if path is None:
        path = next((candidate for candidate in _DEFAULT_SOCKETS if os.path.exists(candidate)), _DEFAULT_SOCKETS[0])
    return Site(path, name or f"python-{os.getpid()}", patience_s)


def _check_metrics(metrics: Mapping[str, float]) -> None:
    if len(metrics) > _METRICS_MAX:
        raise ValueError(f"{len(metrics)} metrics are too many: at most {_METRICS_MAX}")
    for name in metrics:
        if not (1 <= len(name) <= _METRIC_NAME_MAX and all("!" <= letter <= "~" for letter in name)):
            raise ValueError(f"metric {name!r}: a name is 1 to {_METRIC_NAME_MAX} printable ASCII characters, no blanks")


class Round:
    """One round's work: the model to start from, and where the trained one goes. Made by Site.rounds()."""

    def __init__(self, site: "Site", task: Any, model: SharedModel) -> None:
        self._site = site
        self._id = task.id
        self._model: Optional[SharedModel] = model
        self._open = True
        self.run: str = task.run_name
        self.run_id: int = task.run
        self.number: int = task.round
        self.version: int = task.version  # of the model
        self.local_steps: int = task.local_steps
        self.parameters: Dict[str, float] = dict(task.parameters)  # the plan's [worker] table
        self.schema = Schema.from_message(task.schema)
        if self.schema.nbytes != task.model_bytes:
            raise ProtocolError(f"a model of {task.model_bytes} bytes with a schema of {self.schema.nbytes}")

    def arrays(self) -> Dict[str, np.ndarray]:
        """The global model as named, read-only arrays over shared memory, without a copy. They stay valid for good."""
        if self._model is None:
            raise RoundClosed(f"round {self.number} of {self.run} is over; its model was let go")
        return self.schema.views(self._model.array)

    def load_into(self, model: Any) -> None:
        """Copies the global model into a torch module, a state dict or a dict of arrays (rules: fluvial.models)."""
        models.load_into(model, self.schema, self.arrays())

    def submit(self, model: Any, *, samples: int, metrics: Optional[Mapping[str, float]] = None) -> None:
        """Hands the trained model over: the site sends what changed, weighted with `samples` (at least 1).

        Once a round. The model's values are copied out before this returns, so training may go on at once.
        """
        self._check_open()
        if not 1 <= int(samples) <= _WEIGHT_MAX:
            raise ValueError(f"samples is {samples}, expected 1 to {_WEIGHT_MAX}")
        _check_metrics(metrics or {})
        message = _messages.LocalMessage()
        message.task_done.id = self._id
        message.task_done.weight = int(samples)
        for key, value in (metrics or {}).items():
            message.task_done.metrics[key] = float(value)
        descriptor = write_sealed(models.gather(model, self.schema), self.schema.nbytes)
        try:
            self._close()
            self._site._channel.send(message, descriptor)
        finally:
            os.close(descriptor)

    def fail(self, reason: str) -> None:
        """Tells the site that this worker sits the round out; it goes on with the others, as the plan says."""
        self._check_open()
        self._close()
        message = _messages.LocalMessage()
        message.task_failed.id = self._id
        message.task_failed.message = reason[:1024]
        self._site._channel.send(message)

    def _check_open(self) -> None:
        if not self._open:
            raise RoundClosed(f"round {self.number} of {self.run} was answered already; ask for the next one")

    def _close(self) -> None:
        self._open = False
        self._model = None

    def __repr__(self) -> str:
        return f"<fluvial.Round {self.number} of {self.run}, {self.local_steps} local steps>"


class Site(contextlib.AbstractContextManager):
    """This process's attachment to the agent. A context manager; one thread at a time."""

    def __init__(self, path: str, name: str, patience_s: float) -> None:
        self._path = path
        self._worker = name
        self._channel = Channel.attach(path, name, patience_s=patience_s)
        self._lock = threading.Lock()
        self._current: Optional[Round] = None
        self.detach_reason: Optional[str] = None  # why the agent ended the connection, once it did

    @property
    def name(self) -> str:
        """The site's name in the federation."""
        return self._channel.node

    def rounds(self, run: Optional[str] = None, *, timeout_s: Optional[float] = None) -> Iterator[Round]:
        """The rounds of a run, as they come: blocks until there is work, ends when the run ends.

        run: the run's name; None: whichever run asks this site, until the agent ends. A round of another run is left
        to others: this worker declines it.
        timeout_s: TimeoutError when nothing came for so long.

        A round that is not answered when the next one is asked for counts as failed: the site sits it out. Leaving the
        loop in the middle of a round (break, an exception, Ctrl-C) hands it back instead: it goes to another worker
        that is there, and this one attaches again when it next asks for rounds.
        """
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("rounds() is already being iterated over; one loop a connection")
        try:
            if self._channel.closed:
                self._channel = Channel.attach(self._path, self._worker)
            while True:
                self._sit_out()
                message, descriptor = self._channel.receive(timeout_s)
                body = message.WhichOneof("body")
                if body == "task":
                    if descriptor is None:
                        raise ProtocolError("the agent sent a task without its model")
                    current = Round(self, message.task, SharedModel(descriptor, message.task.model_bytes))
                    if run is not None and current.run != run:
                        current.fail(f"this worker trains {run}")
                        continue
                    self._current = current
                    yield current
                elif body == "run_ended":
                    if run is not None and message.run_ended.run_name == run:
                        return
                elif body == "detach":
                    self.detach_reason = message.detach.reason
                    return
                else:
                    raise ProtocolError(f"the agent sent {body}, which no worker expects")
        finally:
            current, self._current = self._current, None
            if current is not None and current._open:
                self._channel.close("the worker left in the middle of a round")
            self._lock.release()

    def _sit_out(self) -> None:
        current, self._current = self._current, None
        if current is not None and current._open:
            current.fail("the training loop left the round without an update")

    def close(self) -> None:
        """Says good-bye to the agent. A round in hand is handed back."""
        self._channel.close("the worker ends")

    def __exit__(self, *_: object) -> None:
        self.close()
