"""A real Prometheus with deploy/prometheus beside a running federation. In peace no alert is even pending; then each fault that
an alert is about is caused, and each alert sees it. In the end every panel's and every rule's query has had data.

usage: prometheus_test.py BIN_FOLDER
"""

import contextlib
import json
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time

from containers import SOURCE, skip, until

try:
    import yaml
    sys.path.insert(0, str(SOURCE / "edge/python"))
    import fluvial  # noqa: F401  what workers import
except ImportError as error:
    skip(f"{error.name} is not installed (./dev install --deploy)")

from liar import Liar
from processes import Federation, Prometheus, Worker, end_with_parent

SITES = ["site-1", "site-2", "site-3", "site-4"]
REGION_OF = {"site-1": "region-1", "site-3": "region-1", "site-2": "region-2", "site-4": "region-2"}
QUICK_COORDINATOR = ["--failover-after-ms", "300", "--return-after-ms", "4000", "--enrol-per-minute-max", "1000"]
QUICK = ["--session-reconnect-delay-max-ms", "300"]

# What takes minutes and hours takes seconds here.
WINDOWS = {"5m": "5s", "15m": "30s", "30m": "30s", "1h": "5s", "3h": "6s"}
SLOW_S = 1.2  # beyond the soft deadline of the first run
SEEN_S = 30  # for what happened to be in Prometheus

# Alerts whose fault cannot be had here: their query with another bound, and why.
REBOUND = {
    # Only a disk or a file system between makes an fsync slow, and to put one there takes root and a device.
    "FluvialDiskSlow": ("> 1", "> 0", "this disk is not slow"),
    # Linux has no namespace for the wall clock, and the processes have no setting that moves theirs.
    "FluvialClocksApart": ("> 5", ">= 0", "one machine has one clock"),
    # It takes an aggregator that plays a whole round and changes what its sites have signed. tests/attack has one, in C++.
    "FluvialContributionsForged": ("> 0", ">= 0", "nobody here forges"),
    # It takes a parent that sends another model than the signed one. core/tree's tests have one, in C++.
    "FluvialModelsRefused": ("> 2", ">= 0", "nobody here sends other models"),
}

PLAN = """\
name = "{name}"
rounds = 1000000
models_kept = 2
codec = "int8"
update_norm_max = 1000
attempts_max = 3
[participants]
min = {quorum}
quorum = {quorum}
[deadlines]
adaptive = false
soft_ms = "{soft}"
hard_ms = "{hard}"
"""


class Hold:
    def __init__(self):
        self.arrived, self.go = threading.Event(), threading.Event()


