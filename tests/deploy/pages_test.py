"""The pages for operators, typed as they stand and in their order, against one federation. An example that is neither typed
here nor said to be tried elsewhere fails this test.

usage: pages_test.py BIN_FOLDER
"""

import json
import pathlib
import re
import shutil
import signal
import sys
import tempfile

from containers import Podman, until
from walk import Machine, Walk, enter, listed

PLAN = """\
name = "digits"
rounds = 20
local_steps = 5
models_kept = 20
[participants]
min = 1
quorum = 1
[worker]
batch_size = 64
learning_rate = 0.2
"""
TRAINER = """\
import fluvial
for round in fluvial.connect().rounds("digits"):
    round.submit(round.arrays(), samples=1)
"""
NETWORK = """\
import torch
def Network():
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
"""
DATA = """\
def batches(steps):
    import torch
    for _ in range(steps):
        inputs = torch.randn(32, 64)
        yield inputs, inputs[:, :10].argmax(dim=1)
"""

# What is not typed here: the page, how the example begins, and who tries it instead.
AUDIT = "docs/operations/audit.md"
ENROL, RUN, CONTAINERS, INSTALL, BACKUP, KUBERNETES, UPGRADE = (
    f"docs/operations/{name}.md" for name in ("enrol", "run", "containers", "install", "backup", "kubernetes", "upgrade"))
ELSEWHERE = [
    (ENROL, "https_proxy=", "tests/integration/proxy_test.cc, with a proxy"),
    (BACKUP, "# /etc/systemd", "nobody yet: it waits for an hour"),
    (BACKUP, "17 *", "nobody yet, likewise"),
    (BACKUP, "openssl req", "tests/integration/backup_test.cc, with a key of its own"),
    (CONTAINERS, "./dev image     ", "image_test.py and compose_test.py prebuilt; from source by hand: it builds for half an hour"),
    (CONTAINERS, "mmdebstrap", "deploy/package/check: it fetches a distribution"),
    (CONTAINERS, "./dev federation", "compose_test.py"),
    *((INSTALL, begins, "deploy/package/check, in a Debian that systemd runs") for begins in
      ("./dev deb", "echo FLUVIAL_PUBLIC_HOST", "install -o fluvial", "systemctl enable --now fluvial-edge", "systemd-run", "[Unit]")),
    *((KUBERNETES, begins, "kubernetes_test.py renders it") for begins in ("# kustomization.yaml", "# coordinator.yaml")),
    *((KUBERNETES, begins, "nobody yet: it wants a cluster; the commands behind -- are those above") for begins in
      ("kubectl -n fluvial exec fluvial-coordinator-0 -- fluvial nodes", "kubectl apply -k deploy/kubernetes/toolbox",
       "kubectl -n fluvial exec fluvial-coordinator-0 -- fluvial token", "openssl rand -base64 24 | kubectl", "for node in")),
    (UPGRADE, "the child", "core/tree/versions_test.cc says so"),
    (RUN, "run 1 started", "tests/integration/waiting_test.cc, where no worker is"),
    (UPGRADE, "/var/lib/fluvial/journal.sqlite was written", "core/store/journal_test.cc says so"),
    (UPGRADE, "apt install", "deploy/package/check"),
    (UPGRADE, "podman stop", "compose_test.py, by the same volumes"),
    (UPGRADE, "kubectl", "nobody yet: it wants a cluster"),
    (INSTALL, "./dev wheel", "package_test.py"),
    (INSTALL, "./dev install", "install_test.py, into a folder"),
]


