"""What every process of this PID namespace uses, by role, read from /proc.

A driver gives each process that it starts a role in its environment (FLUVIAL_ROLE: server or site); children inherit it.
Processes of Fluvial, which one command starts, are told apart by their subcommand. Whatever has no role is the bench's.
"""

import os

ROLES = ("server", "site", "bench")
_FLUVIAL_ROLES = {"coordinator": "server", "aggregator": "server", "edge": "site", "bench-worker": "site"}
_TICK = 1.0 / os.sysconf("SC_CLK_TCK")


def role_of(environment, arguments):
    """Of a process by its environment and arguments, both as /proc gives them: bytes with a NUL behind each."""
    for entry in environment.split(b"\0"):
        if entry.startswith(b"FLUVIAL_ROLE="):
            return entry.partition(b"=")[2].decode()
    words = [word.decode(errors="replace") for word in arguments.split(b"\0")[:2]]
    if len(words) > 1 and os.path.basename(words[0]) == "fluvial":
        return _FLUVIAL_ROLES.get(words[1], "bench")
    return "bench"


def cpu_of(stat):
    """Processor-seconds of a process and of the children that it has waited for, from /proc/PID/stat."""
    fields = stat.rpartition(b")")[2].split()
    return sum(int(field) for field in fields[11:15]) * _TICK


def memory_of(status):
    """(resident bytes, anonymous and shared bytes) from /proc/PID/status. Shared pages count in each process."""
    kib = {}
    for line in status.splitlines():
        name, _, value = line.partition(b":")
        if name in (b"VmRSS", b"RssAnon", b"RssShmem"):
            kib[name] = int(value.split()[0])
    return kib.get(b"VmRSS", 0) * 1024, (kib.get(b"RssAnon", 0) + kib.get(b"RssShmem", 0)) * 1024


def _read(pid, name):
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()


class Sampler:
    """Samples of all processes but this one, which must be process 1 of its PID namespace."""

    def __init__(self):
        self.samples = []  # (time, {role: processor-seconds}, server resident, server anonymous and shared, loopback)
        self._roles = {}  # pid -> (start of its program, role)
        self._gone = dict.fromkeys(ROLES, 0.0)  # of orphans that this process has waited for

    def reaped(self, pid, usage):
        """Process `pid` has ended and this process has waited for it."""
        role = self._roles.pop(pid, (b"", "bench"))[1]
        self._gone[role] += usage.ru_utime + usage.ru_stime

    def sample(self, now):
        cpu, resident, owned = dict(self._gone), 0, 0
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or entry == "1":
                continue
            try:
                pid, stat = int(entry), _read(entry, "stat")
                role = self._role(pid)
                cpu[role] += cpu_of(stat)
                if role == "server":
                    sizes = memory_of(_read(entry, "status"))
                    resident, owned = resident + sizes[0], owned + sizes[1]
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended meanwhile
        self.samples.append((now, cpu, resident, owned, loopback_bytes()))

    def _role(self, pid):
        arguments = _read(pid, "cmdline")
        known = self._roles.get(pid)
        if known and (known[0] == arguments or not arguments):  # a zombie has none
            return known[1]
        self._roles[pid] = (arguments, role_of(_read(pid, "environ"), arguments))
        return self._roles[pid][1]


def loopback_bytes():
    """Bytes sent over this network namespace's loopback so far, TCP's and IP's headers included."""
    with open("/proc/net/dev", "rb") as file:
        for line in file:
            name, _, counts = line.partition(b":")
            if name.strip() == b"lo":
                return int(counts.split()[8])
    return 0
