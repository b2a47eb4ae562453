"""What a local loop adds for FedProx, SCAFFOLD and DiLoCo. Each takes torch modules and mappings of numpy arrays alike.

The gradients a `correct` changes, in place, are a torch module's `.grad`s, or a mapping from names to arrays given
with the model. Names are those of the run's model; what has no gradient is left alone. One thread at a time.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

import numpy as np

from . import _precision, models
from .errors import ModelMismatch
from .round import Metrics, Round
from .schema import Schema, dtype_name
from .site import Site

_CONTROL = "control/"


class FedProx:
    """FedProx (Li et al., MLSys 2020, arXiv:1812.06127): the local objective is F_k(w) + mu/2 |w - theta|^2.

    So each step's gradient grows by mu (w - theta), theta being the round's model; with mu = 0 it is FedAvg. The
    paper tries mu of 0.001, 0.01, 0.1 and 1.

        prox = fluvial.FedProx(mu=0.01)
        for round in site.rounds("digits"):
            prox.begin(round, model)               # instead of round.load_into(model)
            for batch in batches:
                loss(model, batch).backward()
                prox.correct(model)
                optimizer.step()
            round.submit(model, samples=n)
    """

    def __init__(self, mu: float) -> None:
        if not mu >= 0:
            raise ValueError(f"mu is {mu}, expected 0 or more")
        self.mu = mu
        self._start: Dict[str, Any] = {}

    def begin(self, round: Round, model: Any) -> None:
        """Loads the round's model into `model`, and remembers it."""
        round.load_into(model)
        arrays = round._arrays()
        self._start = {name: arrays[name] for name in arrays if round.schema[name].averaged}

    def correct(self, model: Any, gradients: Optional[Mapping[str, np.ndarray]] = None) -> None:
        """Adds mu (w - theta) to the gradients. Call it between the backward pass and the optimizer's step."""
        if self.mu == 0:
            return
        for name, gradient, value in _gradients(model, gradients):
            if name in self._start:
                gradient += self.mu * (value - _alike(self._start, name, value))


