"""Fluvial's worker side: a training script joins a federation in three lines.

    site = fluvial.connect()                       # the agent on this machine
    for round in site.rounds("digits"):            # blocks until there is work; ends when the run ends
        round.load_into(model)
        ...                                        # round.local_steps steps of training
        round.submit(model, samples=n, metrics={"loss": loss})
"""

from . import errors, testing
from .errors import (
    AgentRefused,
    AgentUnavailable,
    FederationFailed,
    FluvialError,
    ModelMismatch,
    ProtocolError,
    RoundClosed,
)
from .files import load_model, save_model
from .models import load_arrays
from .site import Round, Site, connect

__all__ = [
    "AgentRefused",
    "AgentUnavailable",
    "FederationFailed",
    "FluvialError",
    "ModelMismatch",
    "ProtocolError",
    "Round",
    "RoundClosed",
    "Site",
    "connect",
    "errors",
    "load_arrays",
    "load_model",
    "save_model",
    "testing",
]
__version__ = "0.1.0"
