"""What to do with each round of a run: stop early, keep the best model, write to TensorBoard, MLflow or Weights & Biases.

    federation = fluvial.admin()
    federation.follow("digits", [
        fluvial.callbacks.EarlyStopping("test_loss", patience=5),
        fluvial.callbacks.BestModel("best.safetensors", "test_accuracy", "max"),
        fluvial.callbacks.TensorBoard("runs/digits"),
    ])

A callback is any object with some of these: `on_round(federation, round)` after each commit, `on_evaluated(federation, round)`
when the coordinator's evaluation of it is in (`round` then has it), `on_end(federation, event)`. `round` is the dict of
Admin.rounds(). The hooks import their libraries when they are made.
"""

from __future__ import annotations

import warnings
from typing import Any, Dict, Mapping, Optional, Sequence, Set

from .coordinator import metric_of

_KEPT = 1000  # rounds whose evaluation may still come
_WITHOUT_METRIC = 5  # rounds, after which that is said


def follow(federation: Any, run: int, callbacks: Sequence[Any], first: int = 1) -> None:
    """Tells the callbacks of each round of the run, until it ends. What a callback raises ends it, too."""
    rounds: Dict[int, Dict[str, Any]] = {}
    for event in federation.watch(run, first):
        kind = event["event"]
        if kind == "committed":
            round = rounds[event["round"]] = {key: value for key, value in event.items() if key != "event"}
            _tell(callbacks, "on_round", federation, round)
            if round.get("evaluation"):
                _tell(callbacks, "on_evaluated", federation, round)
            if len(rounds) > _KEPT:
                del rounds[min(rounds)]
        elif kind == "evaluated" and event["round"] in rounds:
            round = rounds[event["round"]]
            round["evaluation"] = event["evaluation"]
            _tell(callbacks, "on_evaluated", federation, round)
        elif kind == "state" and event["status"] in ("done", "stopped"):
            _tell(callbacks, "on_end", federation, event)
            return


def _tell(callbacks: Sequence[Any], what: str, *arguments: Any) -> None:
    for callback in callbacks:
        method = getattr(callback, what, None)
        if method is not None:
            method(*arguments)


class Improvement:
    """Whether a number got better than the best so far, by more than `min_delta`."""

    def __init__(self, mode: str = "min", min_delta: float = 0.0) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode is {mode!r}, expected 'min' or 'max'")
        if min_delta < 0:
            raise ValueError(f"min_delta is {min_delta}, expected 0 or more")
        self._sign = 1.0 if mode == "min" else -1.0
        self._min_delta = min_delta
        self.best: Optional[float] = None

    def update(self, value: float) -> bool:
        if value != value:  # NaN is no improvement
            return False
        if self.best is not None and not self._sign * (self.best - value) > self._min_delta:
            return False
        self.best = value
        return True


class _OfMetric:
    """Looks at one metric of each round. RuntimeWarning when none of many has it, at first or later, with those that there are."""

    def __init__(self, metric: str, rounds_without: int) -> None:
        self.metric = metric
        self._rounds_without = rounds_without
        self._found = False
        self._without: Set[int] = set()  # rounds, since it was last found
        self._known: Set[str] = set()
        self._warned = False

    def _value(self, round: Mapping[str, Any]) -> Optional[float]:
        """The round's metric. A round counts as one without it once the next one is there: its evaluation comes later."""
        value = metric_of(round, self.metric)
        if value is not None:
            self._found = True
            self._without.clear()
            return value
        self._known.update(round.get("metrics") or {}, round.get("evaluation") or {})
        if self._warned:
            return None
        if len(self._without - {round["round"]}) >= self._rounds_without:
            self._warned = True
            since = "since it was there last" if self._found else "so far"
            self._warn(f"none of {len(self._without)} rounds {since}")
        self._without.add(round["round"])
        return None

    def on_end(self, federation: Any, event: Mapping[str, Any]) -> None:
        if self._without and not self._found:
            self._warn("no round")

    def _warn(self, whose: str) -> None:
        names = ", ".join(sorted(self._known)) or "none"
        if self._found or not self._known:
            names += " (NaN counts as none)"
        text = f"{type(self).__name__}: {whose} had {self.metric!r}; there are: {names}"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