class Scaffold:
    """SCAFFOLD (Karimireddy et al., ICML 2020, arXiv:1910.06378, algorithm 1 with option II).

    Each of the N workers keeps a control variate c_i, the federation their mean c. A local step at the rate eta goes by
    g - c_i + c instead of g; after K of them, from x to y_i, with S the workers that are in the round,

        c_i' = c_i - c + (x - y_i) / (K eta)
        x   += eta_g / |S| * sum over S of (y_i - x)
        c   += 1 / N * sum over S of (c_i' - c_i).

    c travels as tensors of the run's model, named control/..., so it is committed with the model, exactly once. A
    worker takes c_i' over when its submission counted, or will (it was late: its site carries it over); otherwise c_i
    stays. Thus the sum of all c_i is N c in every round, whoever was missing. `Scaffold.plan(N)` is what the plan says
    for that: the model takes the mean of those that are in, and c its |S| / N part.

    It asks for rounds: with mode = "async" or late = "next" old updates are damped, c_i is not, and the sum above no
    longer holds. No momentum and no Adam in the local optimizer: option II reads c_i' off the distance covered, which
    is K eta times a gradient for plain SGD alone.

        federation.start_run("digits", fluvial.Scaffold.model(model), plan=fluvial.Scaffold.plan(4))
        scaffold = fluvial.Scaffold(learning_rate=0.1)
        for round in site.rounds("digits"):
            scaffold.begin(round, model)           # instead of round.load_into(model)
            for batch in batches:
                loss(model, batch).backward()
                scaffold.correct(model)
                optimizer.step()                   # SGD at that learning rate
            scaffold.submit(round, model)

    A process that starts again passes what `state` held to its successor's `restore`, and connects under the same name.
    """

    def __init__(self, learning_rate: float, *, global_learning_rate: float = 1.0) -> None:
        """learning_rate: eta, of the local steps. global_learning_rate: eta_g, the same at every worker."""
        for name, rate in (("learning_rate", learning_rate), ("global_learning_rate", global_learning_rate)):
            if not rate > 0:
                raise ValueError(f"{name} is {rate}, expected more than 0")
        self.learning_rate = learning_rate
        self.global_learning_rate = global_learning_rate
        self._own: Dict[str, np.ndarray] = {}  # c_i
        self._next: Dict[str, np.ndarray] = {}  # c_i', until it is known what became of it
        self._submitted: Optional[Tuple[int, int]] = None  # run and round of that
        self._start: Dict[str, np.ndarray] = {}
        self._shift: Dict[str, Any] = {}  # c - c_i, as the gradients are
        self._steps = 0

    @staticmethod
    def model(model: Any) -> Dict[str, np.ndarray]:
        """What a run starts from: the model, and a control variate of zeros for each tensor that is trained."""
        zeros = {_CONTROL + name: array for name, array in models.zeros_like(model).items()}
        return {**models.to_arrays(model), **zeros}

    @staticmethod
    def plan(workers: int) -> Dict[str, Any]:
        """For start_run(plan=...). workers: N, all of the federation, or the `samples` of all of them together."""
        if not workers > 0:
            raise ValueError(f"workers is {workers}, expected more than 0")
        return {"optimizer": {"name": f"fedavg:scale_to={workers}", "averaged": f"!{_CONTROL}*"}}

    def begin(self, round: Round, model: Any) -> None:
        """Loads the round's model into `model`; takes the last submission over if it counts.

        ModelMismatch: the run has no control variates; start it from Scaffold.model(model).
        """
        arrays = round._arrays()
        self._start = {name: array for name, array in arrays.items() if _CONTROL + name in arrays}
        if not self._start:
            raise ModelMismatch(f"run {round.run} has no control variates; start it from fluvial.Scaffold.model(model)")
        plain = {name: array for name, array in arrays.items() if not name.startswith(_CONTROL)}
        loaded = models.load_into(model, _schema(plain), plain)
        round._loads.note(loaded)
        if not self._own:
            self._own = {name: np.zeros_like(array) for name, array in self._start.items()}
        for name, array in self._start.items():  # in half precision it trains from the base rounded
            self._start[name] = _precision.rounded(array, _precision.casts_of(loaded[name]))
        self._settle(round)
        self._shift = {name: arrays[_CONTROL + name] - self._own[name] for name in self._start}
        self._steps = 0

    def correct(self, model: Any, gradients: Optional[Mapping[str, np.ndarray]] = None) -> None:
        """Adds c - c_i to the gradients: once for each local step, before it."""
        self._steps += 1
        for name, gradient, value in _gradients(model, gradients):
            if name in self._shift:
                gradient += _alike(self._shift, name, value)

    def submit(self, round: Round, model: Any, *, samples: int = 1, metrics: Metrics = None) -> None:
        """Hands over the trained model and how this worker's control variate moves.

        samples: 1 as in the paper, where every worker counts alike. Means by other numbers are no SCAFFOLD, and may suit
        sites of very different sizes: a worker's is then the same in every round, and `plan` is given their sum.
        """
        if self._steps == 0:
            raise ValueError("no local step was corrected since begin(); call correct() before each")
        trained = models.to_arrays(model)
        arrays = round._arrays()
        following, control = {}, {}
        for name, start in self._start.items():
            moved = (start - trained[name]) / np.float32(self._steps * self.learning_rate) - arrays[_CONTROL + name]
            following[name] = self._own[name] + moved
            control[_CONTROL + name] = arrays[_CONTROL + name] + moved
            if self.global_learning_rate != 1:
                trained[name] = start + np.float32(self.global_learning_rate) * (trained[name] - start)
        round.submit({**trained, **control}, samples=samples, metrics=metrics)
        self._next, self._submitted = following, (round.run_id, round.number)

    def _settle(self, round: Round) -> None:
        submitted, self._submitted = self._submitted, None
        if submitted is None or round.previous is None or not round.previous.counts:
            return
        if submitted == (round.run_id, round.previous.round):
            self._own = self._next

    def state(self) -> Dict[str, Any]:
        """c_i, what it becomes if the last submission counts, and which that was: for a checkpoint."""
        return {"own": dict(self._own), "next": dict(self._next), "submitted": self._submitted}

    def restore(self, state: Mapping[str, Any]) -> None:
        """What state() gave, in an earlier process perhaps."""
        self._own, self._next = dict(state["own"]), dict(state["next"])
        self._submitted = None if state["submitted"] is None else (state["submitted"][0], state["submitted"][1])


