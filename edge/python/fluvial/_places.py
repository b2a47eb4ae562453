"""Where agents and coordinators that are installed as the documentation says have their sockets."""

from __future__ import annotations

import os
import socket
from typing import List, Sequence

# The package and Kubernetes; an agent of one's own user; data folders that the documentation names; a container's volume.
_WORKERS = (
    "/run/fluvial/worker.sock",
    "~/fluvial/worker.sock",
    "~/.local/share/fluvial/worker.sock",
    "/var/lib/fluvial-edge/worker.sock",
    "/var/lib/fluvial-site/worker.sock",
    "/var/lib/fluvial/edge/worker.sock",
    "/var/lib/fluvial/worker.sock",
)
_EVALUATORS = (
    "/var/lib/fluvial/worker.sock",
    "/run/fluvial/evaluation.sock",
    "~/fluvial-coordinator/worker.sock",
    "/var/lib/fluvial-coordinator/worker.sock",
)


def worker_socket() -> str:
    """The agent's: ``FLUVIAL_WORKER_SOCKET``, or of the usual places the first where somebody listens."""
    return _first("FLUVIAL_WORKER_SOCKET", worker_sockets())


def worker_sockets() -> List[str]:
    """The usual places, in order."""
    return _expanded(_WORKERS)


def evaluation_socket() -> str:
    """The coordinator's: ``FLUVIAL_EVALUATION_SOCKET``, or of the usual places the first where somebody listens."""
    return _first("FLUVIAL_EVALUATION_SOCKET", _expanded(_EVALUATORS))


def _expanded(paths: Sequence[str]) -> List[str]:
    data = os.environ.get("FLUVIAL_DATA_DIR")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = [os.path.join(data, "worker.sock")] if data else []
    own += [os.path.join(runtime, "fluvial", "worker.sock")] if runtime else []
    return own + [os.path.expanduser(path) for path in paths]


def _first(variable: str, paths: Sequence[str]) -> str:
    named = os.environ.get(variable)
    if named:
        return os.path.expanduser(named)
    there = [path for path in paths if os.path.exists(path)]
    return next((path for path in there if _listens(path)), (there or list(paths))[0])


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except PermissionError:
            return True  # somebody's; attaching says more
        except OSError:
            return False
        return True
