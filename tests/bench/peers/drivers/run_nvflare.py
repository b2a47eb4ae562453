"""NVIDIA FLARE: its NumPy FedAvg recipe on a provisioned federation (mutual TLS) or in its simulator (plaintext).

As its documentation provisions: project.yml, `nvflare provision`, each kit's startup/start.sh, a job submitted with the
administrator's kit. Its loops ask for the next task on timers; with "poll_s" each of these is set to that many seconds.
"""

import datetime
import glob
import json
import os
import re
import socket
import subprocess
import sys
import time

import numpy

import work

NAME = "sums"
ADMIN_PORT = 8003
EVENT = re.compile(r"Round (\d+) started\.|Finished FedAvg\.")


def make_job(task):
    """The job's folder."""
    from nvflare.app_common.np.recipes.fedavg import NumpyFedAvgRecipe

    recipe = NumpyFedAvgRecipe(name=NAME, initial_ckpt=os.path.join(task["folder"], "initial.npy"), min_clients=task["sites"],
                               num_rounds=task["rounds"],
                               train_script=os.path.join(task["peers"], "apps", "nvflare_site.py"),
                               train_args=task["folder"] + " " + os.path.join(task["peers"], "drivers"))
    recipe.export(os.path.join(task["folder"], "jobs"))
    job = os.path.join(task["folder"], "jobs", NAME)
    if task["poll_s"]:
        set_polling(job, task["poll_s"])
    return job


def set_polling(job, seconds):
    for path in glob.glob(job + "/*/config/config_fed_server.json"):
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        config["server"] = config.get("server", {}) | {"task_request_interval": seconds}
        for workflow in config["workflows"]:
            workflow["args"]["task_check_period"] = seconds
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
    for path in glob.glob(job + "/*/config/config_fed_client.json"):
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        config |= {"default_task_fetch_interval": seconds, "task_check_interval": seconds}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)


def project(sites):
    participants = ["  - {name: localhost, type: server, org: bench, fed_learn_port: 8002,"
                    f" admin_port: {ADMIN_PORT}}}",
                    "  - {name: admin@bench.org, type: admin, org: bench, role: project_admin}"]
    participants += [f"  - {{name: site-{site + 1}, type: client, org: bench}}" for site in range(sites)]
    return "\n".join([
        "api_version: 3", "name: bench", "description: bench", "participants:", *participants, "builders:",
        "  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder",
        "    args: {template_file: [master_template.yml]}",
        "  - path: nvflare.lighter.impl.static_file.StaticFileBuilder",
        "    args: {config_folder: config, overseer_agent: {path: nvflare.ha.dummy_overseer_agent.DummyOverseerAgent,"
        " overseer_exists: false, args: {sp_end_point: 'localhost:8002:%d'}}}" % ADMIN_PORT,
        "  - path: nvflare.lighter.impl.cert.CertBuilder",
        "  - path: nvflare.lighter.impl.signature.SignatureBuilder", ""])


def listens():
    with socket.socket() as probe:
        return probe.connect_ex(("localhost", ADMIN_PORT)) == 0


def connected(kit, limit_s):
    """The administrator's session, as soon as the server is up."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    end = time.monotonic() + limit_s
    work.until("the server listens", limit_s, listens)  # a session that finds nobody there may hang for good
    while True:
        try:
            return new_secure_session("admin@bench.org", kit)
        except Exception:  # whatever it raises while the server starts
            if time.monotonic() > end:
                raise
            time.sleep(1)


def patiently(ask, end):
    """A server that has many sites and few processors does not always answer in a session's time: it is asked again."""
    from nvflare.fuel.flare_api.api_spec import NoConnection

    while True:
        try:
            return ask()
        except NoConnection:
            if time.monotonic() > end:
                raise
            time.sleep(1)


def run_provisioned(task, job):
    with open("project.yml", "w", encoding="utf-8") as file:
        file.write(project(task["sites"]))
    subprocess.run([task["bin"] + "/nvflare", "provision", "-p", "project.yml", "-w", "kits"], check=True,
                   stdin=subprocess.DEVNULL)
    kits = glob.glob("kits/bench/prod_00")[0]
    path = {"PATH": task["bin"] + ":" + os.environ["PATH"]}
    work.start("server", ["bash", kits + "/localhost/startup/start.sh"], "server.log", **path)
    for site in range(task["sites"]):
        work.start("site", ["bash", f"{kits}/site-{site + 1}/startup/start.sh"], f"site-{site}.log", **path)
    end = time.monotonic() + task["limit_s"]
    session = connected(os.path.abspath(kits + "/admin@bench.org"), task["limit_s"])
    work.until("all sites are connected", task["limit_s"],
               lambda: len(patiently(session.get_system_info, end).client_info) == task["sites"])
    identity = session.submit_job(job)
    patiently(lambda: session.monitor_job_and_return_job_meta(identity, timeout=task["limit_s"], poll_interval=1.0), end)
    return patiently(lambda: session.download_job_result(identity, os.path.join(task["folder"], "result")), end)


def run_simulator(task, job):
    sites = str(task["sites"])
    ran = work.start("site", [task["bin"] + "/nvflare", "simulator", job, "-w", "simulation", "-n", sites, "-t", sites],
                     "simulator.log", PATH=task["bin"] + ":" + os.environ["PATH"])
    work.wait_all([ran], task["limit_s"])
    return "simulation"


def marks(folder):
    """When each round ended, in seconds of time.monotonic(): as the server's log says, to the millisecond."""
    offset = time.monotonic() - time.time()
    moments = set()
    for path in glob.glob(folder + "/**/log.json", recursive=True):
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                found = EVENT.search(line)
                if found and found.group(1) != "0" and '"FedAvg"' in line:
                    written = datetime.datetime.strptime(json.loads(line)["asctime"], "%Y-%m-%d %H:%M:%S,%f")
                    moments.add(written.timestamp() + offset)
    return sorted(moments)


def main():
    task = work.read_task()
    work.prepare(task)
    job = make_job(task)
    folder = run_simulator(task, job) if task["simulator"] else run_provisioned(task, job)
    for moment in marks(folder):
        work.mark(task["folder"], moment)
    models = glob.glob(folder + "/**/server.npy", recursive=True)
    if not models:
        sys.exit("the server has left no model")
    work.finish(task, numpy.load(models[0], mmap_mode="r"))
    os._exit(0)  # the session's threads would hold the process


main()