class DiLoCo(contextlib.AbstractContextManager):
    """DiLoCo (Douillard et al., 2023, arXiv:2311.08105): H local steps of AdamW, then one of Nesterov by the coordinator.

    With D = theta_(r-1) - mean of the workers' models, that is

        b = 0.9 b + D,        theta_r = theta_(r-1) - 0.7 (D + 0.9 b).

    AdamW's state stays with the worker. In the plan: `local_steps = 500` (H) and `[optimizer] name = "nesterov"`;
    learning rate 1 and momentum 0 make it local SGD. Where a commit holds few of the sites, `delayed_nesterov` with `every`
    about as many commits as hold all of them. It turns an ordinary training loop into a worker's:

        with fluvial.DiLoCo(site, "text", model, samples=batch_size) as diloco:
            for batch in batches:
                loss(model, batch).backward()
                optimizer.step()
                if not diloco.step():              # False: the run is over
                    break

    overlap: train on while the round is in the air, its result comes one round later (fluvial/overlap.py). Leaving the
    block in the middle of a round hands it back.
    """

    def __init__(self, site: Site, run: str, model: Any, *, samples: int = 1, overlap: bool = False) -> None:
        """Waits for the first round, and loads its model. samples: what one step sees; the weight is H times that."""
        self._model = model
        self._samples = samples
        self._overlap = overlap
        self._rounds = site.rounds(run)
        self._round: Optional[Round] = None
        self._advance()

    @property
    def round(self) -> Optional[Round]:
        """The round at work; None when the run is over."""
        return self._round

    def step(self, metrics: Metrics = None) -> bool:
        """After each step of the local optimizer: every H-th time it submits, and loads what comes next.

        Returns whether there is more to do.
        """
        if self._round is None:
            return False
        self._steps += 1
        if self._steps == max(self._round.local_steps, 1):
            self._round.submit(self._model, samples=self._samples * self._steps, metrics=metrics, overlap=self._overlap)
            self._advance()
        return self._round is not None

    def _advance(self) -> None:
        self._steps = 0
        self._round = next(self._rounds, None)
        if self._round is not None:
            self._round.load_into(self._model)

    def __exit__(self, *_: object) -> None:
        self._round = None
        self._rounds.close()


def _schema(arrays: Mapping[str, np.ndarray]) -> Schema:
    return Schema((name, dtype_name(array.dtype), array.shape) for name, array in arrays.items())


def _alike(arrays: Dict[str, Any], name: str, value: Any) -> Any:
    """The array of that name as what it is added to, converted once."""
    if type(arrays[name]) is not type(value):
        arrays[name] = models.like(value, arrays[name])
    return arrays[name]


def _gradients(model: Any, gradients: Optional[Mapping[str, np.ndarray]]) -> Iterator[Tuple[str, Any, Any]]:
    """Name, gradient and value of what has a gradient."""
    if gradients is None:
        if not hasattr(model, "named_parameters"):
            raise TypeError("pass the gradients with the model: a mapping from names to arrays")
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                yield name, parameter.grad, parameter.detach()
        return
    values = models.named_tensors(model)
    for name, gradient in gradients.items():
        yield name, gradient, values[name]
