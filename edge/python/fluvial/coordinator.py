"""A federation as whoever runs it sees it: runs, rounds, what workers reported, models.

    federation = fluvial.admin("/var/lib/fluvial/admin.sock")
    run = federation.start_run({"name": "digits", "rounds": 20, "codec": "int8"}, model)
    federation.wait(run, progress=True)                # a line a round; RunFailed, with the reason, when it is paused or stopped
    for round in federation.rounds(run):
        print(round["round"], round["metrics"]["loss"], round["evaluation"].get("test_accuracy"))
    federation.rounds(run).frame()                     # where pandas is there
    best = federation.best("test_accuracy", "max", run)["round"]
    fluvial.load_arrays(model, federation.model(run, best))

On the coordinator's machine it goes over the admin socket; from elsewhere over mutual TLS, with the folder of an operator's
certificate: fluvial.admin("https://coordinator.example:7402", identity="~/fluvial-operator"). What is a dict here is the
object of docs/operations/admin-api.md.
"""

from __future__ import annotations

import contextlib
import json
import operator
import os
import re
import tempfile
import time
import warnings
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Union

import numpy as np

from . import _http, _upload, files
from ._progress import RoundLines
from ._start import Plan, StartedRun, model_file, plan_source
from .errors import CoordinatorRefused, CoordinatorUnavailable, FluvialError, RunFailed, UnknownRun
from .selection import Only

_DEFAULT_SOCKETS = ("/run/fluvial/admin.sock", "/var/lib/fluvial/admin.sock", "~/fluvial/admin.sock")
_LIMIT = 10_000  # rounds in one answer
_WATCH_SILENCE_SECONDS = 60.0  # a watched run says something every 15 s
_LOOK_SECONDS = (0.02, 0.5, 3.0)  # the first pause between two looks, the longest, the longest from another machine
_PART_BYTES = 1 << 20  # of a model on its way here
_PARTS_UNDER_WAY = 16
_START_SECONDS = 600.0  # it reads the model, checks it and writes it down
RunId = Union[int, str]


def admin(address: Optional[str] = None, *, identity: Optional[str] = None, timeout_s: float = 30.0) -> "Admin":
    """The coordinator's admin API.

    address: the path of the admin socket, or "https://host:port"; by default ``FLUVIAL_ADMIN``, ``FLUVIAL_ADMIN_SOCKET``,
    or the usual places of the socket.
    identity: with https, the folder with the operator's ``key.pem``, ``cert.pem`` and ``ca.pem`` (`fluvial enroll`); by default
    ``FLUVIAL_IDENTITY``, or the only one in ``~/.config/fluvial``.
    timeout_s: for each answer.

    CoordinatorUnavailable: nobody listens there.
    """
    made = Admin(address, identity=identity, timeout_s=timeout_s)
    made.status()
    return made


