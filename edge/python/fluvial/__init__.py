"""Fluvial's worker side: a training script joins a federation in three lines.

    site = fluvial.connect()                       # the agent on this machine
    for round in site.rounds("digits"):            # blocks until there is work; ends when the run ends
        round.load_into(model)
        ...                                        # round.local_steps steps of training
        round.submit(model, samples=n, metrics={"loss": loss})
"""

from . import errors, testing
from .algorithms import DiLoCo, FedProx, Scaffold
from .errors import (
    AgentRefused,
    AgentUnavailable,
    FederationFailed,
    FluvialError,
    ModelMismatch,
    ProtocolError,
    RoundClosed,
    RunEnded,
)
from .files import load_model, save_model
from .models import load_arrays, zeros_like
from .round import Previous, Round
from .site import Site, connect

__all__ = [
    "AgentRefused",
    "AgentUnavailable",
    "DiLoCo",
    "FedProx",
    "FederationFailed",
    "FluvialError",
    "ModelMismatch",
    "Previous",
    "ProtocolError",
    "Round",
    "RoundClosed",
    "RunEnded",
    "Scaffold",
    "Site",
    "connect",
    "errors",
    "load_arrays",
    "load_model",
    "save_model",
    "testing",
    "zeros_like",
]
__version__ = "0.2.0"
