"""Flower's Deployment Engine: one SuperLink, a SuperNode a site, each starting its apps as subprocesses, TLS.

As "Run Flower with the Deployment Engine" and "Enable TLS connections" of its documentation say. In namespaces without
a network beyond the loopback there is nothing to install at run time and nobody to tell: both are turned off.
"""

import os
import shutil
import socket
import subprocess
import sys

import numpy

import work

PORT = 8000
FIRST_SITE_PORT = 9100

CONNECTION = """[superlink]
default = "bench"

[superlink.bench]
address = "127.0.0.1:{port}"
root-certificates = "{folder}/tls/ca.crt"
"""


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_nodes(task, environment):
    tls = os.path.join(task["folder"], "tls")
    server = ["--ssl-certfile", f"{tls}/node.crt", "--ssl-keyfile", f"{tls}/node.key", "--ssl-ca-certfile", f"{tls}/ca.crt"]
    work.start("server", [task["bin"] + "/flower-superlink", *server, "--port", PORT,
                          "--disable-runtime-dependency-installation"], "superlink.log", **environment)
    work.until("the SuperLink listens", 120, lambda: listening(PORT))
    for site in range(task["sites"]):
        work.start("site", [task["bin"] + "/flower-supernode", "--root-certificates", f"{tls}/ca.crt", *server,
                            "--superlink", f"127.0.0.1:{PORT}", "--port", FIRST_SITE_PORT + site,
                            "--node-config", f"site={site}"], f"supernode-{site}.log", **environment)


def main():
    task = work.read_task()
    work.prepare(task)
    work.make_certificates("tls")
    shutil.copytree(os.path.join(task["peers"], "apps", "flower"), "app")
    shutil.copy(os.path.join(task["peers"], "..", "..", "..", "LICENSE"), "app")
    home = os.path.join(task["folder"], "home")
    os.makedirs(home)
    with open(os.path.join(home, "config.toml"), "w", encoding="utf-8") as file:
        file.write(CONNECTION.format(port=PORT, folder=task["folder"]))
    environment = {"FLWR_HOME": home, "FLWR_TELEMETRY_ENABLED": "0", "PATH": task["bin"] + ":" + os.environ["PATH"],
                   "FLUVIAL_PEERS": os.path.join(task["peers"], "drivers")}
    start_nodes(task, environment)
    config = f'folder="{task["folder"]}" sites={task["sites"]} rounds={task["rounds"]}'
    started = subprocess.run([task["bin"] + "/flwr", "run", "app", "bench", "--run-config", config], stdin=subprocess.DEVNULL,
                             env=os.environ | environment, check=False)
    if started.returncode != 0:
        sys.exit("flwr run failed")
    work.until("the last model", task["limit_s"], lambda: os.path.exists("final.npy"))
    work.finish(task, numpy.load("final.npy"))


main()
