"""A federation of real processes that a test may stop, kill and start again: a coordinator, two regions, digits for data."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from browser import until

REGIONS = {"eu-west": ["hospital-amsterdam", "hospital-brussels"], "eu-north": ["hospital-oslo", "hospital-uppsala"]}
PLAN = """\
name = "digits"
model = "initial.safetensors"
rounds = 1000
local_steps = 10
codec = "int8"
[participants]
min = 3
quorum = 3
[worker]
batch_size = 64
learning_rate = 0.2
"""


class Federation:
    def __init__(self, bin_folder):
        self.bin = pathlib.Path(bin_folder)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fluvial-console-"))
        self.processes = {}  # by name
        self.arguments = {}
        self.sockets = {}  # of sites, for their workers

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        for process in self.processes.values():
            process.kill()
        for process in self.processes.values():
            process.wait()
        if failed:
            for log in sorted(self.folder.glob("*.log")):
                print(f"--- {log.name}", *log.read_text(errors="replace").splitlines()[-5:], sep="\n")
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def socket(self):
        return self.folder / "coordinator/admin.sock"

    def fluvial(self, *arguments):
        """Its standard output. The admin socket is known."""
        done = subprocess.run([self.bin / "fluvial", *map(str, arguments)], check=False, text=True, capture_output=True,
                              env={**os.environ, "FLUVIAL_ADMIN_SOCKET": str(self.socket)}, timeout=120)
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def ask(self, *arguments):
        return json.loads(self.fluvial(*arguments, "--json"))

    def spawn(self, name, executable, *arguments, announces=False):
        """Its ready line, if it writes one."""
        self.arguments[name] = (executable, *map(str, arguments))
        reading, writing = os.pipe()
        more = ("--ready-fd", str(writing)) if announces else ()
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen([self.bin / executable, *map(str, arguments), *more], stdin=subprocess.DEVNULL,
                                                    stdout=log, stderr=log, pass_fds=(writing,) if announces else ())
        os.close(writing)
        with open(reading, encoding="utf-8") as lines:
            return json.loads(lines.readline()) if announces else None

    def kill(self, name):
        self.processes[name].send_signal(signal.SIGKILL)
        self.processes[name].wait()

    def again(self, name):
        return self.spawn(name, *self.arguments[name], announces=True)

    def start(self):
        self.ports = (0, 0, 0)
        ready = self.start_coordinator()
        self.ports = (ready["member_port"], ready["enrol_port"], ready["admin_port"])
        for region, sites in REGIONS.items():
            self.enrol("aggregator", f"{region}-1", region)
            for site in sites:
                self.enrol("site", site, region)
        self.fluvial_digits("init", "--model", "softmax", "--seed", 1, "--out", self.folder / "initial.safetensors")
        (self.folder / "plan.toml").write_text(PLAN)

    def start_coordinator(self):
        data = self.folder / "coordinator"
        member, enrol, admin = self.ports
        return self.spawn("coordinator", "fluvial", "coordinator", "--data-dir", data, "--federation", "eu-hospitals", "--listen",
                          f"127.0.0.1:{member}", "--enrol-listen", f"127.0.0.1:{enrol}", "--public-host", "127.0.0.1",
                          "--metrics-listen", "127.0.0.1:0", "--admin-listen", f"127.0.0.1:{admin}", announces=True)

    @property
    def admin_url(self):
        return f"https://127.0.0.1:{self.ports[2]}"

    def operator(self, name, access):
        """The folder of their key and certificate."""
        identity, token = self.folder / f"operator-{name}", self.folder / f"{name}.token"
        self.fluvial("token", "create", "--role", "operator", "--name", name, "--access", access, "--out", token)
        self.fluvial("enroll", "--token-file", token, "--identity", identity)
        return identity

    def enrol(self, role, name, region):
        token = self.folder / f"{name}.token"
        self.fluvial("token", "create", "--role", role, "--name", name, "--region", region, "--out", token)
        data = self.folder / name
        more = ("--advertise", "127.0.0.1:0", "--listen", "127.0.0.1:0") if role == "aggregator" else ()
        self.fluvial("enroll", "--token-file", token, "--data-dir", data, *more)
        kind = "edge" if role == "site" else "aggregator"
        ready = self.spawn(name, "fluvial", kind, "--config", data / f"{kind}.toml", "--metrics-listen", "127.0.0.1:0", announces=True)
        if role == "site":
            self.sockets[name] = ready["worker_socket"]

    def fluvial_digits(self, *arguments):
        subprocess.run([self.bin / "fluvial-digits", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, timeout=120)

    def train(self, pace_ms):
        """A worker at each site, and one that evaluates."""
        for number, (name, socket) in enumerate(self.sockets.items(), 1):
            self.spawn(f"trainer-{name}", "fluvial-digits", "train", "--socket", socket, "--sites", len(self.sockets), "--site", number,
                       "--pace-ms", pace_ms)
        self.spawn("evaluator", "fluvial-digits", "evaluate", "--socket", self.folder / "coordinator/worker.sock")

    def wait_connected(self):
        until("everybody to be connected", lambda: all(node["connected"] for node in self.ask("nodes", "list")["nodes"]))

    def start_run(self):
        return self.ask("run", "start", self.folder / "plan.toml")["run"]

    def console(self, *options, identity=None):
        """(process, address): it prints one line of JSON. At the admin socket, or over the network with an operator's identity."""
        place = ["--admin", self.admin_url, "--identity", identity] if identity else ["--admin-socket", self.socket]
        process = subprocess.Popen([self.bin / "fluvial", "console", *place, "--no-open", "--json", *options], stdout=subprocess.PIPE, text=True)
        self.processes[f"console-{process.pid}"] = process
        return process, json.loads(process.stdout.readline())["address"]
