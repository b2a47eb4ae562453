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
    services = {document["metadata"]["name"]: document for document in documents if document["kind"] == "Service"}
    for pod in pods:
        for variable in (one for container in pod["spec"]["containers"] for one in container.get("env", [])):
            host = re.match(r"([\w-]+)\.fluvial\.svc", variable.get("value", ""))
            assert host is None or host.group(1) in services, f"{variable}: no such Service"


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
    example = render(KUBERNETES / "example")
    check_together(example)
    check_schemas(everything)
    check_page()
    return example


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
            for key in ("ports", "startupProbe", "livenessProbe", "readinessProbe", "resources"):
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
