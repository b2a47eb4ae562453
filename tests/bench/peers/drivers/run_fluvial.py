"""Fluvial, as `fluvial bench tree` runs it: mutual TLS, journal and models fsynced, every sum checked afterwards."""

import json
import os
import re
import subprocess
import sys

import work

ROUND = re.compile(r"round +\d+/\d+ ")  # the line of a committed round


def main():
    task = work.read_task()
    command = [task["fluvial"], "bench", "tree", "--sites", task["sites"], "--aggregators", 0, "--params", task["params"],
               "--codec", task["codec"], "--rounds", task["rounds"], "--json", "tree.json", "--no-bound"]
    if task["down"]:
        command += ["--down", task["down"]]
    bench = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=sys.stdout,
                             stderr=subprocess.PIPE, text=True)
    for line in bench.stderr:
        if ROUND.match(line):
            work.mark(task["folder"])
        sys.stderr.write(line)
    if bench.wait() != 0:
        sys.exit(f"fluvial bench tree ended with status {bench.returncode}")
    with open("tree.json", encoding="utf-8") as file:
        tree = json.load(file)
    os.remove("tree.json")
    work.write_outcome(checked=tree["exact"], reported_round_seconds=tree["round_seconds"])


main()
