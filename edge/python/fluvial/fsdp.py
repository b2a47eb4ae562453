"""FSDP2 over a federation: every rank loads, and hands over, its own rows of each parameter.

    site = fluvial.connect(group="trainer", rank=rank, ranks=world_size)
    model = network()                              # the run starts from fluvial.save_model(path, network())
    torch.distributed.fsdp.fully_shard(model)
    for round in site.rounds("large"):
        fluvial.fsdp.load(round, model)
        train(model, round.local_steps)
        fluvial.fsdp.submit(round, model, samples=n)

The ranks of a process group are one worker to the agent, and none of them ever holds the whole trained model. What is not
sharded (buffers, parameters left out) is loaded by all ranks and handed over by the first. Needs a PyTorch with
`torch.distributed.tensor` (2.5 or newer). This module and fluvial.torch alone import torch.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import torch
from torch.distributed.tensor import DTensor, Replicate, Shard

from . import models
from .errors import ModelMismatch
from .round import Round


class _Piece(NamedTuple):
    name: str
    local: torch.Tensor  # this rank's rows, or all of a tensor that is not sharded
    first_row: Optional[int]  # None: not sharded
    ours: bool  # to be handed over by this rank


def load(round: Round, model: torch.nn.Module) -> None:
    """Copies this rank's part of the global model into `model`, in place.

    ModelMismatch: a tensor that the run has not, of another shape, or one that is not cut along its first dimension.
    """
    arrays = round._arrays()
    for piece, shape in _pieces(round, model):
        array = arrays[piece.name]
        if piece.first_row is not None:
            array = array[piece.first_row : piece.first_row + len(piece.local)]
        if tuple(array.shape) != tuple(piece.local.shape):
            raise ModelMismatch(f"tensor {piece.name} has shape {shape}; in the run it is {list(arrays[piece.name].shape)}")
        models.load_arrays({piece.name: piece.local}, {piece.name: array})
        round._loads.note({piece.name: piece.local})


def submit(round: Round, model: torch.nn.Module, *, samples: int, metrics: Optional[Mapping[str, float]] = None) -> None:
    """Hands this rank's part of the trained model over; all ranks give the same `samples`, and all must call it."""
    values: List[Any] = []
    places: List[int] = []
    for piece, _ in _pieces(round, model):
        if piece.ours and round.schema[piece.name].averaged:
            row_values = piece.local[0].numel() if piece.first_row and len(piece.local) else 0
            values.append(piece.local.detach())
            places.append(round.place(piece.name).start + (piece.first_row or 0) * row_values)
    round.submit_shard(values, places, samples=samples, metrics=metrics)


def _pieces(round: Round, model: torch.nn.Module) -> Iterator[Tuple[_Piece, List[int]]]:
    """This rank's pieces of what the run has, with their tensors' whole shapes."""
    there = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for tensor in round.schema:
        if tensor.name not in there:
            raise ModelMismatch(f"tensor {tensor.name} of the run's model is not in this one")
        whole = there[tensor.name]
        if isinstance(whole, DTensor):
            yield _sharded(tensor.name, whole), list(whole.shape)
        else:
            yield _Piece(tensor.name, whole, None, round._site.rank == 0), list(whole.shape)


def _sharded(name: str, whole: DTensor) -> _Piece:
    """Rows are dealt out as torch.chunk does: ceil(rows / ranks) to each, the last ones what is left."""
    first_row, rows, ours, cut = 0, whole.shape[0] if whole.dim() else 1, True, 0
    for dimension, placement in enumerate(whole.placements):
        place = whole.device_mesh.get_local_rank(dimension)
        if isinstance(placement, Replicate):
            ours = ours and place == 0
        elif isinstance(placement, Shard) and placement.dim == 0 and not cut:
            cut = 1
            first_row = min(place * -(-rows // whole.device_mesh.size(dimension)), rows)
        else:
            raise ModelMismatch(f"tensor {name} is placed as {whole.placements}; expected rows over one dimension of the mesh")
    return _Piece(name, whole.to_local(), first_row if cut else None, ours)
