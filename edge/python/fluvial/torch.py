"""DistributedDataParallel over a federation: the gradients of all sites are averaged in every step.

    site = fluvial.connect()
    ddp = DistributedDataParallel(model)           # the process group is that of this site alone
    ddp.register_comm_hook(None, fluvial.torch.ddp_hook(site, "gradients", model))
    loss(ddp, batch).backward()                    # .grad is the mean over all workers of all sites

The run starts from fluvial.torch.zeros_like(model), with the optimizer `mean`. This module and fluvial.fsdp alone import torch.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any, Callable, Counter, Dict, Generator, List, Optional, Set

import numpy as np
import torch

from . import models
from .errors import ModelMismatch, RunEnded, UpdateRefused
from .parts import UpdateInParts
from .round import Round
from .site import Site

_FLAGS = "ddp.flags"  # a counter for each tensor that is averaged, of the passes that used it; the last one: of overflows


def zeros_like(model: torch.nn.Module) -> Dict[str, np.ndarray]:
    """What a run of a module's gradients starts from: fluvial.zeros_like(model), and counters by which the sites' hooks tell each
    other which parameters a pass used and whether a gradient overflowed.

    A run from fluvial.zeros_like(model) does without them. There a parameter counts as used when its mean is not zero
    everywhere, and ddp_hook takes no `scaler`.
    """
    zeros = models.zeros_like(model)
    return {**zeros, _FLAGS: np.zeros(len(zeros) + 1, np.int64)}


def ddp_hook(
    site: Site,
    run: str,
    model: torch.nn.Module,
    *,
    samples: int = 1,
    timeout_s: Optional[float] = None,
    scaler: Any = None,
) -> Callable[[Any, Any], "torch.futures.Future[torch.Tensor]"]:
    """A communication hook for DistributedDataParallel: each backward pass is one round of the run.

    A bucket goes to the site's agent as soon as it is ready, so that the agent's sum over the site's workers overlaps
    with the rest of the backward pass; the last bucket waits for the committed mean, and then all futures complete.
    Gradients of any floating-point dtype and device travel as fp32, sparse ones as dense ones. It keeps `site` to itself until
    the run ends.

    With find_unused_parameters, a parameter that this site's pass did not use gets the mean all the same, and one that no
    site's pass used keeps the gradient it had. Parameters that DDP is told to ignore keep this site's own gradient.

    model: the module inside DDP, whose parameters' names are those of the run's model.
    samples: this worker's weight in the mean, such as its batch size.
    timeout_s: TimeoutError in backward() when a round, or its result, takes longer.
    scaler: the torch.cuda.amp.GradScaler (or one like it) that scales the loss. What travels is unscaled. When a gradient
    overflows at one site, all sites have infinite ones, so that each scaler skips the step and backs off. The run starts from
    fluvial.torch.zeros_like(model).

    What goes wrong in a hook, backward() raises: RunEnded when the run is over, PlanMismatch when its optimizer is not `mean`,
    ModelMismatch with the names of parameters whose gradients DDP does not reduce, UpdateRefused when this site's gradients count
    nowhere (one is not finite, say), KeyboardInterrupt for Ctrl-C. (Older
    PyTorch, such as 1.13, raises a RuntimeError with the error's name and text instead.) A round that was not complete
    is handed back then. PyTorch cannot go on with a DDP in which a pass failed: who catches the error makes a new one
    around the module, with a new hook. On a GPU a backward pass has threads of PyTorch's own, and Python sees Ctrl-C only
    when they are done: give it a timeout_s. One thread at a time, which is what DDP does.
    """
    reducer = _Reducer(site, run, model, samples, timeout_s, scaler)

    def hook(state, bucket):  # DDP looks at name and signature
        return reducer.reduce(bucket)

    return hook


@dataclasses.dataclass
class _Bucket:
    buffer: torch.Tensor
    values: torch.Tensor  # the same, dense
    gradients: Dict[str, torch.Tensor]  # in these, by name
    future: Any


class _Reducer:
    """The gradients of one backward pass after the other, in whatever buckets they come."""

    def __init__(
        self, site: Site, run: str, model: torch.nn.Module, samples: int, timeout_s: Optional[float], scaler: Any
    ) -> None:
        self._site, self._run, self._samples, self._timeout_s, self._scaler = site, run, samples, timeout_s, scaler
        self._parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._names = {id(parameter): name for name, parameter in self._parameters.items()}
        # Of parameters of the module itself some versions of DDP know the names with a dot before them.
        self._ignored: Set[str] = {name.lstrip(".") for name in getattr(model, "_ddp_params_and_buffers_to_ignore", ())}
        self._rounds: Optional[Generator[Round, None, None]] = None
        self._averaged: List[str] = []  # in the run's order
        self._round: Any = None  # of which the parts are
        self._parts: Optional[UpdateInParts] = None
        # Of this backward pass:
        self._buckets: List[_Bucket] = []
        self._scale = 1.0
        self._overflows = False
        self._used: Counter[str] = collections.Counter()  # how often, with those before that did not reduce (no_sync)
        self._handles = [p.register_hook(functools.partial(_note, self._used, name)) for name, p in self._parameters.items()]

    def __del__(self) -> None:
        for handle in getattr(self, "_handles", ()):
            handle.remove()

    def reduce(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        try:
            return self._add(bucket)
        except UpdateRefused as refused:
            self._leave()
            if self._scaler is not None:
                raise
            hint = "of gradients that torch's GradScaler has scaled, tell ddp_hook(scaler=...)"
            raise UpdateRefused(self._run, refused.round, f"{refused.reason}; {hint}") from refused
        except BaseException:
            self._leave()
            raise

    def _add(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        made = self._made_of(bucket)
        if any(name in before.gradients for name in made.gradients for before in self._buckets):
            self._leave()  # another backward pass ended in the middle, outside of this hook
        if self._parts is None:
            self._round = self._begin()
            self._parts = self._round.parts(samples=self._samples)
            self._scale = 1.0 if self._scaler is None else float(self._scaler.get_scale())
        if self._scaler is not None:
            made.values.div_(self._scale)
            if not torch.isfinite(made.values).all():
                self._overflows = True
                made.values.zero_()
        self._parts.add(made.gradients)
        self._buckets.append(made)
        is_last = getattr(bucket, "is_last", bool)  # from PyTorch 1.10 on
        if not self._parts.complete and is_last():
            self._add_what_is_not_reduced()
        if self._parts.complete:
            before = self._add_flags()
            self._parts.finish()
            self._complete(self._round.result(self._timeout_s), before)
        return made.future

    def _made_of(self, bucket: Any) -> _Bucket:
        buffer, parameters = bucket.buffer(), bucket.parameters()
        if not all(id(parameter) in self._names for parameter in parameters):
            raise ModelMismatch("DDP has a parameter that the model has not; pass ddp_hook the module inside DDP")
        names = [self._names[id(parameter)] for parameter in parameters]
        values = buffer.to_dense() if buffer.is_sparse else buffer  # a sparse gradient has a bucket of its own
        gradients = dict(zip(names, [values] if buffer.is_sparse else bucket.gradients()))
        return _Bucket(buffer, values, gradients, torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None))

    def _begin(self) -> Round:
        if self._rounds is None:
            self._rounds = self._site.rounds(self._run, timeout_s=self._timeout_s)
        given = next(self._rounds, None)
        if given is None:
            raise RunEnded(f"run {self._run} is over")
        given._check_is_mean("ddp_hook")
        self._averaged = [tensor.name for tensor in given.schema if tensor.averaged]
        wanted, there = set(self._averaged), set(self._parameters)
        if not there - self._ignored <= wanted <= there:
            differ = ", ".join(sorted(wanted.symmetric_difference(there))[:5])
            raise ModelMismatch(
                f"the run's tensors are not the module's parameters ({differ}); start it from fluvial.torch.zeros_like(model)"
            )
        flags = given.schema[_FLAGS].shape if _FLAGS in given.schema else None
        if flags != (len(wanted) + 1,) and (flags or self._scaler is not None):
            raise ModelMismatch(f"ddp_hook needs a run that starts from fluvial.torch.zeros_like(model); this one's {_FLAGS} is {flags}")
        return given

    def _add_what_is_not_reduced(self) -> None:
        """All buckets are there. What DDP ignores is this site's own; nothing else may be missing."""
        missing = self._parts.missing
        lost = [name for name in missing if name not in self._ignored]
        if lost:
            raise ModelMismatch(
                f"DDP reduces no gradient of {', '.join(lost[:5])}, which the run's model has: give ddp_hook the module inside DDP, as it "
                "was when DDP was made, and start the run from fluvial.torch.zeros_like of it"
            )
        self._parts.add({name: torch.zeros_like(self._parameters[name]) for name in missing})

    def _add_flags(self) -> Optional[np.ndarray]:
        """What this pass used, and whether it overflowed, each one above the round's; returns these."""
        if _FLAGS not in self._round.schema:
            return None
        before = self._round.arrays()[_FLAGS]
        self._parts.add({_FLAGS: before + np.array([self._used[name] > 0 for name in self._averaged] + [self._overflows])})
        return before

    def _complete(self, means: Dict[str, Any], before: Optional[np.ndarray]) -> None:
        buckets, self._buckets, self._parts, self._overflows = self._buckets, [], None, False
        raised = None if before is None else dict(zip([*self._averaged, _FLAGS], means[_FLAGS] > before))
        overflow = raised is not None and raised[_FLAGS]
        for bucket in buckets:
            models.load_arrays(bucket.gradients, {name: means[name] for name in bucket.gradients})
            if overflow:
                bucket.values.fill_(float("inf"))
            elif self._scale != 1.0:
                bucket.values.mul_(self._scale)
            if any(self._used[name] != 1 for name in self._parameters) and self._used:
                self._give(bucket.gradients, raised)
            sparse = bucket.values.to_sparse(bucket.buffer.sparse_dim()) if bucket.buffer.is_sparse else None
            bucket.future.set_result(bucket.buffer if sparse is None else sparse)
        self._used.clear()

    def _give(self, gradients: Dict[str, torch.Tensor], raised: Optional[Dict[str, bool]]) -> None:
        """To parameters that some site used: DDP leaves those alone that its own process group did not use in this pass."""
        for name, gradient in gradients.items():
            used = self._used[name] or gradient.any() if raised is None else raised[name]
            parameter = self._parameters[name]
            if used and parameter.grad is None:
                parameter.grad = gradient.clone()
            elif used:
                parameter.grad.copy_(gradient)

    def _leave(self) -> None:
        """Hands a round in hand back; rounds() attaches again when it is next asked for one."""
        rounds, self._rounds, self._parts, self._buckets, self._overflows = self._rounds, None, None, [], False
        if rounds is not None:
            rounds.close()


def _note(used: Counter[str], name: str, gradient: Any) -> None:
    used[name] += 1