class Scene:
    """The federation with workers of ours, and Prometheus beside it."""

    def __init__(self, bin_folder, folder):
        self.bin, self.folder = pathlib.Path(bin_folder).resolve(), pathlib.Path(folder)
        self.federation = Federation(self.bin / "fluvial", folder)
        self.prometheus, self.annotations = None, {}
        self.loss, self.slow, self.steps, self.held = 1.0, set(), {}, {}
        self.sites = list(SITES)
        self.began = time.time()

    def start(self):
        federation = self.federation
        federation.coordinator(*QUICK_COORDINATOR, "--staging-bytes-max", "512")
        for number in (1, 2):
            federation.aggregator(f"aggregator-{number}", f"region-{number}", *QUICK, "--staging-bytes-max", "512")
        for site in SITES:
            federation.site(site, REGION_OF[site], *QUICK)
            self.work(site)
        federation.until_connected(*SITES)
        digits, quiet = self.bin / "fluvial-digits", {"stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        evaluator_socket = federation.ready["coordinator"]["worker_socket"]
        self.evaluator = subprocess.Popen([digits, "evaluate", "--socket", evaluator_socket], preexec_fn=end_with_parent, **quiet)
        initial = self.folder / "initial.safetensors"
        subprocess.run([digits, "init", "--model", "softmax", "--out", initial], check=True, **quiet)
        self.configure()
        self.prometheus = Prometheus(self.folder, self.folder / "prometheus/prometheus.yml")

    def end(self):
        if self.prometheus:
            self.prometheus.end()
            self.evaluator.kill()
            self.evaluator.wait()
        self.federation.end()

    def show_logs(self):
        for path in sorted(self.folder.glob("*.log")):
            print(f"---- {path.stem}\n{path.read_text(errors='replace')[-2500:]}")

    # ---- workers

    def work(self, name):
        Worker(self.federation.ready[name]["worker_socket"], lambda task: self.train(name, task))

    def train(self, name, task):
        if hold := self.held.get(name):
            hold.arrived.set()
            hold.go.wait()
        if name in self.slow:
            threading.Event().wait(SLOW_S)  # what it is to be slow
        step = self.steps.get(name, 0.001)
        if step is None:
            return  # an answer without an update: the round fails here
        arrays = {tensor: array + array.dtype.type(step) for tensor, array in task.arrays().items()}
        task.submit(arrays, samples=10, metrics={"loss": self.loss})

    @contextlib.contextmanager
    def holding(self):
        """Every worker stays in its next round, until its hold's `go`, or the end of the block."""
        holds = self.held = {site: Hold() for site in SITES}
        try:
            yield holds
        finally:
            self.held = {}
            for hold in holds.values():
                hold.go.set()

    def act(self):
        self.start()
        run = self.timed(peace)
        self.timed(diverging)
        self.timed(straggling)
        self.timed(failing)
        self.timed(knocking)
        self.timed(aggregator_lost, run)
        self.federation.ask("run", "stop", str(run))
        self.timed(quarantined)
        self.timed(held_twice)
        run = self.timed(quorum_lost)
        self.timed(disk_failed, run)
        self.timed(coordinator_lost)
        self.timed(forbidden)
        self.timed(lied_to)
        self.timed(newcomer)
        self.timed(backed_up)
        self.timed(check_queries)
        self.timed(check_alerts)

    def timed(self, step, *arguments):
        begun = time.monotonic()
        given = step(self, *arguments)
        print(f"{step.__name__}: {time.monotonic() - begun:.1f} s", flush=True)
        return given

    # ---- runs

    def start_run(self, name, quorum=2, soft="60s", hard="120s"):
        path = self.folder / f"{name}.toml"
        path.write_text(PLAN.format(name=name, quorum=quorum, soft=soft, hard=hard))
        return self.federation.ask("run", "start", str(path), "--model", str(self.folder / "initial.safetensors"))["run"]

    def more_rounds(self, run, count):
        before = self.federation.committed(run)
        until(60, f"{count} more rounds", lambda: self.federation.committed(run) >= before + count)

    # ---- Prometheus

    def configure(self):
        """deploy/prometheus, but for the addresses, and seconds for minutes."""
        made = self.folder / "prometheus"
        shutil.copytree(SOURCE / "deploy/prometheus", made)
        main = made / "prometheus.yml"
        text = main.read_text().replace("15s", "1s")
        main.write_text(text.replace("coordinator:9400", self.federation.metrics_address("coordinator")))
        for rules in (made / "rules").iterdir():
            rules.write_text(re.sub(r"\[(\w+)\]", lambda window: f"[{WINDOWS[window[1]]}]", rules.read_text()))
        self.rules = [rule for rules in sorted((made / "rules").iterdir())
                      for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]]
        self.target("aggregators", ["aggregator-1", "aggregator-2"])
        self.target("sites", self.sites)

    def one_more_site(self, name, region, *more):
        self.federation.site(name, region, *QUICK, *more)
        self.sites.append(name)
        self.target("sites", self.sites)

    def target(self, what, names):
        entries = [{"targets": [self.federation.metrics_address(name)], "labels": {"instance": name}} for name in names]
        made = self.folder / f"{what}.yml"
        made.write_text(yaml.safe_dump(entries))
        made.rename(self.folder / f"prometheus/targets/{what}.yml")  # in one step: Prometheus watches it

    def alerts(self):
        found = self.prometheus.get("alerts")["alerts"]
        for alert in found:
            self.annotations[alert["labels"]["alertname"]] = alert["annotations"]
        return {alert["labels"]["alertname"] for alert in found}

    def until_alert(self, *names):
        left = set(names)
        until(SEEN_S, f"{names}, pending or firing", lambda: left.difference_update(self.alerts()) or not left)

    def until_rebound(self, name):
        """The query has data with a bound that can be reached here."""
        old, new, _ = REBOUND[name]
        exprs = [rule["expr"].replace(old, new) for rule in self.rules if rule.get("alert") == name]
        assert all(new in expr for expr in exprs), exprs
        until(SEEN_S, f"{name}'s query", lambda: any(self.prometheus.query(expr) for expr in exprs))


# ---- peace, and one fault after the other


def peace(scene):
    run = scene.start_run("peace", soft="600ms")
    scene.more_rounds(run, 10)
    until(SEEN_S, "all processes", lambda: len(scene.prometheus.query('up{job=~"fluvial-.+"} == 1')) == 7)
    until(SEEN_S, "rounds", lambda: scene.prometheus.query("rate(fluvial_coordinator_rounds_committed_total[5s]) > 0"))
    scene.more_rounds(run, 10)
    # In rounds of milliseconds somebody may always be slow.
    until(SEEN_S, "peace", lambda: scene.alerts() <= {"FluvialPersistentStraggler"})
    return run


