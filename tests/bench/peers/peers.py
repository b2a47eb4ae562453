#!/usr/bin/env python3
"""./dev bench peers: the same rounds by Fluvial and by others, on this machine, in turns."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import catalogue
import install
import machine
import report

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}


def number(text):
    """10M, 100K or a plain number."""
    unit = text[-1:].upper() if text[-1:].isalpha() else ""
    digits = text[: len(text) - len(unit)]
    if unit not in UNITS or not digits.isdigit() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number such as 4, 100K or 10M")
    return int(digits) * UNITS[unit]


def numbers(text):
    return [number(part) for part in text.split(",")]


def names(text):
    chosen = text.split(",")
    for name in chosen:
        if name not in catalogue.PEERS:
            raise argparse.ArgumentTypeError(f"{name!r}: expected some of {', '.join(catalogue.PEERS)}")
    return chosen


def arguments():
    parser = argparse.ArgumentParser(
        prog="./dev bench peers",
        description="N sites send a model of P fp32 parameters, nobody trains: round seconds, processor-seconds, memory and "
        "bytes of Fluvial and of other systems, each in namespaces of its own, in turns. What is missing is installed: "
        "distribution packages by ./dev, the rest into build/peers. Whatever cannot be installed is named as not run.",
        epilog="example: ./dev bench peers --sites 4,16 --params 1M,10M --repeats 3 --out build/peers/results")
    parser.add_argument("--sites", type=numbers, default=[4], metavar="N,..", help="sites (4)")
    parser.add_argument("--params", type=numbers, default=[10**6, 10**7], metavar="P,..", help="fp32 parameters (1M,10M)")
    parser.add_argument("--rounds", type=number, default=6, metavar="R", help="rounds at least, of quick peers more; the first is dropped (6)")
    parser.add_argument("--repeats", type=number, default=2, metavar="N", help="how often each is measured, in turns (2)")
    parser.add_argument("--only", type=names, default=list(catalogue.PEERS), metavar="NAME,..",
                        help="some of " + ", ".join(catalogue.PEERS))
    parser.add_argument("--codec", nargs="+", default=["fp32"], metavar="UP[/DOWN]",
                        help="Fluvial's, each in a row of its own: of the updates and, behind a slash, of the model that goes "
                        "down, as the plan's keys codec and down (fp32); all others send fp32")
    parser.add_argument("--line", type=number, default=0, metavar="BITS",
                        help="shape the loopback to so many bits a second, 1G: one line for all bytes of both directions (none)")
    parser.add_argument("--limit", type=number, default=900, metavar="S", help="seconds that one measurement may take (900)")
    parser.add_argument("--fluvial", default=os.path.join(REPOSITORY, "build/release/bin/fluvial"), metavar="PATH",
                        help="the executable (build/release/bin/fluvial)")
    parser.add_argument("--out", default=os.path.join(REPOSITORY, "build/peers/results"), metavar="FOLDER",
                        help="for peers.md, peers.json and plots as SVG (build/peers/results)")
    parser.add_argument("--keep", action="store_true", help="leave the work folders, with every log")
    chosen = parser.parse_args()
    if chosen.line and not shutil.which("tc"):
        parser.error("--line: no tc (Debian: iproute2)")
    if chosen.rounds < 2:
        parser.error("--rounds: at least 2, since the first is dropped")
    return chosen


def namespaces():
    """The command that gives a program namespaces of its own, in which it is process 1."""
    command = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return command if os.geteuid() == 0 else command + ["--map-root-user"]


def check_namespaces():
    ran = subprocess.run([*namespaces(), "true"], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"bench peers: no namespaces ({ran.stderr.strip()}); run it as root, or allow user namespaces")


def measure(name, peers, place, sites, params, chosen):
    """The result of one measurement: figures, or the reason why there are none."""
    peer = peers[name]
    folder = tempfile.mkdtemp(prefix=f"fluvial-peers-{peer.driver}-")
    task = {"peer": name, "sites": sites, "params": params, "rounds": peer.rounds(chosen.rounds, params) if not chosen.line else chosen.rounds,
            "line_bits_per_s": chosen.line, "limit_s": chosen.limit, "folder": folder, "peers": HERE, "has_server": peer.has_server,
            "driver": os.path.join(HERE, "drivers", f"run_{peer.driver}.py"), **peer.settings, **place}
    result = os.path.join(folder, "result.json")
    with open(os.path.join(folder, "task.json"), "w", encoding="utf-8") as file:
        json.dump(task, file)
    subprocess.run([*namespaces(), install.PYTHON, "-B", os.path.join(HERE, "arena.py"),
                    os.path.join(folder, "task.json"), result], stdin=subprocess.DEVNULL, check=False)
    if os.path.exists(result):
        with open(result, encoding="utf-8") as file:
            figures = json.load(file)
    else:
        figures = {"reason": "the measurement itself failed"}
    if chosen.keep or "reason" in figures:
        print(f"   logs: {folder}", file=sys.stderr)
    else:
        shutil.rmtree(folder)
    return {"peer": name, "sites": sites, "params": params, "rounds": task["rounds"], **figures}


def main():
    chosen = arguments()
    check_namespaces()
    builds = os.path.join(REPOSITORY, "build/peers")
    os.makedirs(builds, exist_ok=True)
    places, missing = {}, {}
    peers = catalogue.fluvial_with(chosen.codec)
    for name in [name for name in peers if name.split()[0] in chosen.only]:
        print(f"-- {name}: looking for it, installing what is missing", file=sys.stderr)
        try:
            places[name] = catalogue.installed(name, os.path.abspath(chosen.fluvial), builds, HERE)
        except install.NotHere as reason:
            missing[name] = str(reason)
            print(f"-- {name}: not run: {reason}", file=sys.stderr)
    before, results = machine.describe(), []
    for sites in chosen.sites:
        for params in chosen.params:
            for repeat in range(chosen.repeats):
                for name, place in places.items():
                    print(f"-- {name}: {sites} sites, {params:,} parameters, {repeat + 1} of {chosen.repeats}", file=sys.stderr)
                    results.append(measure(name, peers, place, sites, params, chosen))
    document = {"machine": before, "load_after": machine.load(), "command": " ".join(["./dev bench peers", *sys.argv[1:]]),
                "rounds": chosen.rounds, "line_bits_per_s": chosen.line,
                "titles": {name: [peer.title, peer.security] for name, peer in peers.items()}, "not_run": missing,
                "versions": {name: place["version"] for name, place in places.items()}, "measurements": results}
    print(report.write(document, chosen.out))
    sys.exit(1 if any("reason" in result for result in results) else 0)


if __name__ == "__main__":
    main()
