"""A real federation on this machine, for tests: coordinator, aggregators and agents as processes in a temporary folder.

    with fluvial.testing.LocalFederation(sites=4, aggregators=2) as federation:
        federation.start_run("probe", model={"w": np.zeros(1000, np.float32)}, rounds=3)
        federation.train(worker)                  # worker(site, index): in a thread for each site
        federation.wait("probe")
        federation.rounds("probe")                # who was in, with which metrics

Of hundreds of sites: federation.train_rounds(step, "probe", at_once=8). Of workers of one's own: site = federation.connect(0), or start_worker(0, ["python", "train.py"]).

It needs the `fluvial` executable: on the PATH, or named by FLUVIAL_EXECUTABLE.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import operator
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

import numpy as np

from . import files, site
from ._crew import Crew, CrewProcess, raise_open_files
from ._start import StartedRun
from .coordinator import Admin, Rows, RunId
from .errors import CoordinatorRefused, FederationFailed, FluvialError, UnknownRun
from .round import Round
from .selection import Only

_STOP_SECONDS = 30.0
_WITHOUT_WORKER_SECONDS = 5.0  # a site whose worker left a round in the middle: then it will not come back
_NO_WORKER = "no worker attached"  # docs/operations/admin-api.md, `waits`
_SAID_BYTES_MAX = 4000  # of what a worker's process wrote
_FILES_PER_SITE = 4
_FILES_OF_OTHERS = 512
_OF_ANOTHER_FEDERATION = ("FLUVIAL_ADMIN", "FLUVIAL_CONFIG", "FLUVIAL_DATA_DIR", "FLUVIAL_IDENTITY")


def executable() -> str:
    """The path of the `fluvial` executable."""
    path = os.environ.get("FLUVIAL_EXECUTABLE") or shutil.which("fluvial")
    if path is None:
        raise FederationFailed(
            "no fluvial executable on the PATH; build one (./dev build) and set FLUVIAL_EXECUTABLE to its path"
        )
    return path


_federations: "weakref.WeakSet[LocalFederation]" = weakref.WeakSet()


def _forked() -> None:
    """In a process that was forked off: a federation ends with the process that started it, and not with this one."""
    for federation in list(_federations):
        if federation._process is not None and federation._process.stdin is not None:
            federation._process.stdin.close()


os.register_at_fork(after_in_child=_forked)


@dataclasses.dataclass
class _Failure:
    """Of a worker."""

    said: str
    run: Optional[int] = None  # that it trained for; None: that is not known yet
    error: Optional[BaseException] = None


class LocalFederation(contextlib.AbstractContextManager):
    """A federation of its own, which ends with the `with` block (or with this process, however that ends)."""

    def __init__(
        self, sites: int = 2, aggregators: int = 0, workers: int = 1, *, settings: Optional[Mapping[str, Any]] = None
    ) -> None:
        """sites: up to 30 are a process each; more share processes, with an identity, a store and a socket each (2000 at most).

        workers: how many each site's rounds wait for, and are shared out to; a group of ranks is one.

        settings: of its processes, by role and key: {"site.reduction": "direct"}. No FLUVIAL_... variable of this process
        sets anything of them.
        """
        _check_whole(sites=sites, aggregators=aggregators, workers=workers)
        further = [f"--set={name}={value}" for name, value in (settings or {}).items()]
        self._process: Optional[subprocess.Popen] = None
        self._opened: List[site.Site] = []
        self.workers = workers  # a round of a site waits for
        self._threads: List[threading.Thread] = []
        self._started: List[Tuple[str, Callable[[], bool]]] = []  # a worker's site, and whether it still works
        self._failures: List[_Failure] = []  # of workers
        self._told: Set[int] = set()  # id() of those Sites, processes and crews whose failure is among them
        self._newest = 0  # the run that was started last
        self._workers: List[Tuple[str, subprocess.Popen, str]] = []  # site, process, its log
        self._left: Dict[str, float] = {}  # sites without a worker, since when
        self._ended_since: Optional[Tuple[float, Any]] = None  # when what _check_ended() looks for was first seen
        self._crews: List[Tuple[int, Union[Crew, CrewProcess]]] = []  # of train_rounds(), with their run
        raise_open_files(_FILES_PER_SITE * sites + _FILES_OF_OTHERS)
        # Standard input ends when this process does, however it ends: then the federation goes too.
        self._process = subprocess.Popen(
            [executable(), "local", "--sites", str(sites), "--aggregators", str(aggregators), "--workers", str(workers)]
            + ["--until-eof", "--json", *further],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        _federations.add(self)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate(timeout=_STOP_SECONDS)
            raise FederationFailed(f"the federation did not come up: {errors.strip()}")
        self._about = json.loads(line)
        self.folder: str = self._about["folder"]  # with a log a process
        self.admin_socket: str = self._about["admin_socket"]
        self.evaluation_socket: str = self._about["evaluator_socket"]  # for fluvial.evaluate(socket=...)
        self.admin = Admin(self.admin_socket)  # runs, rounds, nodes, models: what fluvial.admin() gives
        self.sites: List[str] = [about["name"] for about in self._about["sites"]]

    def worker_socket(self, index: int) -> str:
        """Where workers of the site attach."""
        return self._about["sites"][index]["worker_socket"]

    def connect(self, index: int, *, name: Optional[str] = None) -> site.Site:
        """What fluvial.connect() gives, attached to the site of that index; closed with the federation."""
        connected = site.connect(self.worker_socket(index), name=name)
        self._opened.append(connected)
        return connected

    def train(self, worker: Callable[[site.Site, int], Any]) -> None:
        """Calls worker(site, index) in a thread for each site, with `workers=2` in two.

        wait() of the run that a worker trains for ends with what it raises.
        """

        def run(index: int, place: int) -> None:
            name = f"python-{os.getpid()}-{place}" if self.workers > 1 else None
            connected: Optional[site.Site] = None
            try:
                with site.connect(self.worker_socket(index), name=name) as connected:
                    worker(connected, index)
            except BaseException as error:  # whatever it is, it is the worker's end
                self._failed(index, error, None if connected is None else self._run_of(connected))

        for index in range(len(self.sites)):
            for place in range(self.workers):
                thread = threading.Thread(target=run, args=(index, place), daemon=True)
                thread.start()
                self._threads.append(thread)
                self._started.append((self.sites[index], thread.is_alive))

    def train_rounds(
        self, step: Callable[[Round, int], Any], run: RunId, *, at_once: Optional[int] = None, processes: bool = False
    ) -> None:
        """Calls step(round, index) for each round of each site, `at_once` of them at the same time: for many sites.

        A site costs a connection and no thread, so hundreds of sites need the models of `at_once` of them. wait() ends with
        what a step raises.

        step: loads, trains and submits; a round that it leaves without an answer the site sits out. A site's rounds
        come one after another, on whichever thread is free: what a step keeps for a site goes by `index`, and a model to
        train in may be threading.local()'s. It neither waits for round.result() nor submits with overlap=True.
        at_once: by default as many as there are processors.
        processes: `at_once` processes in place of threads, for steps that hold the interpreter's lock. Each has its share of
        the sites for good. multiprocessing starts them, as multiprocessing.set_start_method says: unless that is `fork`,
        step is a function at the top of a module.
        """
        try:
            about = self.admin.run(run)
        except (UnknownRun, CoordinatorRefused) as error:
            raise FederationFailed(f"{error}; start_run() comes first") from error
        run, number = about["name"], about["id"]
        count = len(self.sites)
        _check_whole(at_once=at_once or 1)
        many = min(at_once or len(os.sched_getaffinity(0)), count)
        if many < 1:
            raise ValueError(f"at_once is {at_once}, expected 1 or more")
        sockets = {index: self.worker_socket(index) for index in range(count)}
        if not processes:

            def failed(index: int, error: BaseException) -> None:
                self._failed(index, error, number)

            self._crews.append((number, Crew(sockets, step, run, many, failed).start()))
            return
        for first in range(many):
            share = {index: sockets[index] for index in range(first, count, many)}
            self._crews.append((number, CrewProcess(share, step, run, 1)))

    def start_worker(self, index: int, command: Sequence[str]) -> subprocess.Popen:
        """Starts a training script beside the site of that index: FLUVIAL_WORKER_SOCKET says where. Ended with the federation.

        fluvial.evaluate() and fluvial.admin() find this federation there, whatever other one this process has variables for.
        wait() ends with what it wrote when it fails.
        """
        log = os.path.join(self.folder, f"worker-{len(self._workers)}.log")
        environment = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_FEDERATION}
        environment["FLUVIAL_WORKER_SOCKET"] = self.worker_socket(index)
        environment["FLUVIAL_EVALUATION_SOCKET"] = self.evaluation_socket
        environment["FLUVIAL_ADMIN_SOCKET"] = self.admin_socket
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        with open(log, "wb") as out:
            process = subprocess.Popen(list(command), env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self._workers.append((self.sites[index], process, log))
        self._started.append((self.sites[index], lambda: process.poll() is None))
        return process

    def start_run(
        self,
        name: str,
        model: Any = None,
        *,
        only: Only = None,
        continues: Optional[RunId] = None,
        round: Union[None, int, str] = None,
        keep_optimizer: bool = False,
        rounds: int = 1,
        codec: str = "fp32",
        down: str = "fp32",
        optimizer: str = "fedavg",
        local_steps: int = 1,
        participants: Optional[int] = None,
        worker: Optional[Mapping[str, Any]] = None,
        plan: Optional[Mapping[str, Any]] = None,
    ) -> StartedRun:
        """Starts a run from `model` (a module, a state dict, a mapping of arrays, a file), or of `only` some of its tensors.

        Returns the run's number, as Admin.start_run, which has a whole plan in place of these. continues: a run of
        this federation, in place of a model: from its last model, or that of `round` (a number, "best" or a label); with
        `keep_optimizer` also from the state that its server optimizer had after that round.

        `codec` is how updates travel, `down` how the model does: "delta:int8" sends its difference from the one before.

        UserWarning: what the coordinator has to say of a plan that may learn badly.

        Rounds wait for `participants` sites (all of them by default) and need as many contributions; windows (a plan of
        {"mode": "async"}) need what the plan says. `plan` holds what else a plan may say: {"chunk_values": 65536,
        "optimizer": {"learning_rate": 0.5}}. `worker` is what workers have as `round.config`: {"network": "small",
        "learning_rate": {"start": 0.1, "decay": 0.99}}.
        """
        count = len(self.sites) if participants is None else participants
        _check_whole(rounds=1 if rounds is None else rounds, local_steps=local_steps, participants=count)
        asked: Dict[str, Any] = {
            "name": name,
            "rounds": rounds,
            "local_steps": local_steps,
            "models_kept": min(100 if rounds is None else rounds, 100) + 1,
            "codec": codec,
            "down": down,
            "optimizer.name": optimizer,
            "participants.min": count,
            "worker": dict(worker or {}),
        }
        if (plan or {}).get("mode") != "async":  # whose windows would all wait for the slowest site
            asked["participants.quorum"] = count
        for key, value in (plan or {}).items():
            if isinstance(value, Mapping):
                asked.update({f"{key}.{name}": one for name, one in value.items()})
            else:
                asked[key] = value
        try:
            started = self.admin._start(asked, model, only, continues, round, keep_optimizer, sends=False)
        except CoordinatorRefused as error:
            raise FederationFailed(f"the run was not started: {error}") from error
        self._newest = int(started)
        for note in started.notes:
            warnings.warn(note, stacklevel=2)
        return started

    def wait(self, run: RunId, *, timeout_s: Optional[float] = None, progress: int = False) -> None:
        """Until the run has ended. FederationFailed says why when it was paused or stopped before its last round.

        Also when a worker of the run crashed: of train() or start_worker(), one whose `with federation.connect(...)` block an
        exception left, and one that left a round in the middle while nobody trains at its site. A worker is of the run whose
        round it had, or that it asked for; one that had asked for none, of the run that is waited for next. And when a site's workers, of train() or
        start_worker(), have all ended before the run, which waits for them. TimeoutError after `timeout_s`.

        run: its name or number, here and wherever a run is asked for. UnknownRun: there is none of that name.

        progress: print a line a round (10: each tenth) as they are committed, with what workers reported.
        """
        self._left.clear()
        number = self.admin.number(run)

        def look() -> None:
            self._check(number, number)
            self._check_ended(number)

        self._check(number, number)
        self.admin.wait(number, timeout_s=timeout_s, progress=progress, check=look)
        self._started = [(where, works) for where, works in self._started if works()]  # the others were of this run
        self._check(number, number)

    def join(self, timeout_s: float = _STOP_SECONDS) -> None:
        """Until what train() and train_rounds() started has ended. TimeoutError.

        FederationFailed with what a worker raised of the run that was started last, by start_run() or evaluate().
        """
        end = time.monotonic() + timeout_s
        for _, crew in self._crews:
            if not crew.join(max(0.0, end - time.monotonic())):
                self._check(self._newest)
                raise TimeoutError(f"a worker of train_rounds() has not ended within {timeout_s:g} s")
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                self._check(self._newest)
                raise TimeoutError(f"a worker of train() has not returned within {timeout_s:g} s")
        self._check(self._newest)

    def rounds(self, run: RunId) -> Rows:
        """The committed rounds: contributors and metrics, as Admin.rounds() has them."""
        return self.admin.rounds(run)

    def site_metrics(self, run: RunId) -> Rows:
        """What each site reported in each round, as Admin.sites() has it."""
        return self.admin.sites(run)

    def evaluate(self, run: RunId, round_number: Optional[int] = None, *, timeout_s: Optional[float] = None) -> Dict[str, Any]:
        """A committed model (the last one) on the sites' own data: Admin.evaluate. Their workers answer with Site.evaluate."""
        number = "latest" if round_number is None else round_number
        self._left.clear()
        before = max((one["id"] for one in self.admin.runs()), default=0)
        self._newest = before + 1  # the evaluation's own run
        return self.admin.evaluate(run, number, timeout_s=timeout_s, check=lambda: self._check(before + 1))

    def _failed(self, index: int, error: BaseException, run: Optional[int]) -> None:
        said = f"the worker at {self.sites[index]} failed: {type(error).__name__}: {error}"
        self._failures.append(_Failure(said, run, error))

    def _run_of(self, worker: site.Site) -> Optional[int]:
        """The run that this worker trains for, or trained for last; None: it has asked for none that there is."""
        name, number = worker.works_for
        if number is None and name is not None:
            with contextlib.suppress(FluvialError):
                return self.admin.number(name)
        return number

    def _look_for_failures(self) -> None:
        """Of workers that this process has no thread of."""
        for number, crew in self._crews:
            failure = crew.failure() if isinstance(crew, CrewProcess) else None
            if failure is not None and self._is_new(crew):
                where = "some sites" if failure[0] is None else self.sites[failure[0]]
                self._failures.append(_Failure(f"the worker at {where} failed: {failure[1]}", number))
        for opened in self._opened:
            if opened.error is not None and self._is_new(opened):
                self._failed(self.sites.index(opened.name), opened.error, self._run_of(opened))
        for where, process, log in self._workers:
            if process.poll() not in (None, 0) and self._is_new(process):
                said = f"the worker at {where} ended with status {process.returncode}: {_end_of(log)}"
                self._failures.append(_Failure(said))

    def _is_new(self, worker: Any) -> bool:
        new = id(worker) not in self._told
        self._told.add(id(worker))
        return new

    def _check(self, first: int, last: float = math.inf) -> None:
        """FederationFailed: a worker of these runs has failed, or one that is of no run so far, which it then is of `first`."""
        self._look_for_failures()
        for failure in self._failures:
            if failure.run is None:
                failure.run = first
            if first <= failure.run <= last:
                raise FederationFailed(failure.said) from failure.error
        self._check_left(first, last)

    def _check_left(self, first: int, last: float) -> None:
        left = {}
        for opened in self._opened:
            if opened.left is not None and first <= (opened.works_for[1] or first) <= last:
                left[opened.name] = opened.left
        if left:
            now = time.monotonic()
            workers = {node["name"]: node.get("workers") for node in self.admin.nodes()}
            for where, round in left.items():
                if workers.get(where) != 0:
                    self._left.pop(where, None)
                elif now - self._left.setdefault(where, now) > _WITHOUT_WORKER_SECONDS:
                    raise FederationFailed(f"the worker at {where} left {round} in the middle, and nobody trains there now")

    def _check_ended(self, run: int) -> None:
        """FederationFailed: the run's open round cannot be committed without sites whose workers have all returned."""
        at_work = {where for where, works in self._started if works()}
        ended = {where for where, _ in self._started} - at_work
        about = self.admin.run(run) if ended else {}
        open_round = about.get("open") or {}
        waits = about.get("waits") or ()
        gone = {wait["node"] for wait in waits if wait["reason"] == _NO_WORKER} & ended
        others = [where for where in open_round.get("awaited", ()) if where not in gone]
        missing = open_round.get("quorum", 1) - open_round.get("in", 0)
        windows = open_round.get("mode") == "async"  # to which a site may contribute more than once
        if not open_round or not gone or missing <= len(others) or (windows and others):
            self._ended_since = None
            return
        now, seen = time.monotonic(), (about["committed"], sorted(gone))
        if self._ended_since is None or self._ended_since[1] != seen:
            self._ended_since = now, seen
        elif now - self._ended_since[0] > _WITHOUT_WORKER_SECONDS:
            when = f"after round {about['committed']} of {about['rounds']}" if about["committed"] else "before round 1 was committed"
            raise FederationFailed(f"the worker at {', '.join(sorted(gone))} returned {when}; nobody trains there now")

    def stop_run(self, run: RunId) -> None:
        """Ends the run after what it has committed; its workers' rounds() end."""
        number = self.admin.number(run)
        self._fluvial("run", "stop", str(number))
        self._look_for_failures()
        for failure in self._failures:  # what failed by now is no later run's
            failure.run = number if failure.run is None else failure.run

    def model(self, run: RunId, round_number: Optional[int] = None) -> Dict[str, np.ndarray]:
        """The last committed model of the run (or that of a round; 0: the initial one), by name."""
        with tempfile.TemporaryDirectory(prefix="fluvial-model-") as folder:
            path = os.path.join(folder, "model.safetensors")
            number = "latest" if round_number is None else str(round_number)
            self._fluvial("model", "export", path, "--run", str(self.admin.number(run)), "--round", number)
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
        for _, worker, _ in self._workers:
            if worker.poll() is None:
                worker.terminate()
        for _, worker, _ in self._workers:
            try:
                worker.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._workers.clear()
        self.stop_processes()
        for thread in self._threads:
            thread.join(_STOP_SECONDS)
        for _, crew in self._crews:
            if not crew.join(_STOP_SECONDS) and isinstance(crew, CrewProcess):
                crew.end()
        self._crews.clear()

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


def _check_whole(**numbers: Any) -> None:
    """TypeError: names the one that is no whole number."""
    for name, number in numbers.items():
        try:
            operator.index(number)
        except TypeError:
            raise TypeError(
                f"{name} is {number!r}, a {type(number).__name__}; expected a whole number, as {name}=5"
            ) from None


def _end_of(log: str) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - _SAID_BYTES_MAX))
        return file.read().decode(errors="replace").strip()