def diverging(scene):
    until(SEEN_S, "six seconds of one run", lambda: scene.prometheus.query("changes(fluvial_coordinator_run[6s]) == 0"))
    scene.loss = 7.0
    scene.until_alert("FluvialLossDiverging")
    scene.loss = 1.0


def straggling(scene):
    scene.slow.add("site-4")
    scene.until_alert("FluvialPersistentStraggler", "FluvialStagingNearBudget")
    scene.slow.clear()


def failing(scene):
    """One site sends what is beyond update_norm_max, then nothing."""
    scene.steps["site-1"] = 900.0
    scene.until_alert("FluvialContributionsRefused")
    scene.steps["site-1"] = None
    scene.until_alert("FluvialTrainingFails")
    scene.steps.clear()


def knocking(scene):
    """Somebody without a certificate, and somebody with a token that is spent."""
    federation = scene.federation
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["fluvial/1"])
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", federation.ready["coordinator"]["member_port"])) as wire:
            with contextlib.suppress(OSError), context.wrap_socket(wire) as session:
                session.recv(1)  # with TLS 1.3 it is told only now
    for attempt in range(8):
        done = subprocess.run([federation.executable, "enroll", "--token-file", scene.folder / "site-1.token", "--data-dir",
                               scene.folder / f"stranger-{attempt}"], stderr=subprocess.PIPE, check=False)
        assert done.returncode != 0 and b"was used" in done.stderr, done.stderr
    scene.until_alert("FluvialStrangersRefused", "FluvialEnrolmentsRefused")


def aggregator_lost(scene, run):
    federation = scene.federation
    federation.kill("aggregator-1")
    scene.until_alert("FluvialAggregatorDown")
    until(SEEN_S, "another parent", lambda: federation.node("site-1")["parent"] == "coordinator")
    scene.steps["site-1"] = 900.0  # refused by the coordinator itself
    scene.more_rounds(run, 3)
    scene.steps.clear()
    federation.restart("aggregator-1")
    scene.until_alert("FluvialRegionPastAggregator")


def quarantined(scene):
    """Two processes with one identity send one submission with two contents."""
    federation = scene.federation
    federation.kill("site-3")
    federation.copy("site-3", "copy")
    federation.restart("site-3")
    federation.until_connected(*SITES)
    with scene.holding() as holds:
        run = scene.start_run("copies")
        assert holds["site-3"].arrived.wait(60)
        with federation.halted("site-3"):
            federation.member_again("copy", *QUICK, "--log-level", "debug")
            scene.steps["copy"] = 0.002
            scene.work("copy")
            until(60, "the copy's update", lambda: "update accepted" in federation.log("copy"))
            federation.kill("copy")
        counted = re.compile(f"run={run} .*counted=true")
        until(60, "site-3 to hear of its copy's update", lambda: counted.search(federation.log("site-3")))
        holds["site-3"].go.set()
        until(60, "a conflict", lambda: "code=conflict" in federation.log("aggregator-1"))
    scene.until_alert("FluvialSiteQuarantined")  # the coordinator hears of it with its region's sum
    federation.ask("nodes", "clear", "site-3")
    scene.more_rounds(run, 1)
    federation.ask("run", "stop", str(run))


def held_twice(scene):
    """A machine and its copy, which turn each other away."""
    federation = scene.federation
    federation.kill("site-4")
    federation.copy("site-4", "twin")
    federation.restart("site-4")
    federation.member_again("twin", *QUICK)
    scene.until_alert("FluvialIdentityHeldTwice")
    federation.kill("twin")


def quorum_lost(scene):
    federation = scene.federation
    federation.until_connected(*SITES)
    with scene.holding() as holds:
        run = scene.start_run("quorum", quorum=4, soft="1s", hard="3s")
        for site in SITES:
            assert holds[site].arrived.wait(60), site
        federation.kill("site-1")
        scene.until_alert("FluvialQuorumAtRisk")
        scene.until_alert("FluvialRoundStuck", "FluvialAttemptsRepeated")
        scene.until_alert("FluvialRunPausedItself")
    federation.ask("run", "stop", str(run))
    run = scene.start_run("waits", quorum=4)
    scene.until_alert("FluvialRunWaitsForSites", "FluvialSiteAway")
    federation.restart("site-1")
    scene.more_rounds(run, 2)
    return run


def disk_failed(scene, run):
    federation = scene.federation
    models = federation.folder / "coordinator/models"
    with federation.halted("coordinator"):  # which makes a folder that it misses, should it write a model between the two
        models.rename(models.with_name("elsewhere"))
        models.touch()
    scene.until_alert("FluvialStorageFault", "FluvialRunPausedItself")
    models.unlink()
    models.with_name("elsewhere").rename(models)
    federation.ask("run", "resume", str(run))
    scene.more_rounds(run, 2)