class Day(Walk):
    def read_me(self):
        """README.md, "A training script, and a federation of your own"; without PyTorch, with a worker that has none."""
        page, machine = self.page("README.md"), self.machine
        script = page.take("import fluvial\nimport torch")
        assert len(script.replace("\n\n", "\n").splitlines()) == 17, "README.md says so"
        machine.start(page.take("fluvial coordinator"), "fluvial health")
        machine.type(page.take("fluvial token create"))
        machine.start(page.take("fluvial edge --enroll"), "fluvial health --data-dir /var/lib/fluvial-site")
        worker, initial = page.take("FLUVIAL_WORKER_SOCKET="), page.take("python -c 'import fluvial, network")
        has_torch = machine.holds("python -c 'import torch'")
        (machine.home / "train.py").write_text(script if has_torch else TRAINER)
        (machine.home / "network.py").write_text(NETWORK if has_torch else "import numpy\ndef Network(): return {'w': numpy.zeros(9, 'f')}\n")
        (machine.home / "data.py").write_text(DATA)
        (machine.home / "plan.toml").write_text(page.take("# plan.toml"))
        machine.start(worker)
        machine.type(initial)
        told = machine.type(page.take("fluvial run start plan.toml"))
        assert self.status(1) == "done" and "round 5/5" in told, told
        self.machine.fresh()
        self.pages.clear()  # the day itself types every example of its pages

    def bring_plan(self):
        (self.machine.home / "plan.toml").write_text(PLAN)
        self.machine.type("fluvial-digits init --model softmax --out initial.safetensors")

    def train(self):
        self.machine.start(self.page(ENROL).take("fluvial-digits train"))

    def enrol(self):
        page, machine = self.page(ENROL), self.machine
        machine.start(page.take("fluvial coordinator"), "fluvial health")
        machine.type(page.take("fluvial token create --role site --name hospital-a"))
        assert (machine.home / "hospital-a.token").stat().st_mode & 0o777 == 0o600
        machine.type(page.take("fluvial token create --name eu-worker"))
        states = {each["name"]: each["state"] for each in self.ask("token list")["tokens"]}
        assert states == {"hospital-a": "valid", "eu-worker-*": "valid"}, states
        machine.type(page.take("fluvial enroll --token-file hospital-a.token"))
        for line in page.take("/var/lib/fluvial-site/identity/").splitlines():
            assert pathlib.Path(line.split()[0]).exists(), line
        healthy = "fluvial health --data-dir /var/lib/fluvial-site"
        machine.start(page.take("fluvial edge --config"), healthy)
        machine.stop("fluvial edge")
        machine.start(page.take("fluvial edge --enroll"), healthy)
        assert self.member("hospital-a")["connected"]
        self.clinics(page)
        self.aggregator(page)

    def clinics(self, page):
        """Three sites of one process."""
        for name in ("clinic-1", "clinic-2", "clinic-3"):
            self.machine.type(f"fluvial token create --name {name} --out {name}.token")
        enroll, together = re.split(r"\n(?=fluvial edge)", page.take("for name in clinic-1"))
        self.machine.type(enroll)
        self.machine.start(together)
        until(60, "the clinics", lambda: all(self.member(f"clinic-{number}")["connected"] for number in (1, 2, 3)))
        self.machine.stop("fluvial edge --sites")
        for number in (1, 2, 3):
            until(60, "a clinic is gone", lambda: not self.member(f"clinic-{number}")["connected"])
            self.machine.type(f"fluvial nodes remove clinic-{number}")

    def aggregator(self, page):
        enroll, start = page.take("fluvial enroll --token-file agg.token").splitlines()
        self.machine.type("fluvial token create --role aggregator --name eu-agg --region eu/west --out agg.token")
        self.machine.type(enroll)
        self.machine.start(start, "fluvial health --data-dir /var/lib/fluvial-agg")
        assert self.member("eu-agg")["advertise"] == "agg.example.org:7410"

    def run(self):
        page, machine = self.page(RUN), self.machine
        self.bring_plan()
        self.train()
        machine.start(page.take("fluvial-digits evaluate"))
        start = page.take("fluvial run start plan.toml")
        told = machine.type(start)
        assert self.status(1) == "done" and "accuracy" in told, told
        commands = [one for one in listed(page.take("fluvial status")) if one != "fluvial rounds show open"]  # none is
        shown = {command: machine.type(command.replace("ROUND", "1")) for command in commands}
        assert "run 1 digits  done" in shown["fluvial status"] and "round 20 took" in shown["fluvial rounds trace"], shown
        assert "hospital-a" in shown["fluvial nodes list"] and "done" in shown["fluvial run list"], shown
        assert re.search(r"^ *1 +20 ", shown["fluvial rounds list"], re.MULTILINE), shown["fluvial rounds list"]
        self.change(page)
        self.unseen()
        machine.type(start)
        (machine.home / "plan2.toml").write_text(PLAN)
        machine.type(page.take("fluvial run start plan2.toml --continue 3"))
        machine.type("fluvial rounds watch --run 4")
        machine.type(page.take("fluvial run start plan2.toml --round"))
        machine.type("fluvial rounds watch --run 5")
        self.label(page)
        machine.type(page.take("fluvial run export 3").replace("--from 1001", "--from 11"))
        assert len((machine.home / "run-3.jsonl").read_text().splitlines()) == 20
        runs = {each["id"]: (each["status"], each["continues"]) for each in self.ask("run list")["runs"]}
        assert runs[4] == ("done", 3) and runs[5] == ("done", 3), runs

    def change(self, page):
        """Pauses, resumes and stops a run that would not end by itself."""
        (self.machine.home / "long.toml").write_text(PLAN.replace("rounds = 20", "rounds = 1000000"))
        self.machine.type("fluvial run start long.toml --model initial.safetensors")
        became = []
        for command in page.table("fluvial run "):
            self.machine.type(command)
            became.append(self.status(2))
        assert became == ["paused", "running", "stopped"], became

    def label(self, page):
        """A model that stays while it has a label."""
        listing, label, unlabel, export = listed(page.take("fluvial model list"))
        labelled = lambda: [model["labels"] for model in self.ask("model list --run 3")["models"] if model["labels"]]
        self.machine.type(label)
        assert labelled() == [["candidate"]] and "candidate" in self.machine.type(f"{listing} --run 3")
        self.machine.type(export)
        self.machine.type("fluvial model export --run 3 --round 17 r17.safetensors")
        assert (self.machine.home / "candidate.safetensors").read_bytes() == (self.machine.home / "r17.safetensors").read_bytes()
        self.machine.type(unlabel)
        assert labelled() == []

    def container(self, podman):
        """containers.md: coordinator and a site from the image, as it is run by hand."""
        page, machine = self.page(CONTAINERS), self.machine
        machine.fresh()
        machine.environment |= {**podman.environment, "HOME": str(machine.home), "PATH": f"{podman.folder}:{machine.environment['PATH']}"}
        coordinator, token = re.split(r"\n(?=podman)", page.take("podman run -d --name coordinator"))
        machine.type(coordinator)
        healthy = "podman healthcheck run {}"
        until(60, "the coordinator's health", lambda: machine.holds(healthy.format("coordinator")))
        machine.type(token)
        machine.type(page.take("podman secret create"))
        until(60, "the site's health", lambda: machine.holds(healthy.format("site")))
        listed = json.loads(machine.type("podman exec coordinator fluvial nodes list --json"))["nodes"]
        assert [each["name"] for each in listed if each["connected"]] == ["hospital-a"], listed

    def back_up(self):
        """backup.md, in the middle of a run, then what run.md says in short; each time the machine is lost after it."""
        page, brief, machine = self.page(BACKUP), self.page(RUN), self.machine
        pathlib.Path("/srv/backup").mkdir()
        pathlib.Path("/etc/fluvial").mkdir()
        pathlib.Path("/etc/fluvial/backup.passphrase").write_text("a horse that counts exactly once\n")
        machine.type("fluvial run start long.toml --model initial.safetensors")
        machine.type(page.take("fluvial backup /srv/backup/fluvial"))
        machine.type(page.take("cp -al"))
        self.lose(page.take("fluvial restore /srv/backup/fluvial --data-dir"), page.take("fluvial coordinator --data-dir"))
        machine.type(brief.take("fluvial backup /srv/backup/fluvial"))
        self.lose(brief.take("fluvial restore /srv/backup/fluvial --data-dir"))
        machine.type("fluvial run stop")

    def lose(self, *restore):
        """The coordinator's machine is, and what was backed up goes on."""
        start = self.machine.stop("fluvial coordinator", signal.SIGKILL)
        shutil.rmtree("/var/lib/fluvial")
        for commands in restore:
            self.machine.type(commands)
        self.machine.start(start, "fluvial health")
        committed = self.ask("run show 6")["committed"]
        until(60, "a round after the restore", lambda: self.ask("run show 6")["committed"] > committed)

    def audit(self):
        """audit.md: what all that left behind, of the coordinator and of its backup."""
        page, machine = self.page(AUDIT), self.machine
        since, of_member, follow = page.take("fluvial audit show").splitlines()
        assert "enrolled" in machine.type(since)
        assert "hospital-a" in machine.type(of_member)
        machine.start(follow, f"grep -q enrolled {machine.home.parent}/log-{len(machine.running)}")
        machine.stop("fluvial audit show", signal.SIGINT)
        live, restore, restored = page.take("fluvial audit verify").splitlines()
        assert "are as they were written" in machine.type(live)
        machine.type(restore)
        assert "are as they were written" in machine.type(restored)

    def unseen(self):
        """A model that is there for a person, and not for the coordinator, as with a service's own /tmp."""
        mine = "unshare --mount bash -c 'mount -t tmpfs tmpfs /mnt; cp initial.safetensors /mnt; fluvial run start plan.toml --model {}'"
        told = self.machine.type(mine.format("/mnt/initial.safetensors"), status=1)
        assert "No such file" in told and "such as its data folder" in told, told

    def second_site(self):
        """install.md: a site that has the wheel needs a token and two commands."""
        page, machine = self.page(INSTALL), self.machine
        (machine.home / "train.py").write_text(TRAINER)
        (machine.home / "hospital-a.token").unlink()
        machine.type("fluvial token create --name hospital-b --out hospital-a.token")
        agent, worker = page.take("fluvial edge --enroll").splitlines()
        machine.start(agent, "fluvial health --data-dir ~/fluvial")
        machine.start(worker)
        (machine.home / "both.toml").write_text(PLAN.replace("= 1\n", "= 2\n"))
        machine.type("fluvial run start both.toml --model initial.safetensors --watch")
        sites = {each["name"] for each in self.ask("rounds show 20")["contributors"]}
        assert sites == {"hospital-a", "hospital-b"}, sites


def main():
    enter()
    with tempfile.TemporaryDirectory(prefix="fluvial-pages-") as folder:
        day = Day(Machine(folder, sys.argv[1]))
        day.read_me()
        day.enrol()
        day.run()
        day.back_up()
        day.audit()
        day.second_site()
        with Podman() as podman:
            podman.build(sys.argv[1], "cpu", "fluvial")
            day.container(podman)
        day.nothing_left(ELSEWHERE)
        day.machine.fresh()
    print("ok")


if __name__ == "__main__":
    main()
