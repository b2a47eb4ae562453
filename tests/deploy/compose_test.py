"""deploy/compose as it stands, with the executables that were just built: a calm run, then the same run while each
container in turn is killed with -9. Every committed model must be the calm run's, bit for bit, and nothing may be left.

usage: compose_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

from containers import SOURCE, Podman, skip, until

FEDERATION = SOURCE / "deploy/compose/federation"
SERVICES = ["coordinator", "aggregator-1", "aggregator-2", "site-1", "site-2", "site-3", "site-4", "trainer-1",
            "trainer-2", "trainer-3", "trainer-4", "evaluator", "prometheus"]


# Rounds of a tenth of a second or so, that a kill may fall into; every site in each.
PLAN = """\
name = "killed"
rounds = 100
local_steps = 400
[participants]
min = 4
quorum = 4
[deadlines]
soft_ms = "20s"
hard_ms = "40s"
[optimizer]
name = "fedavgm"
[worker]
batch_size = 64
learning_rate = 0.1
"""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def libraries(executable):
    told = subprocess.run(["ldd", executable], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    found = re.findall(r"(?:=> )?(/\S+) \(0x", told.stdout)
    return {path.lstrip("/"): path for path in found}


class Federation:
    def __init__(self, podman):
        self.podman = podman
        self.project = f"fluvial-test-{os.getpid()}"
        self.port = free_port()
        plan = podman.folder / "plan.toml"
        plan.write_text(PLAN)
        self.environment = dict(podman.environment, COMPOSE="podman-compose", COMPOSE_PROJECT_NAME=self.project,
                                FLUVIAL_SECRETS=str(podman.folder / "secrets"), FLUVIAL_PLAN=str(plan),
                                PROMETHEUS_IMAGE="localhost/prometheus:latest", PROMETHEUS_PORT=str(self.port))

    def call(self, *arguments):
        ran = subprocess.run([str(FEDERATION), *arguments], env=self.environment, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False)
        if ran.returncode != 0:
            raise AssertionError(f"federation {' '.join(arguments)}: {ran.returncode}\n{ran.stdout}")

    def container(self, service):
        return f"{self.project}_{service}_1"

    def ask(self, *arguments):
        """A command of the coordinator's, as JSON; none while it is away."""
        ran = self.podman.run("exec", self.container("coordinator"), "/usr/bin/fluvial", *arguments, "--json",
                              check=False)
        return json.loads(ran.stdout) if ran.returncode == 0 else None

    def rounds(self, run):
        told = self.ask("rounds", "list", "--run", str(run))
        return [] if told is None else told["rounds"]

    def state(self, run):
        told = self.ask("run", "list")
        return None if told is None else next(one["status"] for one in told["runs"] if one["id"] == run)

    def is_connected(self, name):
        told = self.ask("nodes", "list")
        return told is not None and next(one for one in told["nodes"] if one["name"] == name)["connected"]

    def metric(self, query):
        url = f"http://127.0.0.1:{self.port}/api/v1/query?query={urllib.request.quote(query)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                result = json.load(answer)["data"]["result"]
        except OSError:
            return None
        return float(result[0]["value"][1]) if result else None


class Runs:
    """Runs of one plan from one model, each held to the first."""

    def __init__(self, federation):
        self.federation = federation
        self.run = 1  # `federation up` has started it
        until(120, "the calm run", lambda: federation.state(1) == "done")
        self.calm = {one["round"]: one["model_sha256"] for one in federation.rounds(1)}
        assert len(self.calm) >= 10, self.calm
        self.compared = 0

    def begin(self):
        self.federation.call("run")
        self.run += 1

    def compare(self):
        """Every committed round holds all four sites and the calm run's model. How far it is; none while it is away."""
        rounds = self.federation.rounds(self.run)
        for one in rounds:
            assert one["model_sha256"] == self.calm[one["round"]], f"run {self.run}: {one}"
            assert sorted(each["name"] for each in one["contributors"]) == ["site-1", "site-2", "site-3", "site-4"], one
        numbers = [one["round"] for one in rounds]
        assert numbers == list(range(1, len(numbers) + 1)), numbers
        return len(rounds)

    def wait_progress(self, after):
        def progressed():
            done = self.federation.state(self.run)
            assert done in (None, "running", "done"), f"{done}: {self.federation.ask('run', 'list')}"
            return self.compare() > after or done == "done"
        until(120, f"a commit after round {after}", progressed)
        if self.federation.state(self.run) == "done":
            self.compared += self.compare()
            self.begin()