def coordinator_lost(scene):
    federation = scene.federation
    federation.kill("coordinator")
    scene.until_alert("FluvialCoordinatorDown", "FluvialNoParent")
    federation.kill("site-2")
    scene.until_alert("FluvialProcessDown")
    federation.restart("coordinator")
    for _ in range(6):
        federation.until_connected("aggregator-1", "aggregator-2")
        federation.restart("coordinator")
    federation.restart("site-2")
    scene.until_alert("FluvialSessionFlaps")


def forbidden(scene):
    """A site whose owner has other runs in mind."""
    scene.one_more_site("site-6", "region-3", "--policy-runs", "elsewhere-*")
    scene.work("site-6")
    scene.until_alert("FluvialOwnerForbidsRounds")


def lied_to(scene):
    """The nearest parent of that site says what the coordinator has not signed."""
    federation = scene.federation
    with Liar() as liar:
        federation.aggregator("aggregator-3", "region-3", *QUICK, advertise=liar.address)
        liar.serve(federation.folder / "aggregator-3/identity")
        scene.until_alert("FluvialParentDistrusted")
        federation.kill("aggregator-3")


def newcomer(scene):
    """A site that has no worker. Then a coordinator that issues for longer: by its measure a day is soon."""
    federation = scene.federation
    scene.one_more_site("site-5", "region-1")
    scene.until_alert("FluvialSitesWithoutWorkers")
    assert not scene.prometheus.query('fluvial_coordinator_site_straggler_score{site="site-5"}'), "it is not slow"
    federation.restart("coordinator", "--certificate-days", "10")
    scene.until_alert("FluvialCertificateExpiring")


def backed_up(scene):
    passphrase = scene.folder / "passphrase"
    passphrase.write_text("a horse that counts exactly once\n")
    passphrase.chmod(0o600)
    done = scene.federation.call("backup", str(scene.folder / "backup"), "--passphrase-file", str(passphrase), "--data-dir",
                                 str(scene.folder / "coordinator"))
    assert done.returncode == 0, done.stderr
    until(SEEN_S, "the backup to be scraped", lambda: scene.prometheus.query("fluvial_coordinator_last_backup_timestamp_seconds > 0"))
    (scene.folder / "coordinator/last-backup").write_text(f"{int((time.time() - 3 * 86400) * 1000)}\n")
    scene.federation.restart("coordinator")
    scene.until_alert("FluvialBackupOld")
    for name in REBOUND:
        scene.until_rebound(name)


# ---- in the end


def had_data(scene, expr):
    """Whether a query had a value at any moment since the beginning."""
    found = scene.prometheus.get("query_range", query=expr, start=scene.began, end=time.time(), step="0.5")["result"]
    return any(value != "NaN" for series in found for _, value in series["values"])


def panels():
    for path in sorted((SOURCE / "deploy/grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield f"{path.name}: {panel['title']}", target["expr"]


OF_OTHER_RUNS = ["Shares of the commits, with late = next or windows"]  # the run of this test has no such plan


def check_queries(scene):
    empty, count = [], 0
    for where, expr in panels():
        expr = expr.replace("$__rate_interval", "5s").replace("$site", "site-1")
        assert "$" not in expr, f"{where}: {expr}"
        count += 1
        if not had_data(scene, expr) and not where.endswith(tuple(OF_OTHER_RUNS)):
            empty.append(f"{where}: {expr}")
    for rule in scene.rules:
        if "record" in rule and not had_data(scene, rule["record"]):
            empty.append(rule["record"])
    assert not empty, "no data:\n" + "\n".join(empty)
    print(f"{count} queries of panels and {len(scene.rules)} rules have had data")


def check_alerts(scene):
    alerts = {rule["alert"] for rule in scene.rules if "alert" in rule}
    seen = set(scene.annotations)
    assert seen | set(REBOUND) >= alerts, f"never seen: {alerts - seen - set(REBOUND)}"
    for name, texts in scene.annotations.items():
        for text in texts.values():
            assert "<no value>" not in text and "error" not in text, f"{name}: {text}"


def main():
    if shutil.which("prometheus") is None:
        skip("prometheus is not installed (./dev install --deploy)")
    with tempfile.TemporaryDirectory(prefix="fluvial-prometheus-") as folder:
        scene = Scene(sys.argv[1], folder)
        try:
            scene.act()
        except BaseException:
            scene.show_logs()
            raise
        finally:
            scene.end()
    print(f"ok, {time.time() - scene.began:.1f} s")


if __name__ == "__main__":
    main()
