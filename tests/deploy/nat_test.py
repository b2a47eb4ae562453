"""A partner's machine behind NAT, enrolled by one command inside the image: it reaches out, nothing reaches it, it trains.

Three network namespaces: the coordinator's, a gateway that masquerades and lets in only what belongs to a connection from
inside, and the partner's.

usage: nat_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

from containers import Podman, skip, until

COORDINATOR = "198.51.100.1"
GATEWAY = "198.51.100.2"
INSIDE = "192.168.77.1"
PARTNER = "192.168.77.2"
ROUNDS = 5
PLAN = f"""\
name = "partner"
rounds = {ROUNDS}
local_steps = 10
[participants]
min = 1
quorum = 1
[worker]
batch_size = 64
learning_rate = 0.1
"""
HARDENED = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges"]


class Network:
    def __init__(self):
        for tool in ("ip", "iptables"):
            if shutil.which(tool) is None:
                skip(f"{tool} is not installed (./dev install --deploy)")
        self.names = {role: f"fluvial-{os.getpid()}-{role}" for role in ("wan", "gateway", "partner")}

    def __enter__(self):
        try:
            self._build()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            skip(f"no network of namespaces can be made here: {' '.join(error.cmd)}: {error.stderr.strip()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def call(self, *command):
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def inside(self, role, *command):
        return self.call("ip", "netns", "exec", self.names[role], *command)

    def path(self, role):
        return f"ns:/run/netns/{self.names[role]}"

    def _wire(self, device, role, address, other_role, other_address):
        self.call("ip", "link", "add", device, "netns", self.names[role], "type", "veth", "peer", "name", device, "netns",
                  self.names[other_role])
        for each, at in ((role, address), (other_role, other_address)):
            self.inside(each, "ip", "address", "add", f"{at}/24", "dev", device)
            self.inside(each, "ip", "link", "set", device, "up")

    def _build(self):
        for role, name in self.names.items():
            self.call("ip", "netns", "add", name)
            self.inside(role, "ip", "link", "set", "lo", "up")
        self._wire("outside", "wan", COORDINATOR, "gateway", GATEWAY)
        self._wire("lan", "partner", PARTNER, "gateway", INSIDE)
        self.inside("partner", "ip", "route", "add", "default", "via", INSIDE)
        # It knows the way in: what keeps it out is the gateway.
        self.inside("wan", "ip", "route", "add", f"{PARTNER}/32", "via", GATEWAY)
        self.inside("gateway", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        rules = [["-t", "nat", "-A", "POSTROUTING", "-o", "outside", "-j", "MASQUERADE"],
                 ["-P", "FORWARD", "DROP"],
                 ["-A", "FORWARD", "-i", "lan", "-o", "outside", "-j", "ACCEPT"],
                 ["-A", "FORWARD", "-i", "outside", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"]]
        for rule in rules:
            self.inside("gateway", "iptables", *rule)

    def reaches(self, role, address, port):
        connect = f"import socket; socket.create_connection(({address!r}, {port}), timeout=2)"
        ran = subprocess.run(["ip", "netns", "exec", self.names[role], sys.executable, "-c", connect],
                             stderr=subprocess.DEVNULL, check=False)
        return ran.returncode == 0


def start(podman, network, role, name, arguments, more=()):
    podman.run("run", "--detach", "--name", name, *HARDENED, "--network", network.path(role), "--volume",
               f"{name}:/var/lib/fluvial", *more, "fluvial", *arguments)


def ask(podman, *arguments):
    return json.loads(podman.run("exec", "coordinator", "fluvial", *arguments, "--json").stdout)


def begin_run(podman):
    init = ["init", "--model", "softmax", "--out", "/var/lib/fluvial/initial.safetensors"]
    podman.run("run", "--rm", *HARDENED, "--network", "none", "--volume", "coordinator:/var/lib/fluvial",
               "fluvial-digits", *init)
    state = pathlib.Path(podman.inspect("coordinator", "volume")["Mountpoint"])
    (state / "plan.toml").write_text(PLAN)
    podman.run("exec", "coordinator", "fluvial", "run", "start", "/var/lib/fluvial/plan.toml", "--model",
               "/var/lib/fluvial/initial.safetensors")


def check_run(podman):
    until(120, "the run", lambda: ask(podman, "run", "list")["runs"][-1]["status"] == "done")
    rounds = ask(podman, "rounds", "list")["rounds"]
    assert [one["round"] for one in rounds] == list(range(1, ROUNDS + 1)), rounds
    assert all([each["name"] for each in one["contributors"]] == ["partner"] for one in rounds), rounds


def main():
    with Podman() as podman, Network() as network:
        podman.build(sys.argv[1], "cpu", "fluvial")
        podman.build(sys.argv[1], "digits", "fluvial-digits")
        try:
            start(podman, network, "wan", "coordinator", ["coordinator", "--public-host", COORDINATOR])
            until(60, "the coordinator", lambda: podman.run("healthcheck", "run", "coordinator", check=False).returncode == 0)
            token = podman.run("exec", "coordinator", "fluvial", "token", "create", "--name", "partner").stdout.strip()
            # The one command.
            start(podman, network, "partner", "partner", ["edge", "--enroll"], ["--env", f"FLUVIAL_TOKEN={token}"])
            until(60, "the partner", lambda: podman.run("healthcheck", "run", "partner", check=False).returncode == 0)
            assert network.reaches("partner", PARTNER, 9400), "it listens at home"
            assert not network.reaches("wan", PARTNER, 9400), "the gateway lets somebody in"
            podman.run("run", "--detach", "--name", "trainer", *HARDENED, "--network", "none", "--volume",
                       "partner:/var/lib/fluvial", "fluvial-digits", "train", "--socket", "/var/lib/fluvial/worker.sock",
                       "--sites", "1", "--site", "1")
            begin_run(podman)
            check_run(podman)
        except BaseException:
            for name in ("coordinator", "partner", "trainer"):
                print(f"---- {name}\n{podman.logs(name)[-3000:]}")
            raise
    assert not podman.left_behind(), podman.left_behind()
    left = [name for name in network.names.values() if pathlib.Path("/run/netns", name).exists()]
    assert not podman.folder.exists() and not left, left
    print("ok")


if __name__ == "__main__":
    main()
