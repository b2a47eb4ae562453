"""This machine in words, for the head of a table."""

import datetime
import os


def _first(path, key):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(key):
                    return line[len(key):].strip(" \t:=\n\"")
    except OSError:
        pass
    return "unknown"


def load():
    return os.getloadavg()[0]


def describe():
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"date": datetime.date.today().isoformat(), "processor": _first("/proc/cpuinfo", "model name"),
            "cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / 2**30),
            "system": _first("/etc/os-release", "PRETTY_NAME="), "kernel": os.uname().release, "load_before": load()}