def kill_each(federation, runs):
    podman = federation.podman
    for service in SERVICES:
        name = federation.container(service)
        before = podman.pid(name)
        committed = len(federation.rounds(runs.run))
        began = time.monotonic()
        os.kill(before, signal.SIGKILL)
        until(60, f"{service} is started again", lambda: podman.pid(name) not in (0, before))
        runs.wait_progress(committed)
        print(f"{service}: healed after {time.monotonic() - began:.1f} s", flush=True)


def check_bounds(federation):
    """A log that ends, and state that nobody but the processes' user may look into."""
    podman = federation.podman
    for service in SERVICES:
        log = podman.inspect(federation.container(service))["HostConfig"]["LogConfig"]
        assert log["Type"] == "json-file" and log["Size"] == "10MB", f"{service}: {log}"
    for name in ["coordinator", "aggregator-1", "aggregator-2", "site-1", "site-2", "site-3", "site-4"]:
        about = pathlib.Path(podman.inspect(f"{federation.project}_{name}", "volume")["Mountpoint"]).stat()
        assert (about.st_mode & 0o7777, about.st_uid) == (0o700, 10001), f"{name}: {oct(about.st_mode)}, {about.st_uid}"
    told = podman.run("exec", federation.container("coordinator"), "/usr/bin/fluvial", "doctor", check=False).stdout
    assert "disk under /var/lib/fluvial" in told and "everybody on this machine may look into it" not in told, told


def check_lost_volume(federation):
    """A site whose volume is gone, and whose token was used long ago: `up` makes it the same member again."""
    podman, volume = federation.podman, f"{federation.project}_site-1"
    secrets = pathlib.Path(federation.environment["FLUVIAL_SECRETS"])
    before = {path.name: path.read_text() for path in secrets.iterdir()}
    number = {one["name"]: one["id"] for one in federation.ask("nodes", "list")["nodes"]}["site-1"]
    podman.run("rm", "--force", "--time", "5", federation.container("trainer-1"), federation.container("site-1"))
    podman.run("volume", "rm", volume)
    until(60, "the site is away", lambda: not federation.is_connected("site-1"))
    federation.call("up")
    assert federation.is_connected("site-1") and (pathlib.Path(podman.inspect(volume, "volume")["Mountpoint"]) /
                                                  "identity/cert.pem").exists()
    assert {one["name"]: one["id"] for one in federation.ask("nodes", "list")["nodes"]}["site-1"] == number
    changed = {path.name for path in secrets.iterdir() if path.read_text() != before[path.name]}
    assert changed == {"site-1"}, f"new tokens for {changed}: those who are enrolled need none"


def main():
    for tool in ("podman-compose", "prometheus"):
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed (./dev install --deploy)")
    began = time.monotonic()
    with Podman() as podman:
        prometheus = shutil.which("prometheus")
        podman.import_image("prometheus", {"usr/bin/prometheus": prometheus, **libraries(prometheus)},
                            folders=[("prometheus", 65534), ("etc/prometheus", 0)],
                            changes=['ENTRYPOINT ["/usr/bin/prometheus"]', "USER 65534:65534"])
        podman.build(sys.argv[1], "cpu", "fluvial")
        podman.build(sys.argv[1], "digits", "fluvial-digits")
        federation = Federation(podman)
        try:
            federation.call("up")
            print(f"up after {time.monotonic() - began:.1f} s", flush=True)
            secrets = pathlib.Path(federation.environment["FLUVIAL_SECRETS"])
            assert secrets.stat().st_mode & 0o7777 == 0o700
            check_bounds(federation)
            runs = Runs(federation)
            until(60, "Prometheus sees every process", lambda: federation.metric('sum(up{job=~"fluvial-.+"})') == 7)
            until(60, "Prometheus sees rounds",
                  lambda: (federation.metric("fluvial_coordinator_rounds_committed_total") or 0) >= len(runs.calm))
            print(f"{len(runs.calm)} calm rounds after {time.monotonic() - began:.1f} s", flush=True)
            runs.begin()
            kill_each(federation, runs)
            until(120, "the last run", lambda: federation.state(runs.run) == "done")
            print(f"{runs.compared + runs.compare()} rounds are the calm run's, {runs.run - 1} runs", flush=True)
            check_lost_volume(federation)
            federation.call("down", "--volumes")
            assert not secrets.exists()
            for kind in (["ps", "--all", "--quiet"], ["volume", "ls", "--quiet"], ["pod", "ls", "--quiet"]):
                assert podman.run(*kind).stdout == "", podman.run(*kind).stdout
            assert federation.project not in podman.run("network", "ls").stdout
        except BaseException:
            for service in SERVICES:
                print(f"---- {service}\n{podman.logs(federation.container(service))[-3000:]}")
            raise
    assert not podman.left_behind(), podman.left_behind()
    assert not podman.folder.exists(), podman.folder
    print(f"ok, {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
