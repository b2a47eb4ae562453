"""deploy/kubernetes: rendered by kubectl, held to Kubernetes' schemas and to the profile `restricted`, and the pods of
coordinator, aggregator and site started by podman with the executables that were just built: they commit rounds.

usage: kubernetes_test.py BIN_FOLDER
"""

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    yaml = None

from containers import SOURCE, SKIPPED, Podman, skip, until

KUBERNETES = SOURCE / "deploy/kubernetes"
TOOLS = SOURCE / "build/tools/bin/python"  # ./dev install --deploy: the one thing that no distribution has
WORKLOADS = ("StatefulSet", "DaemonSet")
RESTRICTED_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected",
                      "secret"}

VALIDATE = """\
import json, sys, kubernetes_validate
for document in json.load(sys.stdin):
    try:
        kubernetes_validate.validate(document, "1.29", strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        pass  # of the Prometheus operator
    except kubernetes_validate.ValidationError as error:
        print(document["kind"], document["metadata"]["name"], error.message, error.path)
"""

PLAN = """\
name = "digits"
rounds = 3
local_steps = 5
[worker]
batch_size = 64
learning_rate = 0.2
"""


def folders():
    return sorted(path.parent for path in KUBERNETES.rglob("kustomization.yaml"))


def render(folder):
    ran = subprocess.run(["kubectl", "kustomize", str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True, check=False)
    assert ran.returncode == 0, f"{folder}: {ran.stderr}"
    return [document for document in yaml.safe_load_all(ran.stdout) if document]


def template(document):
    return document["spec"]["template"]


def agent(document):
    """The container that runs our executable; a site's trainer stands beside it."""
    return next(one for one in template(document)["spec"]["containers"] if one["name"] != "trainer")


def environment(container, namespace):
    """Its variables as the kubelet would set them: $(NAME) stands for one that is defined before it, and for nothing else."""
    known = {}
    for one in container.get("env", []):
        value = one.get("value", "")
        path = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        if path == "metadata.namespace":
            value = namespace
        for name in re.findall(r"\$\((\w+)\)", value):
            assert name in known, f"{one}: {name} is not defined before it"
            value = value.replace(f"$({name})", known[name])
        known[one["name"]] = value
    return known


def check_restricted(document):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards, as far as these pods go."""
    where, spec = document["metadata"]["name"], template(document)["spec"]
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        assert not spec.get(key), f"{where}: {key}"
    assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 10001, where
    assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", where
    for volume in spec.get("volumes", []):
        assert set(volume) - {"name"} <= RESTRICTED_VOLUMES, f"{where}: {volume}"
    for container in spec.get("initContainers", []) + spec["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"] is True, container
        assert context["capabilities"] == {"drop": ["ALL"]} and "privileged" not in context, container
        assert context.get("runAsNonRoot", True) and context.get("runAsUser", 10001) != 0, container
        assert not any(port.get("hostPort") for port in container.get("ports", [])), container


def check_workload(document, is_exception):
    name, spec = document["metadata"]["name"], document["spec"]
    labels = template(document)["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items(), f"{name}: selects other pods than its own"
    if not is_exception:
        check_restricted(document)
    pod = template(document)["spec"]
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False, name
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    for container in pod.get("initContainers", []) + pod["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, f"{name}: {container['volumeMounts']}"
        assert ":" in container["image"], f"{name}: {container['image']} is not one of kustomization.yaml's images"
    ours = agent(document)
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert ours[probe]["exec"]["command"][:2] == ["/usr/bin/fluvial", "health"], name
    assert "--live" in ours["livenessProbe"]["exec"]["command"], "a node without a parent must not be restarted for it"
    assert "requests" in ours["resources"] and "memory" in ours["resources"]["limits"], name


def check_together(documents):
    """What names another thing names one that is there."""
    keys = [(document["kind"], document["metadata"].get("namespace"), document["metadata"]["name"])
            for document in documents]
    assert len(keys) == len(set(keys)), keys
    pods = [template(document) for document in documents if document["kind"] in WORKLOADS]
    for service in (document for document in documents if document["kind"] == "Service"):
        chosen = [pod for pod in pods if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()]
        assert chosen, f"Service {service['metadata']['name']} selects no pod"
        names = {port["name"] for pod in chosen for container in pod["spec"]["containers"]
                 for port in container.get("ports", [])}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names, service["spec"]["ports"]
    services = {(document["metadata"]["name"], document["metadata"]["namespace"]) for document in documents
                if document["kind"] == "Service"}
    named = 0
    for document in (one for one in documents if one["kind"] in WORKLOADS):
        for container in template(document)["spec"]["containers"]:
            for value in environment(container, document["metadata"]["namespace"]).values():
                host = re.match(r"([\w-]+)\.([\w-]+)\.svc", value)
                assert host is None or host.groups() in services, f"{value}: no such Service in {services}"
                named += host is not None
    assert named >= 2, "coordinator and aggregators name their Services"


def check_schemas(documents):
    if not TOOLS.exists() or subprocess.run([TOOLS, "-c", "import kubernetes_validate"], check=False,
                                            capture_output=True).returncode != 0:
        print("build/tools has no kubernetes-validate (./dev install --deploy): the schemas are not checked")
        return
    ran = subprocess.run([TOOLS, "-c", VALIDATE], input=json.dumps(documents), stdout=subprocess.PIPE, text=True,
                         check=True)
    assert ran.stdout == "", ran.stdout


def check_manifests():
    everything = []
    for folder in folders():
        documents = render(folder)
        everything += documents
        is_exception = any(document["kind"] == "Namespace" and document["metadata"]["labels"][
            "pod-security.kubernetes.io/enforce"] == "privileged" for document in documents)
        assert is_exception == (folder.name == "edge-daemonset"), f"{folder}: another exception"
        for document in documents:
            if document["kind"] in WORKLOADS:
                check_workload(document, is_exception)
            if document["kind"] == "Pod":
                check_restricted({"metadata": document["metadata"], "spec": {"template": document}})
            if document["kind"] == "CronJob":
                check_restricted({"metadata": document["metadata"], "spec": document["spec"]["jobTemplate"]["spec"]})
    check_evictions()
    check_overlays()
    example = render(KUBERNETES / "example")
    check_together(example)
    check_schemas(everything)
    check_page()
    return example


def selects(selector, labels):
    """The two forms of a selector that are used here."""
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        one["operator"] == "In" and labels.get(one["key"]) in one["values"]
        for one in selector.get("matchExpressions", []))


def may_be_evicted(labels, unready, budgets):
    """The API server's rule for a pod of these labels, while the pods whose labels are in `unready` are not ready."""
    held = [one["spec"] for one in budgets if selects(one["spec"]["selector"], labels)]
    assert len(held) == 1, f"{labels}: a pod with {len(held)} budgets is not evicted, or goes without one"
    if labels in unready and held[0].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    return sum(selects(held[0]["selector"], one) for one in unready) < held[0]["maxUnavailable"]


def check_evictions():
    """Readiness asks for a parent: no state of the tree may hold a node that is drained."""
    documents = render(KUBERNETES / "example")
    budgets = [one for one in documents if one["kind"] == "PodDisruptionBudget"]
    pods = {name: next(template(one)["metadata"]["labels"] for one in documents if one["kind"] == "StatefulSet"
                       and one["metadata"]["name"].startswith(name)) for name in ("fluvial-coordinator", "fluvial-agg")}
    coordinator, aggregator = pods.values()
    other = {**aggregator, "fluvial/region": "ap-south"}
    assert may_be_evicted(coordinator, [aggregator, other], budgets), "an aggregator without a parent holds the coordinator"
    assert may_be_evicted(aggregator, [coordinator, aggregator, other], budgets), "a pod without a parent holds its node"
    assert may_be_evicted(aggregator, [], budgets)
    assert not may_be_evicted(aggregator, [other], budgets), "one parent after the other"


# By choice, all at once, in a namespace of its own.
CHOSEN = """\
namespace: {namespace}
bases:
  - ../k/base
  - ../k/regions/eu-west
  - ../k/sites/site-a
  - ../k/overlays/monitoring-labels
  - ../k/overlays/proxy
  - ../k/overlays/admin-api
  - ../k/overlays/backup
"""


def check_overlays():
    with tempfile.TemporaryDirectory(prefix="fluvial-overlay-") as temporary:
        copied, own = pathlib.Path(temporary) / "k", pathlib.Path(temporary) / "own"
        shutil.copytree(KUBERNETES, copied)
        region = copied / "regions/eu-west/kustomization.yaml"
        region.write_text(region.read_text().replace("../../aggregator", "../../overlays/anti-affinity"))
        own.mkdir()
        (own / "kustomization.yaml").write_text(CHOSEN.format(namespace="clinic-7"))
        documents = render(own)
    assert ".fluvial.svc" not in json.dumps(documents), "a host of another namespace"
    check_together(documents)
    check_schemas(documents)
    found = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    for one in documents:
        assert one["metadata"].get("namespace", "clinic-7") == "clinic-7", one["metadata"]
        assert one["kind"] != "Namespace" or one["metadata"]["name"] == "clinic-7", one
    coordinator = found["StatefulSet", "fluvial-coordinator"]
    aggregator = found["StatefulSet", "fluvial-aggregator-eu-west"]
    assert environment(agent(coordinator), "clinic-7")["FLUVIAL_PUBLIC_HOST"] == "fluvial-coordinator.clinic-7.svc"
    for document in (one for one in documents if one["kind"] in WORKLOADS):  # each is given what was chosen for it
        for source in agent(document)["envFrom"]:
            for kind, reference in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
                assert reference not in source or (kind, source[reference]["name"]) in found, source
    affinity = template(aggregator)["spec"]["affinity"]["podAntiAffinity"]
    (required,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert "preferredDuringSchedulingIgnoredDuringExecution" not in affinity
    for labels in (template(coordinator)["metadata"]["labels"], template(aggregator)["metadata"]["labels"]):
        assert selects(required["labelSelector"], labels), required
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert found[kind, "fluvial"]["metadata"]["labels"]["release"] == "kube-prometheus-stack", found[kind, "fluvial"]
    check_backup(found["CronJob", "fluvial-backup"], found)


def check_backup(job, found):
    """It sees the coordinator's folder and keeps what it makes in another claim; nobody selects its pod as one of ours."""
    pod = job["spec"]["jobTemplate"]["spec"]["template"]
    claims = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in pod["spec"]["volumes"]
              if "persistentVolumeClaim" in one}
    state = found["StatefulSet", "fluvial-coordinator"]["spec"]["volumeClaimTemplates"][0]["metadata"]["name"]
    assert claims["state"] == f"{state}-fluvial-coordinator-0", claims
    assert ("PersistentVolumeClaim", claims["backup"]) in found, claims
    (container,) = pod["spec"]["containers"]
    places = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    command, folder, option, passphrase = container["args"]
    assert (command, option) == ("backup", "--passphrase-file"), container["args"]
    assert folder.startswith(places["backup"]) and passphrase.startswith(places["passphrase"]), container["args"]
    assert places["state"] == "/var/lib/fluvial", places
    for (kind, name), one in found.items():
        selector = one["spec"]["selector"] if kind == "Service" else None
        assert selector is None or not selector.items() <= pod["metadata"]["labels"].items(), f"{name} selects the backup"


def check_page():
    """The overlay that docs/operations/kubernetes.md begins with, and its recipe for another region and site."""
    page = (SOURCE / "docs/operations/kubernetes.md").read_text()
    blocks = re.findall(r"^```yaml\n# (\S+\.yaml)\S*(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [name.rstrip(":") for name, _ in blocks] == ["kustomization.yaml", "coordinator.yaml"], blocks
    with tempfile.TemporaryDirectory(prefix="fluvial-overlay-") as temporary:
        copied = pathlib.Path(temporary) / "fluvial/deploy/kubernetes"
        shutil.copytree(KUBERNETES, copied)
        own = pathlib.Path(temporary) / "own"
        own.mkdir()
        for name, text in blocks:
            (own / name).write_text(text.partition("\n")[2])
        documents = {(one["kind"], one["metadata"]["name"]): one for one in render(own)}
        assert documents["Service", "fluvial-coordinator"]["spec"]["type"] == "LoadBalancer"
        ours = agent(documents["StatefulSet", "fluvial-coordinator"])
        assert ours["image"] == "images.example.org/fluvial:0.3.0", ours["image"]
        assert {"name": "FLUVIAL_PUBLIC_HOST", "value": "fl.example.org"} in ours["env"], ours["env"]
        for kind, old, new in (("regions", "eu-west", "ap-south"), ("sites", "site-a", "site-b")):
            shutil.copytree(copied / kind / old, copied / kind / new)
            for file in (copied / kind / new).iterdir():
                file.write_text(file.read_text().replace(old, new))
            told = json.dumps(render(copied / kind / new))
            assert old not in told and f"fluvial-token-{new}" in told, told


class Cluster:
    """podman in the place of the kubelet: a workload's template as a Pod. What podman has not (claims, Secrets, the
    group of a volume, a probe without a shell, names of Services) is put in its place here."""

    def __init__(self, podman):
        self.podman = podman
        self.hosts = []
        podman.run("network", "create", "cluster")

    def folder(self, pod, volume):
        path = self.podman.folder / f"{pod}-{volume}"
        path.mkdir(exist_ok=True)
        os.chown(path, 10001, 10001)
        return path

    def start(self, document, token=None):
        name = document["metadata"]["name"]
        spec = copy.deepcopy(template(document)["spec"])
        spec.pop("nodeSelector", None)
        volumes = spec.get("volumes", []) + [{"name": claim["metadata"]["name"]}
                                             for claim in document["spec"]["volumeClaimTemplates"]]
        for volume in volumes:
            path = self.folder(name, volume["name"])
            if "secret" in volume and token:
                (path / "token").write_text(token)
                os.chown(path / "token", 0, 10001)
                (path / "token").chmod(volume["secret"]["defaultMode"])
        spec["volumes"] = [{"name": volume["name"], "hostPath": {"path": str(self.folder(name, volume["name"]))}}
                           for volume in volumes]
        for container in spec["containers"]:
            container["env"] = [{"name": key, "value": value} for key, value in environment(container, "fluvial").items()]
            for key in ("envFrom", "ports", "startupProbe", "livenessProbe", "readinessProbe", "resources"):
                container.pop(key, None)
        spec["hostAliases"] = self.hosts
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        file = self.podman.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(pod))
        self.podman.run("play", "kube", "--network", "cluster", file)
        until(120, f"{name} to be well", lambda: self.probe(document, "readinessProbe"))
        assert self.probe(document, "livenessProbe"), name
        networks = self.podman.inspect(self.container(document))["NetworkSettings"]["Networks"]
        self.hosts.append({"ip": networks["cluster"]["IPAddress"], "hostnames": [f"{name}.fluvial.svc"]})

    def stop(self, document):
        self.podman.run("play", "kube", "--down", self.podman.folder / f"{document['metadata']['name']}.yaml")

    @staticmethod
    def container(document):
        return f"{document['metadata']['name']}-{agent(document)['name']}"

    def probe(self, document, kind):
        command = agent(document)[kind]["exec"]["command"]
        return self.podman.run("exec", self.container(document), *command, check=False).returncode == 0

    def ask(self, coordinator, *arguments):
        return self.podman.run("exec", self.container(coordinator), "/usr/bin/fluvial", *arguments).stdout


def back_up(cluster, state):
    """The CronJob's container, once, beside a coordinator that runs: it reaches it by the socket in its folder alone."""
    job = next(one for one in render(KUBERNETES / "overlays/backup") if one["kind"] == "CronJob")
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    folders = {"state": state, "backup": cluster.folder("backup", "claim"), "passphrase": cluster.folder("backup", "secret")}
    (folders["passphrase"] / "passphrase").write_text("correct horse battery staple\n")
    os.chown(folders["passphrase"] / "passphrase", 0, 10001)
    (folders["passphrase"] / "passphrase").chmod(0o440)
    mounts = [part for one in container["volumeMounts"]
              for part in ("--volume", f"{folders[one['name']]}:{one['mountPath']}" + (":ro" if one.get("readOnly") else ""))]
    told = cluster.podman.run("run", "--rm", "--network", "none", "--read-only", "--cap-drop", "all", "--user", "10001:10001",
                              *mounts, "fluvial", *container["args"], "--json").stdout
    assert json.loads(told)["coordinator_runs"], told


def check_pods(bin_folder, example):
    def find(component):
        return next(one for one in example if one["kind"] == "StatefulSet" and template(one)["metadata"]["labels"][
            "app.kubernetes.io/component"] == component)

    coordinator, aggregator, site = find("coordinator"), find("aggregator"), find("edge")
    with Podman() as podman:
        podman.build(bin_folder, "cpu", "fluvial")
        podman.build(bin_folder, "digits", "fluvial-digits")
        cluster = Cluster(podman)
        cluster.start(coordinator)
        cluster.start(aggregator, cluster.ask(coordinator, "token", "create", "--role", "aggregator", "--name", "eu-west",
                                              "--region", "eu-west"))
        cluster.start(site, cluster.ask(coordinator, "token", "create", "--name", "site-a", "--region", "eu-west"))
        nodes = json.loads(cluster.ask(coordinator, "nodes", "list", "--json"))["nodes"]
        assert {node["name"]: node["parent"] for node in nodes if node["role"] == "site"} == {"site-a": "eu-west"}, nodes
        state = cluster.folder(coordinator["metadata"]["name"], "state")
        (state / "plan.toml").write_text(PLAN)
        podman.run("run", "--rm", "--network", "none", "--volume", f"{state}:/var/lib/fluvial", "fluvial-digits", "init",
                   "--model", "softmax", "--out", "/var/lib/fluvial/initial.safetensors")
        cluster.ask(coordinator, "run", "start", "/var/lib/fluvial/plan.toml", "--model",
                    "/var/lib/fluvial/initial.safetensors")
        until(120, "the run", lambda: '"done"' in cluster.ask(coordinator, "run", "list", "--json"))
        back_up(cluster, state)
        # A new pod on the same claim, the Secret gone: the same member.
        cluster.stop(site)
        (cluster.folder(site["metadata"]["name"], "token") / "token").unlink()
        cluster.start(site)
        rounds = json.loads(cluster.ask(coordinator, "rounds", "list", "--json"))["rounds"]
        assert [[one["name"] for one in each["contributors"]] for each in rounds] == [["site-a"]] * 3, rounds
    assert not podman.left_behind(), podman.left_behind()


def main():
    if yaml is None or shutil.which("kubectl") is None:
        skip("kubectl or Python's yaml is not installed (./dev install --deploy)")
    example = check_manifests()
    print("manifests: ok")
    try:
        check_pods(sys.argv[1], example)
    except SystemExit as end:
        if end.code != SKIPPED:
            raise
        return  # what could be checked without containers was
    print("ok")


if __name__ == "__main__":
    main()
