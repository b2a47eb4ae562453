"""A page's examples, taken one after the other and typed as they stand, on a machine of their own: namespaces in which the
pages' host names, folders and ports are free."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import textwrap

from containers import SOURCE, skip, until

INSIDE = "FLUVIAL_WALK_INSIDE"
HOSTS = ["fl.example.org", "agg.example.org"]
ADDRESS = "198.51.100.1"  # theirs


def enter():
    """Goes on as another process, with its own mounts, network and process ids; all that it starts ends with it."""
    if INSIDE in os.environ:
        return
    for tool in ("unshare", "ip", "mount"):
        if shutil.which(tool) is None:
            skip(f"{tool} is not installed")
    space = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    tried = subprocess.run([*space, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], stderr=subprocess.PIPE, text=True, check=False)
    if tried.returncode != 0:
        skip(f"no namespaces can be made here: {tried.stderr.strip()}")
    os.environ[INSIDE] = "1"
    os.execvp("unshare", [*space, sys.executable, "-B", *sys.argv])


class Page:
    def __init__(self, name):
        self.name = name
        text = (SOURCE / name).read_text()
        self.prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
        self.left = [textwrap.dedent(block) for block in
                     re.findall(r"^ *```\w*\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)]

    def take(self, begins):
        """The first block that is left and begins so."""
        for block in self.left:
            if block.startswith(begins):
                self.left.remove(block)
                return block
        raise AssertionError(f"{self.name}: no example begins with {begins!r}")

    def table(self, begins):
        """The commands of the table's rows that begin so."""
        found = re.findall(rf"^\| `({re.escape(begins)}[^`]*)`", self.prose, re.MULTILINE)
        assert found, f"{self.name}: no row begins with {begins!r}"
        return found


def listed(block):
    """A command a line, with what it is for behind it, and [what may be left out]."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    return [re.sub(r"\s*\[[^]]*\]", "", re.split(r"\s{2,}", line.strip())[0]) for line in lines]


class Machine:
    """Where the pages' commands are typed: `fluvial` is on the PATH, their hosts are this one."""

    def __init__(self, folder, bin_folder):
        self.home = pathlib.Path(folder) / "home"
        self.home.mkdir()
        tools = pathlib.Path(folder) / "tools"
        tools.mkdir()
        (tools / "python").symlink_to("/usr/bin/python3")
        self.environment = {"HOME": str(self.home), "LANG": "C.UTF-8", "PYTHONPATH": str(SOURCE / "edge/python"),
                            "PATH": f"{bin_folder}:{tools}:{os.environ['PATH']}"}
        self.running = []  # (command, process, its log)
        hosts = pathlib.Path(folder) / "hosts"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{ADDRESS} {host}\n" for host in HOSTS))
        for command in (["ip", "link", "set", "lo", "up"], ["ip", "address", "add", f"{ADDRESS}/32", "dev", "lo"]):
            subprocess.run(command, check=True)
        self._own_etc()
        shutil.copy(hosts, "/etc/hosts")
        self.fresh()

    def _own_etc(self):
        """As it is, and what is written there is gone in the end."""
        layers = pathlib.Path("/mnt")
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layers], check=True)
        for name in ("upper", "work"):
            (layers / name).mkdir()
        options = f"lowerdir=/etc,upperdir={layers}/upper,workdir={layers}/work"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, "/etc"], check=True)

    def fresh(self):
        """No federation yet."""
        for command, process, _ in self.running:
            self._end(command, process, signal.SIGTERM)
        self.running.clear()
        for path in ("/var/lib", "/srv"):
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], check=True)
        for left in self.home.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()

    def type(self, text, status=0, **more):
        """What it says; fails as bash -e does."""
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=self.home, env={**self.environment, **more}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == status, f"{text.strip()}: {done.returncode}\n{done.stdout}\n{self.logs()}"
        return done.stdout

    def start(self, text, ready=None):
        """A command that stays. `ready`: one that says when it is there."""
        log = (self.home.parent / f"log-{len(self.running)}").open("w+")
        words = re.sub(r"\\\n", " ", text).strip()
        assert "\n" not in words, f"{words!r} is more than a command"
        process = subprocess.Popen(["bash", "-c", words], cwd=self.home, env=self.environment, stdout=log, stderr=subprocess.STDOUT)
        self.running.append((words, process, log))
        if ready:
            until(60, f"{words}: {ready}", lambda: self._is(process, words, ready))

    def _is(self, process, words, ready):
        assert process.poll() is None, f"{words}: {process.returncode}\n{self.logs()}"
        return self.holds(ready)

    def holds(self, command):
        return subprocess.run(["bash", "-c", command], cwd=self.home, env=self.environment, check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def stop(self, begins, how=signal.SIGTERM):
        """Returns what it was started by."""
        command, process, log = next(each for each in reversed(self.running) if each[0].startswith(begins))
        self.running.remove((command, process, log))
        self._end(command, process, how)
        return command

    def _end(self, command, process, how):
        process.send_signal(how)
        status = process.wait(60)
        assert status == 0 or how == signal.SIGKILL or status == -how, f"{command}: ended with {status}\n{self.logs()}"

    def logs_whole(self):
        return "".join(pathlib.Path(log.name).read_text() for _, _, log in self.running)

    def logs(self):
        return "".join(f"---- {command}\n{pathlib.Path(log.name).read_text()[-2000:]}" for command, _, log in self.running)


class Walk:
    """Pages that are typed on one machine, and what of them is left."""

    def __init__(self, machine):
        self.machine = machine
        self.pages = {}

    def page(self, name):
        return self.pages.setdefault(name, Page(name))

    def ask(self, command):
        return json.loads(self.machine.type(f"fluvial {command} --json"))

    def member(self, name):
        return next(each for each in self.ask("nodes list")["nodes"] if each["name"] == name)

    def status(self, run):
        return next(each["status"] for each in self.ask("run list")["runs"] if each["id"] == run)

    def nothing_left(self, elsewhere):
        """`elsewhere`: what is not typed here, as (page, how the example begins, who tries it instead)."""
        for name, begins, _ in elsewhere:
            self.page(name).take(begins)
        left = [f"{page.name}:\n{block}" for page in self.pages.values() for block in page.left]
        assert not left, "neither typed nor said to be tried elsewhere: " + "\n".join(left)
