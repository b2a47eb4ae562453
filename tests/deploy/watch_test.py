"""What deploy/prometheus and deploy/grafana say, without a federation: rules that fire when they should and not otherwise, a
section of the runbook for each alert, dashboards that are what their source makes.

usage: watch_test.py
"""

import collections
import itertools
import json
import re
import shutil
import subprocess
import sys

from containers import SOURCE, skip

try:
    import yaml
except ImportError:
    skip("Python's yaml is not installed (./dev install --deploy)")

PROMETHEUS, GRAFANA = SOURCE / "deploy/prometheus", SOURCE / "deploy/grafana"
RUNBOOK = "docs/operations/runbook.md"
TOOLS = SOURCE / "build/tools/bin/python"  # ./dev install --deploy: what no distribution has
SEVERITIES = {"warning", "critical"}


def run(*command, check=True):
    ran = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False)
    assert ran.returncode == 0 or not check, f"{' '.join(map(str, command))}: {ran.returncode}\n{ran.stdout}"
    return ran


def rules(name):
    groups = yaml.safe_load((PROMETHEUS / f"rules/{name}.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def check_prometheus():
    if shutil.which("promtool") is None:
        print("promtool is not installed: the rules are not tried")
        return
    run("promtool", "check", "config", PROMETHEUS / "prometheus.yml")
    run("promtool", "test", "rules", *sorted((PROMETHEUS / "tests").glob("*.yml")))
    if shutil.which("amtool") is None:
        print("amtool is not installed: alertmanager.yml is not checked")
        return
    run("amtool", "check-config", PROMETHEUS / "alertmanager.yml")


def check_alerts():
    """Each alert has all that a person needs, a test by its name in which it fires and does not fire, and its section."""
    page = (SOURCE / RUNBOOK).read_text()
    sections = dict(re.findall(r"^## (Fluvial\w+)\n(.*?)(?=^#|\Z)", page, re.MULTILINE | re.DOTALL))
    tests = collections.defaultdict(list)
    for file in (PROMETHEUS / "tests").glob("*.yml"):
        for test in yaml.safe_load(file.read_text())["tests"]:
            tests[test["name"].partition(",")[0]] += [one["exp_samples"] for one in test["promql_expr_test"]]
    names = set()
    for rule in rules("alerts"):
        name = rule["alert"]
        names.add(name)
        assert rule["labels"]["severity"] in SEVERITIES and set(rule["labels"]) == {"severity"}, rule
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, rule
        assert rule["annotations"]["runbook_url"] == f"{RUNBOOK}#{name.lower()}", rule
        for part in ("**It means**", "**Look**", "**Do**", "**Ignore it**"):
            assert part in sections.get(name, ""), f"{RUNBOOK}: {name} does not say {part}"
        assert [] in tests[name], f"{name} has no test in which it does not fire"
        assert any(f'alertname="{name}", severity="{rule["labels"]["severity"]}"' in str(samples) for samples in tests[name]), (
            f"{name} has no test in which it fires")
    assert set(sections) == names, set(sections) ^ names
    # `fluvial status` names the same sections.
    named = re.findall(r'"(fluvial[a-z]{5,})"', (SOURCE / "coordinator/logic/problems.cc").read_text())
    assert named and set(named) <= {name.lower() for name in names}, set(named) - {name.lower() for name in names}


def check_kubernetes():
    run(sys.executable, "-B", PROMETHEUS / "operator_rules.py", "--check")


def check_layout(name, panels):
    """No two panels on the same place, none beyond the edge."""
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, f"{name}: {panel['title']} is beyond the edge"
    for one, other in itertools.combinations([panel["gridPos"] for panel in panels], 2):
        apart = (one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"] or
                 one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"])
        assert apart, f"{name}: {one} and {other} overlap"


def check_dashboards():
    boards = {path.name: json.loads(path.read_text()) for path in sorted(GRAFANA.glob("*.json"))}
    assert len(boards) == 6 and len({board["uid"] for board in boards.values()}) == 6, list(boards)
    count = 0
    for name, board in boards.items():
        check_layout(name, board["panels"])
        variables = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
        for panel in (panel for panel in board["panels"] if panel["type"] != "row"):
            where = f"{name}: {panel['title']}"
            assert "?" in panel["description"], f"{where} asks no question"
            assert panel["fieldConfig"]["defaults"]["unit"], where
            assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"], where
            for target in panel["targets"]:
                used = set(re.findall(r"\$(\w+)", target["expr"]))
                assert used <= variables, f"{where}: {used - variables}"
            count += 1
    print(f"{count} panels on {len(boards)} dashboards")
    if not TOOLS.exists() or run(TOOLS, "-c", "import grafana_foundation_sdk", check=False).returncode != 0:
        print("build/tools has no grafana-foundation-sdk (./dev install --deploy): the dashboards are not made again")
        return
    run(TOOLS, "-B", GRAFANA / "source/make.py", "--check")


def check_provisioning():
    source = yaml.safe_load((GRAFANA / "provisioning/datasources/fluvial.yaml").read_text())["datasources"][0]
    assert source["type"] == "prometheus" and source["url"] == "http://prometheus:9090", source
    provider = yaml.safe_load((GRAFANA / "provisioning/dashboards/fluvial.yaml").read_text())["providers"][0]
    services = yaml.safe_load((SOURCE / "deploy/compose/compose.yaml").read_text())["services"]
    for name, service in services.items():
        assert service.get("logging", {}).get("options", {}).get("max-size"), f"compose.yaml: the log of {name} has no bound"
    mounted = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    assert mounted["../grafana"] == provider["options"]["path"], (mounted, provider)
    assert mounted["../grafana/provisioning"] == "/etc/grafana/provisioning", mounted
    targets = {target.partition(":")[0] for job in yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["scrape_configs"]
               for entry in job.get("static_configs", []) for target in entry["targets"]}
    targets |= {target.partition(":")[0] for file in (PROMETHEUS / "targets").glob("*.yml")
                for entry in yaml.safe_load(file.read_text()) for target in entry["targets"]}
    assert targets == {name for name in services if re.match(r"coordinator|aggregator-|site-", name)}, targets


def main():
    check_prometheus()
    check_alerts()
    check_kubernetes()
    check_dashboards()
    check_provisioning()
    print("ok")


if __name__ == "__main__":
    main()