class EarlyStopping(_OfMetric):
    """Stops the run, with the reason, when `metric` has not improved for `patience` rounds.

    metric: of the coordinator's evaluation, or else of what the sites report (their weighted mean). Rounds without it do not
    count; RuntimeWarning after `patience` of them, and at the run's end, when none had it. In a worker's own loop, without an
    Admin: `if stopping.update(loss): break`.
    """

    def __init__(self, metric: str = "loss", mode: str = "min", *, patience: int = 5, min_delta: float = 0.0) -> None:
        if patience < 1:
            raise ValueError(f"patience is {patience}, expected 1 or more")
        super().__init__(metric, patience)
        self.patience = patience
        self._better = Improvement(mode, min_delta)
        self._since = 0
        self._seen = 0  # the round looked at last
        self.stopped = False

    @property
    def best(self) -> Optional[float]:
        return self._better.best

    def update(self, value: float) -> bool:
        """One more value; whether it is time to stop."""
        self._since = 0 if self._better.update(value) else self._since + 1
        return self._since >= self.patience

    def on_round(self, federation: Any, round: Mapping[str, Any]) -> None:
        value = self._value(round)
        if self.stopped or value is None or round["round"] <= self._seen:
            return
        self._seen = round["round"]
        if self.update(value):
            self.stopped = True
            reason = f"{self.metric} has not improved on {self.best:.6g} for {self.patience} rounds (early stopping)"
            federation.stop(round["run"], reason)

    on_evaluated = on_round


class BestModel(_OfMetric):
    """Keeps the model of the round in which `metric` was best at `path`, always a whole file. `round` says which that is.

    It is fetched as soon as the round is known to be the best: the plan's models_kept must reach back as far as the
    coordinator's evaluation lags. RuntimeWarning when no round has the metric.
    """

    def __init__(self, path: str, metric: str = "loss", mode: str = "min") -> None:
        super().__init__(metric, _WITHOUT_METRIC)
        self.path = path
        self._better = Improvement(mode)
        self.round: Optional[int] = None

    @property
    def best(self) -> Optional[float]:
        return self._better.best

    def on_round(self, federation: Any, round: Mapping[str, Any]) -> None:
        value = self._value(round)
        if value is not None and self._better.update(value):
            federation.download(self.path, round["run"], round["round"])
            self.round = round["round"]

    on_evaluated = on_round


def scalars(round: Mapping[str, Any], sites: bool = False) -> Dict[str, float]:
    """A round's numbers by name: "sites/loss", "evaluation/test_accuracy", "round/seconds"; with `sites` "hospital-a/loss"."""
    named = {f"sites/{name}": value for name, value in (round.get("metrics") or {}).items()}
    named.update({f"evaluation/{name}": value for name, value in (round.get("evaluation") or {}).items()})
    for name in ("seconds", "bytes_up", "bytes_down", "weight", "late"):
        if name in round:
            named[f"round/{name}"] = round[name]
    for site in round.get("contributors", ()) if sites else ():
        named.update({f"{site['name']}/{name}": value for name, value in (site.get("metrics") or {}).items()})
    return {name: float(value) for name, value in named.items()}


class _Writer:
    """Hands each number on once: those of the commit, then those of its evaluation."""

    def __init__(self, sites: bool) -> None:
        self._sites = sites

    def on_round(self, federation: Any, round: Mapping[str, Any]) -> None:
        self._write({name: value for name, value in scalars(round, self._sites).items() if _is_of_commit(name)}, round["round"])

    def on_evaluated(self, federation: Any, round: Mapping[str, Any]) -> None:
        self._write({name: value for name, value in scalars(round).items() if not _is_of_commit(name)}, round["round"])

    def _write(self, named: Dict[str, float], step: int) -> None:
        raise NotImplementedError


def _is_of_commit(name: str) -> bool:
    return not name.startswith("evaluation/")


def _tensorboard_x() -> Any:
    """The same writer, without PyTorch."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard needs its library, beside PyTorch: pip install tensorboard (or tensorboardX)") from error
    return SummaryWriter


class TensorBoard(_Writer):
    """Each number as a scalar of TensorBoard. log_dir: a folder; or a writer of one's own, with add_scalar()."""

    def __init__(self, log_dir: Any, *, sites: bool = False) -> None:
        super().__init__(sites)
        self._writer = log_dir
        if not hasattr(log_dir, "add_scalar"):
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                SummaryWriter = _tensorboard_x()
            self._writer = SummaryWriter(log_dir)

    def _write(self, named: Dict[str, float], step: int) -> None:
        for name, value in named.items():
            self._writer.add_scalar(name, value, step)

    def on_end(self, federation: Any, event: Mapping[str, Any]) -> None:
        self._writer.flush()


class MLflow(_Writer):
    """Each number as a metric of the active MLflow run; the Fluvial run's end becomes a tag."""

    def __init__(self, *, sites: bool = False) -> None:
        super().__init__(sites)
        import mlflow

        self._mlflow = mlflow

    def _write(self, named: Dict[str, float], step: int) -> None:
        if named:
            self._mlflow.log_metrics(named, step=step)

    def on_end(self, federation: Any, event: Mapping[str, Any]) -> None:
        self._mlflow.set_tag("fluvial.status", event["status"])


class WandB(_Writer):
    """Each number to Weights & Biases, with its `round` beside it. run: what wandb.init() gave; by default the current one."""

    def __init__(self, run: Optional[Any] = None, *, sites: bool = False) -> None:
        super().__init__(sites)
        if run is None:
            import wandb

            run = wandb
        self._run = run

    def _write(self, named: Dict[str, float], step: int) -> None:
        if named:
            self._run.log({**named, "round": step})
