"""DistributedDataParallel over a federation: the gradients of all sites are averaged in every step.

    site = fluvial.connect()
    ddp = DistributedDataParallel(model)           # the process group is that of this site alone
    ddp.register_comm_hook(None, fluvial.torch.ddp_hook(site, "gradients", model))
    loss(ddp, batch).backward()                    # .grad is the mean over all workers of all sites

The run starts from fluvial.zeros_like(model), with the optimizer `mean`. This module and fluvial.fsdp alone import torch.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Generator, List, Optional, Tuple

import torch

from . import models
from .errors import ModelMismatch, RunEnded
from .parts import UpdateInParts
from .round import Round
from .site import Site


def ddp_hook(
    site: Site, run: str, model: torch.nn.Module, *, samples: int = 1, timeout_s: Optional[float] = None
) -> Callable[[Any, Any], "torch.futures.Future[torch.Tensor]"]:
    """A communication hook for DistributedDataParallel: each backward pass is one round of the run.

    A bucket goes to the site's agent as soon as it is ready, so that the agent's sum over the site's workers overlaps
    with the rest of the backward pass; the last bucket waits for the committed mean, and then all futures complete.
    Gradients of any floating-point dtype and device travel as fp32. It keeps `site` to itself until the run ends.

    model: the module inside DDP, whose parameters' names are those of the run's model.
    samples: this worker's weight in the mean, such as its batch size.
    timeout_s: TimeoutError in backward() when a round, or its result, takes longer.

    What goes wrong in a hook, backward() raises: RunEnded when the run is over, PlanMismatch when its optimizer is not `mean`, KeyboardInterrupt for Ctrl-C. (Older
    PyTorch, such as 1.13, raises a RuntimeError with the error's name and text instead.) A round that was not complete
    is handed back then. PyTorch cannot go on with a DDP in which a pass failed: who catches the error makes a new one
    around the module, with a new hook. On a GPU a backward pass has threads of PyTorch's own, and Python sees Ctrl-C only
    when they are done: give it a timeout_s. One thread at a time, which is what DDP does.
    """
    reducer = _Reducer(site, run, model, samples, timeout_s)

    def hook(state, bucket):  # DDP looks at name and signature
        return reducer.reduce(bucket)

    return hook


class _Reducer:
    """The gradients of one backward pass after the other, in whatever buckets they come."""

    def __init__(self, site: Site, run: str, model: torch.nn.Module, samples: int, timeout_s: Optional[float]) -> None:
        self._site, self._run, self._samples, self._timeout_s = site, run, samples, timeout_s
        self._names = {id(p): name for name, p in model.named_parameters() if p.requires_grad}
        self._rounds: Optional[Generator[Round, None, None]] = None
        self._round: Any = None  # of which the parts are
        self._parts: Optional[UpdateInParts] = None
        # Of this backward pass: a bucket's buffer, its future, and the gradients in it by name.
        self._buckets: List[Tuple[torch.Tensor, Any, Dict[str, torch.Tensor]]] = []

    def reduce(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        try:
            return self._add(bucket)
        except BaseException:
            self._leave()
            raise

    def _add(self, bucket: Any) -> "torch.futures.Future[torch.Tensor]":
        gradients: Dict[str, torch.Tensor] = {}
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            if id(parameter) not in self._names:
                raise ModelMismatch("DDP has a parameter that the model has not; pass ddp_hook the module inside DDP")
            gradients[self._names[id(parameter)]] = gradient
        if any(name in before for name in gradients for _, _, before in self._buckets):
            self._leave()  # another backward pass ended in the middle, outside of this hook
        if self._parts is None:
            self._round = self._begin()
            self._parts = self._round.parts(samples=self._samples)
        self._parts.add(gradients)
        buffer = bucket.buffer()
        future = torch.futures.Future(devices=[buffer.device] if buffer.is_cuda else None)
        self._buckets.append((buffer, future, gradients))
        if self._parts.complete:
            self._parts.finish()
            self._complete(self._round.result(self._timeout_s))
        return future

    def _begin(self) -> Round:
        if self._rounds is None:
            self._rounds = self._site.rounds(self._run, timeout_s=self._timeout_s)
        given = next(self._rounds, None)
        if given is None:
            raise RunEnded(f"run {self._run} is over")
        given._check_is_mean("ddp_hook")
        wanted = {tensor.name for tensor in given.schema if tensor.averaged}
        if wanted != set(self._names.values()):
            differ = ", ".join(sorted(wanted.symmetric_difference(self._names.values()))[:5])
            raise ModelMismatch(
                f"the run's tensors are not the module's parameters ({differ}); start it from fluvial.zeros_like(model)"
            )
        return given

    def _complete(self, means: Dict[str, Any]) -> None:
        buckets, self._buckets, self._parts = self._buckets, [], None
        for buffer, future, gradients in buckets:
            models.load_arrays(gradients, {name: means[name] for name in gradients})
            future.set_result(buffer)

    def _leave(self) -> None:
        """Hands a round in hand back; rounds() attaches again when it is next asked for one."""
        rounds, self._rounds, self._parts, self._buckets = self._rounds, None, None, []
        if rounds is not None:
            rounds.close()
