#!/usr/bin/env python3
"""One measurement, as process 1 of namespaces of its own: arena.py TASK.json RESULT.json (by peers.py alone).

With process 1 every process of the peer ends, daemons too. The loopback of the namespace carries nothing else, so its
counters are the peer's bytes; nothing outside of it can be reached.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import figures  # noqa: E402
import processes  # noqa: E402

_INTERVAL_S = figures.INTERVAL_S
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = bytearray(struct.pack("16sH22x", b"lo", 0))
        fcntl.ioctl(control, _SIOCGIFFLAGS, request)
        flags = struct.unpack_from("H", request, 16)[0]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))


def shape(bits_per_s):
    """One line for everything that is sent: what all processes of the peer say to each other shares it."""
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", f"{bits_per_s}bit", "burst", "256kb", "latency",
                    "200ms"], check=True)


def run_driver(task, sampler):
    """The driver's exit status; None when it was still there at the limit."""
    log = open(os.path.join(task["folder"], "driver.log"), "wb")
    driver = subprocess.Popen([task["python"], "-B", task["driver"], os.path.join(task["folder"], "task.json")],
                              stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    end = time.monotonic() + task["limit_s"]
    while time.monotonic() < end:
        sampler.sample(time.monotonic())
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if pid == 0:
                break
            if pid == driver.pid:
                return os.waitstatus_to_exitcode(status)
            sampler.reaped(pid, usage)
        time.sleep(_INTERVAL_S)
    os.kill(driver.pid, signal.SIGKILL)
    return None


def read_marks(path):
    try:
        with open(path, encoding="utf-8") as file:
            return sorted(float(line) for line in file)
    except FileNotFoundError:
        return []


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        task = json.load(file)
    loopback_up()
    if task["line_bits_per_s"]:
        shape(task["line_bits_per_s"])
    sampler = processes.Sampler()
    status = run_driver(task, sampler)
    outcome_path = os.path.join(task["folder"], "outcome.json")
    if status == 0 and os.path.exists(outcome_path):
        with open(outcome_path, encoding="utf-8") as file:
            result = json.load(file)
        marks = read_marks(os.path.join(task["folder"], "marks"))
        if len(marks) != task["rounds"]:
            result = {"reason": f"{len(marks)} of {task['rounds']} rounds ended"}
        else:
            result |= figures.figures(sampler.samples, marks, task["has_server"])
    else:
        how = f"not done after {task['limit_s']} s" if status is None else f"its driver ended with status {status}"
        result = {"reason": how}
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
