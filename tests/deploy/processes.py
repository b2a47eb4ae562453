"""A federation of real processes on loopback, ports chosen by the kernel, any of which may be killed and started again; and a
Prometheus beside it. Every process ends with the one that started it, however that ends."""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading
import urllib.parse
import urllib.request

from containers import until

PR_SET_PDEATHSIG = 1
READY_S = 60


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Federation:
    def __init__(self, executable, folder):
        self.executable, self.folder = str(executable), pathlib.Path(folder)
        self.commands, self.running, self.ready = {}, {}, {}

    # ---- processes

    def _start(self, name, command):
        self.commands[name] = command
        read, write = os.pipe()
        with open(self.folder / f"{name}.log", "a", encoding="utf-8") as log, os.fdopen(read) as ready:
            self.running[name] = subprocess.Popen([*command, "--ready-fd", str(write)], stdin=subprocess.DEVNULL, stdout=log,
                                                  stderr=log, pass_fds=[write], preexec_fn=end_with_parent)
            os.close(write)
            line = ready.readline()  # or the end of the process
        assert line, f"{name} did not come up\n{self.log(name)[-3000:]}"
        self.ready[name] = json.loads(line)
        return self.ready[name]

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    @contextlib.contextmanager
    def halted(self, name):
        """Within the block the process does nothing at all, and does not know of it."""
        process = self.running[name]
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # until it has stopped
        yield
        process.send_signal(signal.SIGCONT)

    def restart(self, name, *more):
        """With the same folder and on the same ports."""
        about, command = self.ready[name], [*self.commands[name], *more]
        if name in self.running:
            self.kill(name)
        for flag, port in (("--listen", "member_port"), ("--enrol-listen", "enrol_port"), ("--metrics-listen", "metrics_port")):
            if port in about and flag in command:
                command[command.index(flag) + 1] = f"127.0.0.1:{about[port]}"
        return self._start(name, command)

    def end(self):
        for name in list(self.running):
            self.kill(name)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # ---- nodes

    def coordinator(self, *more):
        self._start("coordinator", [self.executable, "coordinator", "--data-dir", str(self.folder / "coordinator"),
                                    "--public-host", "127.0.0.1", "--listen", "127.0.0.1:0", "--enrol-listen", "127.0.0.1:0",
                                    "--metrics-listen", "127.0.0.1:0", *more])

    def aggregator(self, name, region, *more, advertise="127.0.0.1:0"):
        token = self._token(name, "aggregator", region)
        self._start(name, [self.executable, "aggregator", "--enroll", "--token-file", token, "--data-dir",
                           str(self.folder / name), "--listen", "127.0.0.1:0", "--advertise", advertise,
                           "--metrics-listen", "127.0.0.1:0", *more])

    def site(self, name, region, *more):
        token = self._token(name, "site", region)
        self._start(name, [self.executable, "edge", "--enroll", "--token-file", token, "--data-dir", str(self.folder / name),
                           "--metrics-listen", "127.0.0.1:0", *more])

    def member_again(self, name, *more):
        """A site whose folder is there: here a copy of another's, as when a snapshot of a machine is started."""
        self._start(name, [self.executable, "edge", "--config", str(self.folder / name / "edge.toml"), "--data-dir",
                           str(self.folder / name), "--metrics-listen", "127.0.0.1:0", *more])

    def copy(self, name, copy):
        shutil.copytree(self.folder / name, self.folder / copy, ignore=shutil.ignore_patterns("*.sock"))

    def _token(self, name, role, region):
        path = self.folder / f"{name}.token"
        self.ask("token", "create", "--role", role, "--name", name, "--region", region, "--out", str(path))
        return str(path)

    def metrics_address(self, name):
        return f"127.0.0.1:{self.ready[name]['metrics_port']}"

    # ---- what a person types

    def call(self, *arguments):
        return subprocess.run([self.executable, *arguments, "--admin-socket", self.ready["coordinator"]["admin_socket"]],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)

    def ask(self, *arguments):
        done = self.call(*arguments, "--json")
        assert done.returncode == 0, f"fluvial {' '.join(arguments)}: {done.returncode}\n{done.stderr}"
        return json.loads(done.stdout)

    def node(self, name):
        return next(one for one in self.ask("nodes", "list")["nodes"] if one["name"] == name)

    def until_connected(self, *names):
        until(READY_S, f"{names} to be connected", lambda: {one["name"] for one in self.ask("nodes", "list")["nodes"]
                                                            if one["connected"]} >= set(names))

    def committed(self, run):
        return self.ask("run", "show", str(run))["committed"]


class Worker(threading.Thread):
    """Attached to a site: train(round) answers each round, until the process ends."""

    def __init__(self, socket, train):
        super().__init__(daemon=True)
        self._socket, self._train = socket, train
        self.start()

    def run(self):
        import fluvial

        while True:
            try:
                with fluvial.connect(self._socket, patience_s=READY_S) as site:
                    for task in site.rounds():
                        self._train(task)
            except fluvial.RoundClosed:
                pass  # closed while it trained
            except fluvial.FluvialError:
                pass  # the agent went away; it may come back


class Prometheus:
    """The distribution's, with a configuration in `folder`."""

    def __init__(self, folder, configuration):
        self.log_path = pathlib.Path(folder) / "prometheus.log"
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder}/tsdb",
                 "--web.listen-address=127.0.0.1:0", "--web.enable-lifecycle"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=end_with_parent)
        self.address = until(READY_S, "Prometheus' address", self._announced)
        until(READY_S, "Prometheus", lambda: "ready to receive web requests" in self.log_path.read_text())

    def _announced(self):
        assert self.process.poll() is None, self.log_path.read_text()
        found = re.search(r"Listening on\" address=(127\.0\.0\.1:\d+)", self.log_path.read_text())
        return found and found.group(1)

    def get(self, what, **parameters):
        url = f"http://{self.address}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{what} {parameters}: {error.read().decode()}") from None

    def query(self, expr):
        return self.get("query", query=expr)["result"]

    def end(self):
        self.process.kill()
        self.process.wait()
