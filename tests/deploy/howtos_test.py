"""The how-to pages for operators, typed as they stand against one federation: the doctor, advice, simulation, a round's
timeline, the admin API and its JSON, the console, certificate authorities, GPUs. What a page shows as output or as JSON is held
against what really comes. An example that is neither typed here nor said to be tried elsewhere fails this test.

usage: howtos_test.py BIN_FOLDER
"""

import http.cookiejar
import json
import pathlib
import re
import shutil
import sys
import tempfile
import tomllib
import urllib.error
import urllib.request

from containers import SOURCE, until
from walk import Machine, Walk, enter, listed

ADMIN, AUTHORITIES, CHOOSE, CONSOLE, DOCTOR, GPUS, SIMULATE, TIMELINE = (
    f"docs/operations/{name}.md" for name in ("admin-api", "authorities", "choose", "console", "doctor", "gpus", "simulate", "timeline"))
SITE = "/var/lib/fluvial-edge"  # the doctor's page
PLAN = """\
name = "digits"
rounds = 20
local_steps = 5
codec = "int8"
sum_digest = true
models_kept_best = "test_accuracy:max"
[worker]
batch_size = 64
learning_rate = 0.2
"""

# What the page shows, and where the same comes from: the admin API's path, and the way to the object in its answer.
SHOWN = [
    ('{"role": "coordinator"', "/v1/status", []),
    ('{"phase"', "/v1/authority", []),
    ('{"nodes"', "/v1/nodes", []),
    ('{"id": 1, "name": "digits"', "/v1/runs", ["runs", -1]),
    ('{"run": 1, "round": 7', "/v1/rounds?run=1", ["rounds", -1]),
    ('{"run": 1, "round": 8', "/v1/rounds/open?run=2", []),
    ('{"run": 1, "rounds"', "/v1/rounds/verify?run=1", []),
    ('{"run": 1, "round": 17', "/v1/rounds/17/timeline?run=1", []),
    ('{"run": 3, "kept_best"', "/v1/models/1", []),
    ('{"head"', "/v1/audit", []),
]
NAMED_BY_OTHERS = {"metrics", "evaluation"}  # objects with the names that workers report


def alike(shown, real, where=""):
    """That `real` has the keys and types of the page's example. null says nothing, "..." that there is more."""
    if shown is None or real is None:
        return
    if isinstance(shown, dict):
        assert isinstance(real, dict), f"{where}: {real!r} is no object"
        if "..." not in shown:
            assert set(shown) == set(real), f"{where}: the page has {sorted(set(shown) - set(real))} more, the answer {sorted(set(real) - set(shown))}"
        for key in set(shown) & set(real):
            if key not in NAMED_BY_OTHERS:
                alike(shown[key], real[key], f"{where}.{key}")
    elif isinstance(shown, list):
        assert isinstance(real, list), f"{where}: {real!r} is no list"
        if shown and real:
            alike(shown[0], real[0], f"{where}[0]")
    else:
        kinds = [("number" if type(each) in (int, float) else type(each).__name__) for each in (shown, real)]
        assert kinds[0] == kinds[1], f"{where}: the page has a {kinds[0]}, the answer {real!r}"


