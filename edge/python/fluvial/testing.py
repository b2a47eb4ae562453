"""A real federation on this machine, for tests: coordinator, aggregators and agents as processes in a temporary folder.

    with fluvial.testing.LocalFederation(sites=4, aggregators=2) as federation:
        federation.start_run("probe", model={"w": np.zeros(1000, np.float32)}, rounds=3)
        site = federation.connect(0)

It needs the `fluvial` executable: on the PATH, or named by FLUVIAL_EXECUTABLE.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from typing import Any, Dict, List, Mapping, Optional

import numpy as np

from . import files, site
from .errors import FederationFailed

_STOP_SECONDS = 30.0


def executable() -> str:
    """The path of the `fluvial` executable."""
    path = os.environ.get("FLUVIAL_EXECUTABLE") or shutil.which("fluvial")
    if path is None:
        raise FederationFailed(
            "no fluvial executable on the PATH; build one (./dev build) and set FLUVIAL_EXECUTABLE to its path"
        )
    return path


class LocalFederation(contextlib.AbstractContextManager):
    """A federation of its own, which ends with the `with` block (or with this process, however that ends)."""

    def __init__(self, sites: int = 2, aggregators: int = 0, workers: int = 1) -> None:
        """workers: how many each site's rounds wait for, and are shared out to; a group of ranks is one."""
        self._process: Optional[subprocess.Popen] = None
        self._opened: List[site.Site] = []
        self._runs: Dict[str, int] = {}
        # Standard input ends when this process does, however it ends: then the federation goes too.
        self._process = subprocess.Popen(
            [executable(), "local", "--sites", str(sites), "--aggregators", str(aggregators), "--workers", str(workers)]
            + ["--until-eof", "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate(timeout=_STOP_SECONDS)
            raise FederationFailed(f"the federation did not come up: {errors.strip()}")
        self._about = json.loads(line)
        self.folder: str = self._about["folder"]  # with a log a process
        self.admin_socket: str = self._about["admin_socket"]
        self.sites: List[str] = [about["name"] for about in self._about["sites"]]

    def worker_socket(self, index: int) -> str:
        """Where workers of the site attach."""
        return self._about["sites"][index]["worker_socket"]

    def connect(self, index: int, *, name: Optional[str] = None) -> site.Site:
        """What fluvial.connect() gives, attached to the site of that index; closed with the federation."""
        connected = site.connect(self.worker_socket(index), name=name)
        self._opened.append(connected)
        return connected

    def start_run(
        self,
        name: str,
        model: Any,
        *,
        rounds: int = 1,
        codec: str = "fp32",
        optimizer: str = "fedavg",
        local_steps: int = 1,
        participants: Optional[int] = None,
        worker: Optional[Mapping[str, float]] = None,
        plan: Optional[Mapping[str, Any]] = None,
    ) -> int:
        """Starts a run from `model` (a module, a state dict, a mapping of arrays) and returns its number.

        Rounds wait for `participants` sites (all of them by default) and need as many contributions. `plan` holds
        what else a plan may say: {"chunk_values": 65536, "optimizer": {"learning_rate": 0.5}}.
        """
        count = len(self.sites) if participants is None else participants
        tables: Dict[str, Dict[str, Any]] = {
            "participants": {"min": count, "quorum": count},
            "optimizer": {"name": optimizer},
            "worker": dict(worker or {}),
        }
        further: Dict[str, Any] = {}
        for key, value in (plan or {}).items():
            if isinstance(value, Mapping):
                tables.setdefault(key, {}).update(value)
            else:
                further[key] = value
        with tempfile.TemporaryDirectory(prefix="fluvial-run-") as folder:
            files.save_model(os.path.join(folder, "initial.safetensors"), model)
            head = {
                "name": name,
                "model": "initial.safetensors",
                "rounds": rounds,
                "local_steps": local_steps,
                "models_kept": min(rounds, 100) + 1,
                "codec": codec,
                **further,
            }
            path = os.path.join(folder, "plan.toml")
            with open(path, "w", encoding="utf-8") as out:
                out.write(_toml(head, tables))
            started = json.loads(self._fluvial("run", "start", path, "--json"))
        self._runs[name] = int(started["run"])
        return self._runs[name]

    def wait(self, name: str) -> None:
        """Until the run has ended. FederationFailed says why when it was paused or stopped before its last round."""
        self._fluvial("rounds", "watch", "--run", str(self._runs[name]))

    def stop_run(self, name: str) -> None:
        """Ends the run after what it has committed; its workers' rounds() end."""
        self._fluvial("run", "stop", str(self._runs[name]))

    def model(self, name: str, round_number: Optional[int] = None) -> Dict[str, np.ndarray]:
        """The last committed model of the run (or that of a round; 0: the initial one), by name."""
        with tempfile.TemporaryDirectory(prefix="fluvial-model-") as folder:
            path = os.path.join(folder, "model.safetensors")
            number = "latest" if round_number is None else str(round_number)
            self._fluvial("model", "export", path, "--run", str(self._runs[name]), "--round", number)
            return files.load_model(path)

    def _fluvial(self, *arguments: str) -> str:
        command = [executable(), *arguments, "--admin-socket", self.admin_socket]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FederationFailed(f"`fluvial {' '.join(arguments[:2])}` failed: {done.stderr.strip()}")
        return done.stdout

    def close(self) -> None:
        """Ends all processes and removes their folder. May be called twice."""
        while self._opened:
            self._opened.pop().close()
        self.stop_processes()

    def stop_processes(self) -> None:
        """Ends coordinator, aggregators and agents, as at the end of the block; workers that are attached notice."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=_STOP_SECONDS)  # closes its standard input
        except subprocess.TimeoutExpired:
            process.terminate()
            process.communicate()

    def __exit__(self, *_: object) -> None:
        self.close()


def _toml(head: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> str:
    def line(key: str, value: Any) -> str:
        if isinstance(value, bool):
            return f"{key} = {'true' if value else 'false'}\n"
        return f"{key} = {json.dumps(value)}\n"  # JSON's texts and numbers are TOML's

    text = "".join(line(key, value) for key, value in head.items())
    for name, table in tables.items():
        if table:
            text += f"\n[{name}]\n" + "".join(line(key, value) for key, value in table.items())
    return text
