"""Fluvial's worker side: a training script joins a federation in three lines.

    site = fluvial.connect()                       # the agent on this machine
    for round in site.rounds("digits"):            # blocks until there is work; ends when the run ends
        round.load_into(model)
        ...                                        # round.local_steps steps of training
        round.submit(model, samples=n, metrics={"loss": loss})
"""

from . import callbacks, errors, testing
from ._progress import progress
from .algorithms import DiLoCo, FedProx, Scaffold
from .coordinator import Admin, admin
from .errors import (
    AgentRefused,
    AgentUnavailable,
    CoordinatorRefused,
    CoordinatorUnavailable,
    FederationFailed,
    FluvialError,
    ModelMismatch,
    PlanMismatch,
    ProtocolError,
    RoundClosed,
    RunEnded,
    RunFailed,
    TooManySamples,
    UnknownRun,
    UpdateRefused,
)
from .evaluation import Evaluation, evaluate, evaluations
from .files import load_model, model_metadata, save_model
from .models import load_arrays, zeros_like
from .round import Previous, Round
from .site import Site, connect

__all__ = [
    "Admin",
    "AgentRefused",
    "AgentUnavailable",
    "CoordinatorRefused",
    "CoordinatorUnavailable",
    "DiLoCo",
    "Evaluation",
    "FedProx",
    "FederationFailed",
    "FluvialError",
    "ModelMismatch",
    "PlanMismatch",
    "Previous",
    "ProtocolError",
    "Round",
    "RoundClosed",
    "RunEnded",
    "RunFailed",
    "Scaffold",
    "Site",
    "TooManySamples",
    "UnknownRun",
    "UpdateRefused",
    "admin",
    "callbacks",
    "connect",
    "errors",
    "evaluate",
    "evaluations",
    "load_arrays",
    "load_model",
    "model_metadata",
    "progress",
    "save_model",
    "testing",
    "zeros_like",
]
__version__ = "0.3.0"
