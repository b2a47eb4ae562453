"""FSDP2 and other sharding by DTensors over a federation: every rank loads, and hands over, its own part of each parameter.

    site = fluvial.connect(group="trainer", rank=rank, ranks=world_size)
    model = network()                              # the run starts from fluvial.save_model(path, network())
    torch.distributed.fsdp.fully_shard(model)
    for round in site.rounds("large"):
        fluvial.fsdp.load(round, model)
        train(model, round.local_steps)
        fluvial.fsdp.submit(round, model, samples=n)

The ranks of a process group are one worker to the agent, and none of them ever holds the whole trained model. What is not
sharded (buffers, parameters left out) is loaded by all ranks and handed over by the first. Parameters may be placed by Shard
of any dimension and Replicate, over meshes of any number of dimensions (tensor parallelism, HSDP, FSDP2 over either), evenly or
not; each rank has all of the model's names. A rank's part is at most 2^20 ranges of the model's bytes that do not touch: one a
tensor for Shard(0), one a row for Shard(1). Needs a PyTorch with `torch.distributed.tensor` (2.5 or newer). This module and
fluvial.torch alone import torch.
"""

from __future__ import annotations

from typing import Iterator, List, Mapping, NamedTuple, Optional, Tuple

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from . import models
from ._pieces import Given, Piece, box_of, ranges_of
from .errors import ModelMismatch
from .round import Round


class _Part(NamedTuple):
    piece: Piece
    local: torch.Tensor
    ours: bool  # to be handed over by this rank


def load(round: Round, model: torch.nn.Module) -> None:
    """Copies this rank's part of the global model into `model`, in place.

    ModelMismatch: a tensor that the run has not, of another shape, or placed in a way that is no part of the tensor; the
    message names the tensor and its placements.
    """
    data = round._data()
    for piece, local, _ in _parts(round, model):
        models._load_torch(local, piece.view(data))
        round._loads.note({piece.tensor.name: local})


def submit(
    round: Round,
    model: torch.nn.Module,
    *,
    samples: int,
    metrics: Optional[Mapping[str, float]] = None,
    overlap: bool = False,
) -> None:
    """Hands this rank's part of the trained model over; all ranks give the same `samples`, and all must call it.

    overlap: as Round.submit() has it; all ranks give the same.
    """
    round._checked(None)
    parts = list(_parts(round, model))
    given = [Given(piece, local.detach(), local) for piece, local, ours in parts if ours or overlap]
    round._submit_pieces(given, ranges_of([piece for piece, _, ours in parts if ours]), round._answer(samples, metrics), overlap)


def _parts(round: Round, model: torch.nn.Module) -> Iterator[_Part]:
    """What this rank has of each tensor of the run."""
    there = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for tensor in round.schema:
        whole = there.get(tensor.name)
        if whole is None:
            raise ModelMismatch(f"tensor {tensor.name} of the run's model is not in this one")
        if tuple(whole.shape) != tensor.shape or tensor.averaged != whole.is_floating_point():
            raise ModelMismatch(
                f"tensor {tensor.name} has shape {list(whole.shape)} and dtype {whole.dtype}; in the run it has shape "
                f"{list(tensor.shape)} and dtype {tensor.dtype}"
            )
        if not isinstance(whole, DTensor):
            yield _Part(box_of(tensor, [0] * len(tensor.shape), tensor.shape), whole, round._site.rank == 0)
            continue
        begin, end, ours = _box(tensor.name, whole)
        piece, local = box_of(tensor, begin, end), whole.to_local()
        if tuple(local.shape) != piece.shape:
            raise ModelMismatch(
                f"tensor {tensor.name} is placed as {whole.placements}: expected {list(piece.shape)} of it here, and there are "
                f"{list(local.shape)}"
            )
        yield _Part(piece, local, ours)


def _box(name: str, whole: DTensor) -> Tuple[List[int], List[int], bool]:
    """Where this rank's part of a tensor begins and ends in each dimension, and whether it is this rank that hands it over.

    Each dimension of the mesh deals a dimension of the tensor out as torch.chunk does: ceil(length / ranks) to each, the last
    ones what is left.
    """
    mesh = whole.device_mesh
    begin, end = [0] * len(whole.shape), list(whole.shape)
    ours = 0 in mesh.mesh  # other meshes of the same kind beside it hold the same
    for dimension in _cuts(name, whole):
        cut = whole.placements[dimension].dim % len(whole.shape)
        length, place = end[cut] - begin[cut], mesh.get_local_rank(dimension)
        chunk = -(-length // mesh.size(dimension))
        begin[cut], end[cut] = (begin[cut] + min(at * chunk, length) for at in (place, place + 1))
    for dimension, placement in enumerate(whole.placements):
        ours = ours and not (isinstance(placement, Replicate) and mesh.get_local_rank(dimension))
    return begin, end, ours


def _cuts(name: str, whole: DTensor) -> List[int]:
    """The dimensions of the mesh that cut the tensor, in their order: from left to right, but one that is strided comes behind
    those on its right that its split_factor counts (as FSDP2 cuts what tensor parallelism has cut)."""
    order: List[int] = []
    for dimension in reversed(range(len(whole.placements))):
        placement = whole.placements[dimension]
        if isinstance(placement, Replicate):
            continue
        is_strided = type(placement).__name__ == "_StridedShard"
        factor, at, before = placement.split_factor if is_strided else 1, 0, 1
        while before < factor and at < len(order):
            same = whole.placements[order[at]].dim == placement.dim
            before *= whole.device_mesh.size(order[at]) if same else 1
            at += 1
        if before != factor or not (is_strided or isinstance(placement, Shard)):
            raise ModelMismatch(
                f"tensor {name} is placed as {whole.placements}: expected Shard, Replicate, or FSDP2's _StridedShard over them"
            )
        order.insert(at, dimension)
    return order