class HowTos(Walk):
    def plan(self, name, **changes):
        text = PLAN
        for key, value in changes.items():
            text = re.sub(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        (self.machine.home / name).write_text(text)

    def open(self):
        machine = self.machine
        machine.start("fluvial coordinator --data-dir /var/lib/fluvial --public-host fl.example.org --admin-listen 0.0.0.0:7402",
                      "fluvial health")
        machine.type("fluvial token create --name hospital-a --out hospital-a.token")
        machine.start(f"fluvial edge --enroll --token-file hospital-a.token --data-dir {SITE}", f"fluvial health --data-dir {SITE}")
        machine.type("fluvial-digits init --model softmax --out initial.safetensors")

    def doctor(self):
        """doctor.md: of a site without workers, as the page has it."""
        example = self.page(DOCTOR).take("$ fluvial doctor edge")
        command = example.splitlines()[0].removeprefix("$ ")
        findings = json.loads(self.machine.type(f"{command} --json || true"))
        names = re.findall(r"`(\w+)`", re.search(r"\| for scripts \|(.*)\|", self.page(DOCTOR).prose).group(1))
        assert set(findings) | set(findings["findings"][0]) == set(names), (findings, names)
        told = self.machine.type(command, status=1 if findings["errors"] else 0)
        shown = [line for line in example.splitlines()[1:] if re.match(r"(ok|warning|error) ", line)]
        for line in shown[:1] + shown[2:3]:  # the settings, and the worker that is not there
            assert line in told, f"{line!r} is not in\n{told}"
        checks = set(re.findall(r"^(?:ok|warning|error) +(\w+) ", told, re.MULTILINE))
        known = {name for row in re.findall(r"^\| (`.*?) \|", self.page(DOCTOR).prose, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
        assert checks <= known and {"settings", "process", "parent", "certificate", "disk"} <= checks, (checks, known)
        assert re.search(r"process: hospital-a answers at \S+, its parent is ", told), told

    def train(self):
        """20 rounds, then a run that has no worker and an open round."""
        self.plan("plan.toml")
        self.machine.start("fluvial-digits evaluate --socket /var/lib/fluvial/worker.sock")
        self.machine.start(f"fluvial-digits train --socket {SITE}/worker.sock --sites 1 --site 1 --seed 1")
        self.machine.type("fluvial run start plan.toml --model initial.safetensors --watch")
        self.machine.stop("fluvial-digits train")

    def timeline(self):
        example = self.page(TIMELINE).take("$ fluvial rounds trace 17")
        trace = lambda: self.machine.type(example.splitlines()[0].removeprefix("$ "))
        told = until(60, "the site's part", lambda: next((words for words in [trace()] if "without what" not in words), None))
        for pattern in (r"^round 17 took [0-9.]+ m?s: ", r"times of other nodes are right to [0-9.]+ m?s", r"^trace\.json: open it in https://ui\.perfetto\.dev$"):
            assert re.search(pattern, told, re.MULTILINE) and re.search(pattern, example, re.MULTILINE), f"{pattern}\n{told}"
        events = json.loads((self.machine.home / "trace.json").read_text())
        assert events["traceEvents"], events

    def advise(self):
        page = self.page(CHOOSE)
        command = page.take("fluvial simulate --advise").strip()
        told = self.machine.type(f"{command} --values 1000000 --json advice.json")
        for column in re.findall(r"^\| ([A-Z ]+) \|", page.prose, re.MULTILINE):
            assert column in told, f"no column {column}\n{told}"
        advice = json.loads((self.machine.home / "advice.json").read_text())
        assert "by_steps" in advice, advice

    def simulate(self):
        """simulate.md: its scenario, and one seed of the command that it begins with."""
        page = self.page(SIMULATE)
        scenarios = SOURCE / "tests/simulator/scenarios"
        shutil.copy(scenarios / "calm.toml", self.machine.home)
        (self.machine.home / "region.toml").write_text(page.take('name = "a region comes and goes"'))
        self.machine.type("fluvial simulate region.toml --json seed.json")
        found = json.loads((self.machine.home / "seed.json").read_text())
        names = set(re.findall(r"`(\w+)`", re.search(r"`--json FILE` \| the result: (.*?) \|", page.prose).group(1)))
        assert set(found) <= names and not found["violations"], found
        command = re.search(r"`(fluvial simulate tests/\S+ .*?)`", page.prose).group(1)
        self.machine.type(re.sub(r"--seeds \d+", "--seeds 1", command).replace("tests/simulator", str(SOURCE / "tests/simulator")))

    def admin_api(self):
        page, machine = self.page(ADMIN), self.machine
        curl = page.take("curl --unix-socket").strip()
        ask = lambda path, *more: json.loads(machine.type(" ".join([curl.replace("/v1/status", f"'{path}'"), "--silent --fail", *more])).partition("\r")[0])
        token = json.loads(page.take('{"role": "site", "name"'))
        given = ask("/v1/tokens", f"--json '{json.dumps(token | {'name': 'hospital-b'})}'")
        assert set(given) == {"token", "id", "name", "expires_at"} and given["name"] == "hospital-b", given
        run = page.take('{"plan": {...}').replace("{...}", json.dumps(ask("/v1/runs/1")["plan"]))
        run = json.loads(run.replace("/absolute/path", str(machine.home / "initial")))
        begun = ask("/v1/runs", f"--json '{json.dumps(run)}'")
        assert begun["run"] == 2 and begun["notes"] == [], begun
        until(60, "an open round", lambda: ask("/v1/status")["run"]["open"])
        for begins, path, way in SHOWN:
            real = ask(path)
            for step in way:
                real = real[step]
            alike(json.loads(page.take(begins)), real, path)
        machine.type("fluvial run stop 2")

    def operator(self):
        """admin-api.md, "Over the network": a person's certificate, for fluvial, curl and Python."""
        page, machine = self.page(ADMIN), self.machine
        create, enroll, status = listed(page.take("fluvial token create --role operator"))
        machine.type(create)
        machine.type(enroll)
        assert "hospital-a" in machine.type(status.replace("status", "nodes list")) and "digits" in machine.type(status)
        identity = machine.home / ".config/fluvial/anna"
        curl = page.take("cd ~/.config/fluvial/anna")
        assert json.loads(machine.type(curl.replace("curl ", "curl --silent --fail ")))["role"] == "coordinator"
        (identity / "ask.py").write_text(page.take("import json, ssl"))
        assert "'role': 'coordinator'" in machine.type(f"cd {identity} && python ask.py")
        assert [one["name"] for one in json.loads(machine.type("fluvial operators list --json"))["operators"]] == ["anna"]

    def console(self):
        """console.md: here, over the network, and over ssh; ssh's part is played by a script, as there is no server of it."""
        page, machine = self.page(CONSOLE), self.machine
        ssh = machine.home.parent / "tools/ssh"
        ssh.write_text('#!/bin/bash\n# ssh -L PORT:HOST:PORT MACHINE COMMAND: the machine is this one, so the port is there already.\nshift 3\nexec "$@"\n')
        ssh.chmod(0o755)
        for begins in ("fluvial console   ", "fluvial console --admin", "ssh -L"):
            command = listed(page.take(begins))[0]
            self.look_at_console(command, re.search(r"-L (\d+):", command))
        ssh.unlink()

    def look_at_console(self, command, forwarded):
        self.machine.start(command)
        log = pathlib.Path(self.machine.running[-1][2].name)
        address = until(60, "the console's address", lambda: re.search(r"http://\S+", log.read_text())).group(0)
        assert not forwarded or f":{forwarded.group(1)}/" in address, (command, address)
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        with browser.open(address) as answer:
            assert b"<html" in answer.read(), address
        with browser.open(re.sub(r"(http://[^/]*).*", r"\1/v1/status", address)) as answer:
            assert json.load(answer)["role"] == "coordinator"
        for again in (address, re.sub(r"(http://[^/]*).*", r"\1/v1/status", address)):  # another browser
            try:
                urllib.request.urlopen(again).close()
                raise AssertionError(f"{again} is answered twice")
            except urllib.error.HTTPError as refused:
                assert refused.code in (401, 403), refused
        self.machine.stop(command)

    def gpus(self):
        """gpus.md has no command to type: what it says to look at is there, with a GPU or without."""
        prose = self.page(GPUS).prose
        where = re.search(r"hospital-a answers at (\S+),", self.machine.type(f"fluvial doctor edge --data-dir {SITE} || true")).group(1)
        with urllib.request.urlopen(f"http://{where}/status") as answer:
            status = json.load(answer)
        with urllib.request.urlopen(f"http://{where}/metrics") as answer:
            metrics = answer.read().decode()
        for name in ("gpus", "updates_summed_on_gpus", "updates_encoded_on_gpus"):
            assert f"`{name}`" in prose and name in status, (name, status)
        assert "`fluvial_site_gpu_updates_total{step}`" in prose and 'fluvial_site_gpu_updates_total{step="' in metrics
        said = r"no GPU is used|workers may leave their results on GPUs"
        assert re.search(said, self.machine.logs_whole()), "the agent does not say which GPUs it uses"

    def rollover(self):
        """authorities.md: from one authority to the next while the site is there."""
        page, machine = self.page(AUTHORITIES), self.machine
        shown = page.take("$ fluvial authority show").splitlines()
        told = machine.type(shown[0].removeprefix("$ ")).splitlines()
        assert told[0].split() == shown[1].split() and told[1].startswith("issuing ") and told[-1] == shown[-1], told
        begin, issue, end = (line.partition("#")[0] for line in page.take("fluvial authority rollover begin").splitlines())
        phase = lambda: self.ask("authority show")["phase"]
        machine.type(begin)
        assert phase() == "begun" and "hospital-a" in machine.type(issue, status=1)
        assert "`certificate_validity_s` to 600 and start" in page.prose  # and less than that, for a test in a hurry
        machine.start(f"{machine.stop('fluvial coordinator')} --certificate-validity-s 4", "fluvial health")
        until(60, "the site with its new list", lambda: machine.holds(issue))
        assert phase() == "issuing"
        until(60, "the site's new certificate", lambda: machine.holds(end))
        assert phase() == "none" and len(self.ask("authority show")["authorities"]) == 1

    def below_root(self):
        """authorities.md: a federation below a root of one's own, which OpenSSL makes here."""
        page, machine = self.page(AUTHORITIES), self.machine
        machine.fresh()
        machine.type("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout root-key.pem -out root.pem -days 3650 "
                     "-subj '/CN=Clinics Root' -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign 2>&1")
        machine.type(page.take("fluvial authority request"))
        machine.type(page.take("printf 'basicConstraints"))
        table = page.take("[authority]")
        for path in map(pathlib.Path, tomllib.loads(table)["authority"].values()):
            path.parent.mkdir(exist_ok=True)
            shutil.copy(machine.home / path.name, path)
        (machine.home / "coordinator.toml").write_text(table)
        machine.start("fluvial coordinator --config coordinator.toml --data-dir /var/lib/fluvial --federation clinics --public-host fl.example.org", "fluvial health")
        authority = self.ask("authority show")["authorities"][0]
        assert authority["below_root"] and "Clinics Root" in authority["name"], authority
        machine.type("fluvial token create --name hospital-a --out hospital-a.token")
        machine.start(f"fluvial edge --enroll --token-file hospital-a.token --data-dir {SITE}", f"fluvial health --data-dir {SITE}")


def main():
    enter()
    with tempfile.TemporaryDirectory(prefix="fluvial-howtos-") as folder:
        howtos = HowTos(Machine(folder, sys.argv[1]))
        howtos.open()
        howtos.doctor()
        howtos.gpus()
        howtos.train()
        howtos.timeline()
        howtos.advise()
        howtos.simulate()
        howtos.admin_api()
        howtos.operator()
        howtos.console()
        howtos.rollover()
        howtos.below_root()
        howtos.nothing_left(
            [
                (ADMIN, '{"epoch": 6', "integration_test: PassesTest"),
                (ADMIN, '{"plan": {...}', "coordinator_service_test: PlansTest"),
            ]
        )
        howtos.machine.fresh()
    print("ok")


if __name__ == "__main__":
    main()