class Rows(List[Dict[str, Any]]):
    """Dicts, in order; `frame()` makes a pandas.DataFrame of them."""

    def frame(self) -> Any:
        """A pandas.DataFrame: what is a mapping becomes a column for each of its names ("metrics.loss"), a list its length.

        ImportError: there is no pandas.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError("frame() needs pandas; the rows themselves are a list of dicts") from error
        return pandas.DataFrame([_flat(row) for row in self])


class Admin:
    """What fluvial.admin() gives. Each call is one request; any thread may call."""

    def __init__(self, address: Optional[str] = None, *, identity: Optional[str] = None, timeout_s: float = 30.0) -> None:
        if address is None:
            named = os.environ.get("FLUVIAL_ADMIN") or os.environ.get("FLUVIAL_ADMIN_SOCKET")
            address = named or _first_there(_DEFAULT_SOCKETS)
        self._connect = _http.connector(address, identity, timeout_s)
        self._is_remote = address.startswith("https://")
        self.address = address

    # ---- what is there ---------------------------------------------------------------------------------------------

    def status(self) -> Dict[str, Any]:
        """The federation as it is: runs, what they wait for, what is wrong and what to do about it."""
        return self._get("/v1/status")

    def nodes(self) -> Rows:
        """The members, with what each does."""
        return Rows(self._get("/v1/nodes")["nodes"])

    def runs(self) -> Rows:
        """All runs, oldest first: id, name, status, reason, rounds, committed, ..."""
        return Rows(self._get("/v1/runs")["runs"])

    def run(self, run: RunId = "latest") -> Dict[str, Any]:
        """One run, with its plan and schema. run: a number, a name (the last run of that name) or "latest"."""
        return self._get(f"/v1/runs/{self.number(run)}")

    def rounds(self, run: RunId = "latest", first: int = 1, last: Optional[int] = None) -> Rows:
        """The committed rounds, in order: `metrics` (means over the sites), `evaluation`, `contributors` by name, ...

        `not_finite`: of each metric the sites that reported NaN, an infinity or more than 1e100, which is in no mean.
        """
        number = self.number(run)
        found = Rows()
        while last is None or first <= last:
            limit = _LIMIT if last is None else min(_LIMIT, last - first + 1)
            some = self._get(f"/v1/rounds?run={number}&from={first}&limit={limit}")["rounds"]
            found.extend(some)
            if len(some) < limit:
                break
            first = some[-1]["round"] + 1
        return found

    def sites(self, run: RunId = "latest", first: int = 1, last: Optional[int] = None) -> Rows:
        """What each site reported in each round: round, site, weight, metrics (those that are finite)."""
        return _by_site(self.rounds(run, first, last))

    def best(self, metric: str, mode: str = "min", run: RunId = "latest") -> Dict[str, Any]:
        """The round in which `metric` was best: of the evaluation, or else of what the sites reported (their mean).

        mode: "min" or "max". KeyError: no round has it; the message names those that there are.
        """
        return best(self.rounds(run), metric, mode)

    def model(self, run: RunId = "latest", round: Union[int, str] = "latest") -> Dict[str, np.ndarray]:
        """A committed model by name, while it is kept. round: its number (0: the initial one), "latest", "best" or a label."""
        with tempfile.TemporaryDirectory(prefix="fluvial-model-") as folder:
            path = os.path.join(folder, "model.safetensors")
            self.download(path, run, round)
            return files.load_model(path)

    def download(self, path: str, run: RunId = "latest", round: Union[int, str] = "latest") -> str:
        """Writes a committed model to `path`, whole or not at all, readable by its user alone, and returns the path."""
        number = self.number(run)
        there = self._get(f"/v1/models/{number}/{round}")
        temporary = f"{path}.tmp"
        with files.made_anew(temporary, 0o600) as out:
            # By its number: "latest", "best" and a label may be another round's before the last part is here.
            for part in self._model_parts(there["path"], f"/v1/models/{number}/{there['round']}/read"):
                out.write(part)
        os.replace(temporary, path)
        return path

    def models(self, run: RunId = "latest") -> Rows:
        """The models that are kept: round, labels, and of the best one by the plan's models_kept_best the metric's value."""
        return Rows(self._get(f"/v1/models/{self.number(run)}")["models"])

    def label(self, name: str, round: Union[int, str] = "latest", run: RunId = "latest") -> None:
        """Keeps a model for good, under a name of its own: letters, digits, dots, dashes, underlines."""
        self._post(f"/v1/models/{self.number(run)}/{round}/label", {"name": name})

    def unlabel(self, name: str, run: RunId = "latest") -> None:
        """Takes a label away. The model goes unless something else keeps it."""
        self._post(f"/v1/models/{self.number(run)}/unlabel", {"name": name})

    # ---- what is done ----------------------------------------------------------------------------------------------

    def start_run(
        self,
        plan: Plan,
        model: Any = None,
        *,
        only: Only = None,
        continues: Optional[RunId] = None,
        round: Union[None, int, str] = None,
        keep_optimizer: bool = False,
    ) -> StartedRun:
        """Starts a run as a plan says, from a model or from another run's; gives its number, with `name` and `notes`.

        plan: the path of a plan.toml, its text, or a mapping: {"name": "digits", "rounds": 20, "participants": {"quorum": 3}}. So
        another run's plan is one: {**federation.run("digits")["plan"], "name": "again", "optimizer.learning_rate": 0.5}.
        model: a module, a state dict, a mapping of arrays, or the path of a model file or an .npz; by default the file that the
        plan names. It is sent to the coordinator, which opens no file of yours. only: some of its tensors.
        continues: a run whose last model is taken, or whose schema `model` has. round: the model of that round in place of the
        last one, if it is kept (the plan's models_kept): a number, "best" or a label. keep_optimizer: with the state that its
        server optimizer had after that round.

        UserWarning: what the coordinator notes of a plan that may learn badly. CoordinatorRefused: the plan is wrong, with the
        line and key; or another run is active.
        """
        started = self._start(plan, model, only, continues, round, keep_optimizer)
        for note in started.notes:
            warnings.warn(note, stacklevel=2)
        return started

    def check_plan(self, plan: Plan) -> Dict[str, Any]:
        """What start_run() would make of a plan: all its keys as "plan", the file that it names as "model" (or ""), "notes".

        CoordinatorRefused: it is wrong, with the line and key. Nothing is started.
        """
        text, name, folder = plan_source(plan)
        try:
            checked = self._post("/v1/plans/check", {"toml": text, "file": name})
        except CoordinatorRefused as error:
            if isinstance(plan, Mapping):  # whose lines nobody wrote
                raise CoordinatorRefused(re.sub(r"\bplan:\d+: ", "plan: ", str(error))) from None
            raise
        checked["model"] = checked["model"] and os.path.join(folder, checked["model"])
        return checked

    def stop(self, run: RunId = "latest", reason: str = "") -> None:
        """Ends the run for good, after what it has committed; `reason` is what the run then says."""
        self._command(run, "stop", reason)

    def pause(self, run: RunId = "latest", reason: str = "") -> None:
        """No further round opens until resume()."""
        self._command(run, "pause", reason)

    def resume(self, run: RunId = "latest") -> None:
        """The run goes on, also when it paused itself."""
        self._command(run, "resume", "")

    def watch(self, run: RunId = "latest", first: int = 1) -> Iterator[Dict[str, Any]]:
        """What happens, as it does, until the run ends: dicts with "event" (opened, committed, evaluated, state, waits)."""
        number = self.number(run)
        for line in self._stream(f"/v1/rounds/watch?run={number}&from={first}"):
            event = json.loads(line)
            if event.get("event") == "error":
                raise FluvialError(f"the coordinator ended the watch: {event.get('message')}")
            yield event

    def wait(
        self,
        run: RunId = "latest",
        *,
        timeout_s: Optional[float] = None,
        progress: int = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Until the run is done. RunFailed, with the reason, when it is stopped or paused. TimeoutError after `timeout_s`.

        progress: print a line a round (10: each tenth) as they are committed, with what workers reported.
        check: called meanwhile, at least each half a second on the coordinator's machine; what it raises ends the wait.
        """
        end = None if timeout_s is None else time.monotonic() + timeout_s
        number = self.number(run)
        pause, here_max, remote_max = _LOOK_SECONDS
        pause_max = remote_max if self._is_remote else here_max
        lines = RoundLines(self, number, int(progress)) if progress else None
        while True:
            now = self._get(f"/v1/runs/{number}")
            if lines is not None:
                lines.print_new()
            if now["status"] == "done":
                return
            if now["status"] in ("paused", "stopped"):
                raise RunFailed(number, now["name"], now["status"], now["reason"], now["committed"], now["rounds"])
            check()
            if end is not None and time.monotonic() >= end:
                waits = "; ".join(_waited_for(wait) for wait in now.get("waits", []))
                raise TimeoutError(
                    f"run {number} ({now['name']}) is {now['status']} after {timeout_s:g} s, with {now['committed']} of "
                    f"{now['rounds']} rounds" + (f"; it waits for {waits}" if waits else "")
                )
            time.sleep(pause)
            pause = min(1.5 * pause, pause_max)

    def follow(self, run: RunId, callbacks: Iterable[Any], *, first: int = 1) -> None:
        """Tells callbacks of each round until the run ends: early stopping, the best model, TensorBoard (fluvial.callbacks)."""
        from . import callbacks as those

        those.follow(self, self.number(run), list(callbacks), first)

    def evaluate(
        self,
        run: RunId = "latest",
        round: Union[int, str] = "latest",
        *,
        timeout_s: Optional[float] = None,
        check: Callable[[], None] = lambda: None,
    ) -> Dict[str, Any]:
        """A committed model on the sites' own data: {"round", "metrics", "sites": {name: {"weight", "metrics"}}}, means by weight.

        Of a metric the mean is over the sites whose value is finite; "not_finite" has the others' names, by metric.

        It is a run of its own, of one round that changes nothing, called like the run with "-evaluation" behind. At the sites
        a worker answers it: site.evaluate(function, model, run="digits-evaluation"). No other run may be active.

        All connected sites are waited for, until the plan's soft deadline. What ends the wait (TimeoutError, Ctrl-C) stops the
        evaluation's run, too.
        """
        number = self.number(run)
        about = self.run(number)
        plan = _evaluation_plan(about["plan"], f"{about['name']}-evaluation")
        begun = self._begin({"plan": plan, "model_of": number, "round": round})
        started = begun["run"]
        try:
            self.wait(started, timeout_s=timeout_s, check=check)
        except BaseException as error:  # Ctrl-C, too: while this run is active, no other one starts
            with contextlib.suppress(FluvialError):
                self.stop(started, f"the evaluation was given up: {type(error).__name__}")
            raise
        (made,) = self.rounds(started)
        sites = {site["site"]: {"weight": site["weight"], "metrics": site["metrics"]} for site in _by_site([made])}
        return {"round": begun["round"], "metrics": made["metrics"], "sites": sites, "not_finite": made["not_finite"]}

    # ---- requests --------------------------------------------------------------------------------------------------

    def number(self, run: RunId) -> int:
        """The number of a run by its number, its name (the last of that name) or "latest".

        UnknownRun: there is none of that name.
        """
        if not isinstance(run, str):
            return operator.index(run)
        runs = self.runs()
        found = [one["id"] for one in runs if run in ("latest", one["name"])]
        if not found and run.isdigit():
            return int(run)
        if not found:
            names = ", ".join(sorted({one["name"] for one in runs})) or "none yet"
            raise UnknownRun(f"no run is called {run!r}; there are: {names}")
        return found[-1]

    def _command(self, run: RunId, verb: str, reason: str) -> None:
        self._post(f"/v1/runs/{self.number(run)}/{verb}", {"reason": reason} if reason else None)

    def _start(
        self,
        plan: Plan,
        model: Any,
        only: Only,
        continues: Optional[RunId],
        round: Union[None, int, str],
        keep_optimizer: bool,
        sends: bool = True,
    ) -> StartedRun:
        """sends: the model is sent; else the coordinator sees the files that are here."""
        checked = self.check_plan(plan)
        request: Dict[str, Any] = {"plan": checked["plan"]}
        if round is not None:
            request["round"] = round
        if continues is not None:
            request.update({"continue": self.number(continues), "keep_optimizer": keep_optimizer})
        elif model is None:
            model = checked["model"] or None
            if model is None:
                raise ValueError("the plan names no model: give one, or a run to continue (continues=...)")
        if model is None:
            started = self._begin(request)
        else:
            with model_file(model, only) as path:
                request.update({"upload": self._upload(path)} if sends else {"model": os.path.abspath(path)})
                started = self._begin(request)
        return StartedRun(started["run"], checked["plan"]["name"], started["notes"])

    def _begin(self, request: Mapping[str, Any]) -> Any:
        return json.loads(self._request("POST", "/v1/runs", request, _START_SECONDS))

    def _upload(self, path: str) -> str:
        """Sends a model's file, of which a run may begin; gives its name there."""
        return _upload.upload(path, lambda what: self._post("/v1/uploads", what), self._connect, _check)

    def _model_parts(self, path: str, read: str) -> Iterator[bytes]:
        if not self._is_remote:
            try:
                with open(path, "rb") as file:
                    while True:
                        part = file.read(8 << 20)
                        if not part:
                            return
                        yield part
            except OSError:
                pass  # another user's, or in another container: the coordinator reads it
        with _http.pipe(self._connect) as pipe:
            asked = 0
            for _ in range(_PARTS_UNDER_WAY):  # on a long line each would wait for the one before
                pipe.ask("POST", read, json.dumps({"from": asked}).encode())
                asked += _PART_BYTES
            while True:
                status, part = pipe.answer()
                _check(status, part)
                yield part
                if len(part) < _PART_BYTES:
                    return
                pipe.ask("POST", read, json.dumps({"from": asked}).encode())
                asked += _PART_BYTES

    def _get(self, path: str) -> Any:
        return json.loads(self._request("GET", path))

    def _post(self, path: str, body: Any) -> Any:
        return json.loads(self._request("POST", path, body))

    def _request(self, method: str, path: str, body: Any = None, silence_s: Optional[float] = None) -> bytes:
        with _http.request(self._connect, method, path, body, silence_s) as answer:
            data = answer.read()
        _check(answer.status, data)
        return data

    def _stream(self, path: str) -> Iterator[bytes]:
        with _http.request(self._connect, "GET", path, None, silence_s=_WATCH_SILENCE_SECONDS) as answer:
            if answer.status != 200:
                _check(answer.status, answer.read())
            for line in answer:
                if line.strip():
                    yield line


def best(rounds: Iterable[Mapping[str, Any]], metric: str, mode: str = "min") -> Dict[str, Any]:
    """Of rounds as rounds() gives them, the one in which `metric` was best; the first of equals."""
    if mode not in ("min", "max"):
        raise ValueError(f"mode is {mode!r}, expected 'min' or 'max'")
    known = set()
    found: Optional[Dict[str, Any]] = None
    for round in rounds:
        known.update(round.get("metrics") or {}, round.get("evaluation") or {})
        value = metric_of(round, metric)
        if value is None or value != value:
            continue
        before = None if found is None else metric_of(found, metric)
        if before is None or (value < before if mode == "min" else value > before):
            found = dict(round)
    if found is None:
        raise KeyError(f"no round has a metric {metric!r}; there are: {', '.join(sorted(known)) or 'none'}")
    return found


def _evaluation_plan(trained: Mapping[str, Any], name: str) -> Dict[str, Any]:
    """Of a plan that trains, the one that evaluates: one plain round, which waits for every connected site."""
    windows = trained.get("mode") == "async"
    plan = {key: value for key, value in trained.items() if not key.startswith(("async.", "staleness_"))}
    plan.update({"name": name, "rounds": 1, "local_steps": 1, "models_kept": 1, "codec": "fp32"})
    plan.update({"mode": "rounds", "late": "residual", "deadlines.adaptive": False})
    plan.update({"optimizer.name": "fedavg", "optimizer.learning_rate": 1.0, "participants.fraction": 1.0})
    if windows:  # whose quorum is for a part of the sites
        plan["participants.quorum"] = max(plan.get("participants.quorum", 1), plan.get("participants.min", 1))
    return plan


def _waited_for(wait: Mapping[str, Any]) -> str:
    """What an active run waits for, in words; a wait for nobody in particular has no node."""
    return f"{wait['node']}: {wait['reason']}" if wait.get("node") else str(wait["reason"])


def _by_site(rounds: Iterable[Mapping[str, Any]]) -> Rows:
    return Rows(
        {"round": round["round"], "site": site["name"], "weight": site["weight"], "metrics": site.get("metrics") or {}}
        for round in rounds
        for site in round["contributors"]
    )


def metric_of(round: Mapping[str, Any], metric: str) -> Optional[float]:
    """A round's metric: of its evaluation, or else the mean of what its sites reported."""
    for group in ("evaluation", "metrics"):
        value = (round.get(group) or {}).get(metric)
        if value is not None:
            return float(value)
    return None


def _flat(row: Mapping[str, Any]) -> Dict[str, Any]:
    flat: Dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat.update({f"{key}.{name}": one for name, one in value.items()})
        else:
            flat[key] = len(value) if isinstance(value, list) else value
    return flat


def _check(status: int, data: bytes) -> None:
    if status == 200:
        return
    try:
        message = json.loads(data).get("message", "")
    except (ValueError, AttributeError):
        message = data[:200].decode(errors="replace")
    error = CoordinatorUnavailable if status == 503 else CoordinatorRefused
    raise error(f"the coordinator answers {status}: {message}")


def _first_there(paths: Iterable[str]) -> str:
    expanded = [os.path.expanduser(path) for path in paths]
    return next((path for path in expanded if os.path.exists(path)), expanded[0])
