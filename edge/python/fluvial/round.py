"""One round's work, as a training script holds it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Container, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _messages, _pieces, _precision, models
from ._numbers import SAMPLES_MAX, Metrics, metrics_of, samples_of, warn_of_not_finite
from ._results import Given, HostResult, Result, Starts
from ._shared import SharedModel
from .config import Config, config_of
from .errors import ModelMismatch, PlanMismatch, ProtocolError, RoundClosed
from .parts import UpdateInParts
from .schema import Schema
from .selection import Only

if TYPE_CHECKING:
    from .site import Site


@dataclasses.dataclass(frozen=True)
class Previous:
    """What became of the last result this worker gave in the run.

    outcome: "counted"; "late" (it is in the site's residual, and counts with the next update); "refused" or "unused"
    (it will not count); "pending" or "unknown".
    """

    round: int
    outcome: str
    reason: Optional[str] = None  # why it counts nowhere, where the agent said so

    @property
    def counts(self) -> bool:
        """Whether it counted, or still will."""
        return self.outcome in ("counted", "late", "pending")


class Round:
    """One round: the model to start from, and where the trained one goes. Made by Site.rounds()."""

    def __init__(self, site: "Site", task: Any, model: SharedModel) -> None:
        self._site = site
        self._id = task.id
        self._model: Optional[SharedModel] = model
        self._result: Optional[Result] = None  # where the answer stands, once some of it does
        self._open = True
        self._in_parts = False
        self._there: Optional[np.ndarray] = None  # the ranges that an overlapped round goes on from; None: all
        self._loads = _precision.Loads()
        self.run: str = task.run_name
        self.run_id: int = task.run
        self.number: int = task.round
        self.version: int = task.version  # of the model
        self.local_steps: int = task.local_steps
        self.samples_max: int = task.weight_max or SAMPLES_MAX  # of all the site's workers together, as its token says
        self.config: Config = config_of(task)  # the plan's [worker] table, as it is in this round
        self.parameters: Dict[str, float] = dict(task.parameters)  # its numbers alone
        self.optimizer: str = task.optimizer  # the plan's optimizer.name; empty: an agent of an earlier version
        self.previous: Optional[Previous] = None
        if task.HasField("previous"):
            outcome = task.previous.outcome
            known = outcome if outcome < len(_messages.OUTCOMES) else 0
            refused, reason = site._refusals.get(task.run, (None, None))
            self.previous = Previous(
                task.previous.round, _messages.OUTCOMES[known], reason if refused == task.previous.round else None
            )
        self.schema = Schema.from_message(task.schema)
        if self.schema.nbytes != task.model_bytes:
            raise ProtocolError(f"a model of {task.model_bytes} bytes with a schema of {self.schema.nbytes}")

    def _data(self) -> np.ndarray:
        if not self._open or self._model is None:
            raise RoundClosed(f"round {self.number} of {self.run} is over; its model was let go")
        return self._model.array

    def arrays(self) -> Dict[str, np.ndarray]:
        """The global model as named, read-only arrays over shared memory, without a copy. They stay valid for good."""
        arrays = self._arrays()
        _precision.give_out(arrays, self._loads)
        return arrays

    def _arrays(self) -> Dict[str, np.ndarray]:
        """The same, for what trains nothing from them."""
        return self.schema.views(self._data())

    def load_into(self, model: Any, *, only: Only = None) -> None:
        """Copies the global model into a torch module, a state dict or a dict of arrays (rules: fluvial.models).

        only: names or patterns of the tensors that the run's model consists of, such as adapters; all else in `model` stays.
        ModelMismatch when they are not those (fluvial/selection.py). RuntimeWarning, once a run: without `only` some stay, too.
        """
        self._loads.note(models.load_into(model, self.schema, self._arrays(), only))
        if only is None and self.run_id not in self._site._looked_at:
            self._site._looked_at.add(self.run_id)
            models.warn_of_others(model, self.schema)

    def submit(
        self, model: Any, *, samples: int, metrics: Metrics = None, overlap: bool = False, only: Only = None
    ) -> None:
        """Hands the trained model over: the site sends what changed, weighted with `samples` (at least 1).

        Once a round. The model's values are copied out before this returns, so training may go on at once.

        samples: the weight in the mean. TooManySamples: more than the site's token allows (`samples_max`, 1,000,000 unless it was
        told): divide by 1000 at all sites. So does the next rounds() when the site's workers have more together.

        metrics: numbers by name. The round has the mean of those that are finite, weighted with `samples`.

        A BatchNorm's running statistics are averaged, whatever the server optimizer does with the parameters (but for
        `onebit_adam`): the plan's `optimizer.averaged` names them. With codecs other than fp32, bf16 and fp16, in windows and with
        `late = "next"` a small running_var may become negative: keep them out with `only`, or use GroupNorm.

        overlap: do not wait for the round. `rounds()` yields the next one at once, from the model submitted here; its
        `submit` waits for the committed model and hands over that plus what was trained in the meantime. So an update
        comes one round late, and communication hides behind training (fluvial/overlap.py).

        only: as load_into() has it. Nothing else of `model` is looked at.
        """
        given = models.fitting(self._checked(model), list(self.schema), only)
        self._submit(given, self._answer(samples, metrics), overlap)

    def report(self, metrics: Mapping[str, float], *, samples: int) -> None:
        """Answers the round with metrics alone: an update of zeros, weighted with the `samples` that were looked at.

        For rounds that evaluate (Site.evaluate). In a run that trains it takes part like any update, and holds the mean back.
        """
        zeros = {tensor.name: np.zeros(tensor.shape, np.float32) for tensor in self.schema if tensor.averaged}
        self.submit_update(zeros, samples=samples, metrics=metrics)

    def submit_update(self, update: Any, *, samples: int, metrics: Metrics = None) -> None:
        """Hands an update over, instead of a model: what would be base minus trained, as a gradient is.

        The server's optimizer steps with the weighted mean of these: `fedavg` with learning rate 0.1 is then SGD with
        learning rate 0.1. update: like a model; counters that are not in it stay as they are.
        """
        named = models.named_tensors(self._given_out(update))
        given = models.fitting(named, [tensor for tensor in self.schema if tensor.averaged or tensor.name in named])
        done = self._answer(samples, metrics)
        done.task_done.update = True
        self._write(given)
        self._write_unchanged({tensor.name for tensor, _ in given})
        self._hand_over(done)

    def parts(self, *, samples: int) -> UpdateInParts:
        """Hands an update over piece by piece, as it becomes ready: the site sums the workers' pieces meanwhile."""
        self._given_out(None)
        return UpdateInParts(self, self._answer(samples, None).task_done.weight)

    def flat(self) -> np.ndarray:
        """What is averaged, tensor after tensor in the model's order, as one read-only fp32 vector.

        Without a copy, unless counters stand between the tensors.
        """
        self._loads.unrounded = True
        flat = self.schema.flat(self._data())
        flat.flags.writeable = False
        return flat

    def place(self, name: str) -> slice:
        """Where a tensor's values stand in `flat()`."""
        return self.schema.flat_place(name)

    def shard(self, rank: Optional[int] = None, ranks: Optional[int] = None) -> slice:
        """A rank's share of `flat()` when it is split evenly; by default of this connection's rank.

        Each share has ceil(values / ranks) values, the last ones what is left.
        """
        ranks = ranks or max(self._site.ranks, 1)
        rank = self._site.rank if rank is None else rank
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} of {ranks}; expected 0 to {ranks - 1}")
        length = -(-self.schema.values // ranks)
        return slice(min(rank * length, self.schema.values), min((rank + 1) * length, self.schema.values))

    def submit_shard(
        self,
        values: Union[Any, Sequence[Any]],
        first: Union[int, Sequence[int]],
        *,
        samples: int,
        metrics: Metrics = None,
        update: bool = False,
        overlap: bool = False,
    ) -> None:
        """Hands over this rank's share of the trained model (with `update`: of an update).

        values: the share's values, of any shape, for `flat()[first : first + n]`; or a list of such, with a list of
        `first`. The shares of the group's ranks divide the flat vector exactly, and all give the same `samples`.
        Counters stay as they are. ModelMismatch: a share that does not fit, two that overlap, or a list that comes to more
        than 2^20 ranges of the model's bytes which do not touch.

        overlap: as in submit(); all ranks give the same. The next round has of the model what this rank handed over, at its
        places in flat(), and nothing else.
        """
        if update and overlap:
            raise ValueError("overlap goes on from a trained model, and not from an update")
        (self._given_out if update else self._checked)(None)
        data = self._data()
        given: List[_pieces.Given] = []
        for share, start in list(zip(values, first)) if isinstance(first, Sequence) else [(values, first)]:
            flat = (share if hasattr(share, "reshape") else np.asarray(share)).reshape(-1)
            count = int(np.prod(np.shape(flat)))
            if models._kind("share", flat) != "f" or not 0 <= start <= self.schema.values - count:
                raise ModelMismatch(
                    f"a share of {count} values of type {getattr(flat, 'dtype', '')} from {start} on: expected floating point "
                    f"within 0 and {self.schema.values}"
                )
            for piece, place in _pieces.of_share(self.schema, start, count):
                given.append(_pieces.Given(piece, piece.view(data) if place is None else flat[place], share))
        done = self._answer(samples, metrics)
        done.task_done.update = update
        self._submit_pieces(given, _pieces.ranges_of([one.piece for one in given]), done, overlap)

    def result(self, timeout_s: Optional[float] = None) -> Dict[str, np.ndarray]:
        """Waits until the round is committed; the model it made, as named, read-only arrays without a copy.

        May be called once the round was answered, until the next one is. TimeoutError: not within `timeout_s`.
        UpdateRefused: what this worker gave counts nowhere, and why. It is raised once and at once: the round may wait for this
        worker, and its next attempt is the next of rounds(). Called again, it waits for what the others make of the round. RunEnded: the run was stopped before. RoundClosed: a later round was committed already, and this one's model
        went by.
        """
        return self.schema.views(self._site._committed(self, timeout_s).array)

    def fail(self, reason: str) -> None:
        """Tells the site that this worker sits the round out; it goes on with the others, as the plan says."""
        self._checked(None, parts=True)
        self._open = False
        message = _messages.LocalMessage()
        message.task_failed.id = self._id
        message.task_failed.message = reason[:1024]
        self._site._channel.send(message)

    def _checked(self, given: Any, *, parts: bool = False) -> Any:
        if not self._open:
            raise RoundClosed(f"round {self.number} of {self.run} was answered already; ask for the next one")
        if self._in_parts and not parts:
            raise RoundClosed(f"round {self.number} of {self.run} is being answered in parts")
        return given

    def _given_out(self, given: Any) -> Any:
        """Checked, and that the agent gave this round out already."""
        return self._checked(given)

    def _answer(self, samples: int, metrics: Metrics) -> Any:
        """The answer to the task, without an id yet; ValueError and TypeError for what an agent would refuse."""
        message = _messages.LocalMessage()
        message.task_done.weight = samples_of(samples, self.samples_max)
        numbers = metrics_of(metrics)
        warn_of_not_finite(numbers, f"round {self.number} of {self.run}", self.run, self._site._not_finite)
        message.task_done.metrics.update(numbers)
        return message

    def _check_is_mean(self, who: str) -> None:
        """PlanMismatch, and the round is declined: its next model is not the mean of what is handed over."""
        if self.optimizer in ("mean", ""):
            return
        why = f'{who} needs a run with optimizer.name = "mean" in its plan; run {self.run} has "{self.optimizer}"'
        self.fail(why)
        raise PlanMismatch(f"{why}, whose next model is not the mean itself")

    def _submit(self, given: Sequence[Tuple[Any, Any]], done: Any, overlap: bool) -> None:
        if overlap:
            self._host_result()  # from which the next round starts
        arrays = self._arrays()
        starts = {t.name: (arrays[t.name], self._loads.starts(t.name, source)) for t, source in given if t.averaged}
        self._write(given, {name: start for name, start in starts.items() if any(start[1])})
        self._hand_over(done)
        if overlap:
            self._site._go_on_from(self)

    def _submit_pieces(self, given: Sequence[_pieces.Given], ranges: np.ndarray, done: Any, overlap: bool) -> None:
        """Hands over what stands in these ranges; with `overlap` the next round has all that is given."""
        self._check_whole(ranges)
        self._there = _pieces.there(given, self.schema.nbytes) if overlap else None
        buffer, base = self._host_result().array, self._data()
        for piece, source, trained in given:
            starts = self._loads.starts(piece.tensor.name, trained)
            if piece.tensor.averaged and any(starts) and not done.task_done.update:
                values = np.empty(piece.shape, piece.tensor.dtype)
                models.write_tensor(values, source)
                _precision.hand_over(values, piece.view(base), starts)
                source = values
            models.write_tensor(piece.view(buffer), source)
        self._hand_over(done, ranges)
        if overlap:
            self._site._go_on_from(self)

    def _check_whole(self, ranges: np.ndarray) -> None:
        if not self._site.ranks and int(ranges[:, 1].sum()) < self.schema.nbytes:
            raise ModelMismatch("a part of the model is a rank's: fluvial.connect(group=..., rank=..., ranks=...)")

    def _write(self, given: Given, starts: Starts = {}) -> None:
        """Copies tensors of the answer to where the site reads them; the first ones decide where that is."""
        if self._result is None:
            self._result = self._site._results.written(self.run_id, self.schema, given, starts)
        else:
            self._result.write(given, starts)

    def _write_unchanged(self, there: Container[str]) -> None:
        """What the answer has not, as the agent gave it: counters."""
        arrays = self._arrays()
        self._write([(tensor, arrays[tensor.name]) for tensor in self.schema if tensor.name not in there])

    def _host_result(self) -> HostResult:
        """The answer in the host's memory: for what is not handed over tensor by tensor."""
        self._result = result = self._site._results.host(self.run_id, self.schema)
        return result

    def _hand_over(self, done: Any, ranges: Optional[np.ndarray] = None) -> None:
        """ranges: that a rank of a group answers for, if not for all."""
        done.task_done.id = self._id
        self._open = False
        self._site._unheard = None
        if ranges is not None and self._site.ranks:
            for message in _pieces.messages_of(self._id, ranges):
                self._site._channel.send(message)
        self._send_result(done, done.task_done)

    def _send_result(self, message: Any, answer: Any) -> None:
        """The first message that speaks of the answer says where it is."""
        assert self._result is not None
        self._site._channel.send(message, None if self._in_parts else self._result.introduce(answer))

    def _let_go(self) -> None:
        """Unmaps the model, unless somebody uses its arrays: while the next round is awaited, when that costs no time."""
        self._open = False
        self._model = None
        self._result = None

    def __repr__(self) -> str:
        return f"<fluvial.Round {self.number} of {self.run}, {self.local_steps} local steps>"
