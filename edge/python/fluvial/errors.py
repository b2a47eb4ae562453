"""What can go wrong, each with what to do about it in its message."""

from __future__ import annotations


class FluvialError(Exception):
    """The root of this package's errors."""


class AgentUnavailable(FluvialError):
    """There is no agent at the socket, or it went away. It may come back: connect again."""


class AgentRefused(FluvialError):
    """The agent answered, and said no: another user's process, too many workers, another protocol."""


class ProtocolError(FluvialError):
    """The agent sent what the local protocol does not allow. Its version and this package's may differ."""


class ModelMismatch(FluvialError, ValueError):
    """What was given does not fit the run's model: a tensor is missing, or has another shape or dtype."""


class PlanMismatch(FluvialError, ValueError):
    """The run's plan is not one for what was asked; the message names the plan's key."""


class TooManySamples(FluvialError, ValueError):
    """`samples` of a site's workers are more together than its token allows; the message says by what to divide, at all sites."""


class RoundClosed(FluvialError):
    """The round has its answer already: submit once a round, and before asking for the next."""


class UpdateRefused(FluvialError):
    """What this worker gave in a round counts nowhere; `round` and `reason` say which, and why.

    The run goes on. Where the round is tried again, it is the next one that the worker is given.
    """

    def __init__(self, run: str, round: int, reason: str) -> None:
        super().__init__(f"what this worker gave in round {round} of {run} counts nowhere: {reason}")
        self.round = round
        self.reason = reason


class RunEnded(FluvialError):
    """The run was over before what was waited for came."""


class FederationFailed(FluvialError):
    """A process of a LocalFederation ended or did not come up; the message names its log."""


class RunFailed(FederationFailed):
    """The run that was waited for is paused or stopped; `status` and `reason` say which, and why."""

    def __init__(self, run: int, name: str, status: str, reason: str, committed: int, rounds: int) -> None:
        super().__init__(f"run {run} ({name}) is {status} after {committed} of {rounds} rounds: {reason or 'no reason given'}")
        self.run = run
        self.status = status
        self.reason = reason
        self.committed = committed


class UnknownRun(FluvialError, KeyError):
    """There is no run of that name; the message names those that there are."""

    __str__ = Exception.__str__  # KeyError's would show the message in quotes


class CoordinatorUnavailable(FluvialError):
    """There is no coordinator at the address, or it cannot answer just now."""


class CoordinatorRefused(FluvialError):
    """The coordinator answered, and said no; its message says why."""
