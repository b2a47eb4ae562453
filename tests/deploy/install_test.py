"""What `cmake --install` lays out: units that systemd takes and finds well shut in, manual pages, completions that complete,
and a process that tells its service manager how it stands.

usage: install_test.py BIN_FOLDER
"""

import gzip
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from containers import SOURCE, skip

ROLES = ["coordinator", "aggregator", "edge"]
# systemd's own figure, 0 (shut) to 10: a GPU's devices and what goes with them cost the edge some.
EXPOSURE_MAX = {"coordinator": 1.5, "aggregator": 1.5, "edge": 2.2}

MADE_LATER = "deploy/compose/secrets"

# What is typed, and what it may become: all of these, none of those.
CASES = [
    ("fluvial tok", {"token"}, {"run"}),
    ("fluvial token ", {"create", "list"}, {"enroll"}),
    ("fluvial token create --ro", {"--role"}, {"--region"}),
    ("fluvial token create --role ", {"site", "aggregator"}, {"--name"}),
    ("fluvial coordinator --log-level ", {"debug", "info", "warn", "error", "off"}, {"--data-dir"}),
    ("fluvial completion ", {"bash", "zsh", "fish"}, set()),
    ("fluvial rounds list --run ", set(), {"list", "--run"}),
]


def run(*command, check=True, **more):
    ran = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False, **more)
    if check and ran.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {ran.returncode}\n{ran.stdout}")
    return ran.stdout


def install(build, root):
    run("cmake", "--install", build, "--prefix", "/usr", "--strip", env=dict(os.environ, DESTDIR=str(root)))
    for path in ["usr/bin/fluvial", "usr/bin/fluvial-digits", "usr/share/fluvial/digits.csv.gz", "etc/fluvial/edge.env",
                 "usr/share/fluvial/prometheus/rules/alerts.yml", "usr/share/fluvial/grafana/overview.json",
                 "usr/lib/sysusers.d/fluvial.conf", "usr/lib/tmpfiles.d/fluvial.conf", "usr/share/man/man1/fluvial.1.gz"]:
        assert (root / path).is_file(), f"{path} is not installed"
    assert os.access(root / "usr/bin/fluvial", os.X_OK)
    for role in ROLES:  # a token, or a proxy's password, may be in them
        mode = (root / f"etc/fluvial/{role}.env").stat().st_mode & 0o7777
        assert mode == 0o640, f"{role}.env has mode {oct(mode)}"


def check_units(root):
    if shutil.which("systemd-analyze") is None:
        print("systemd-analyze is not installed: the units are not checked")
        return
    units = [f"/usr/lib/systemd/system/fluvial-{role}.service" for role in ROLES]
    for unit in units:
        text = (root / unit.lstrip("/")).read_text()
        assert "@" not in re.sub(r"@(system-service|privileged|resources)", "", text), text
        assert "ExecStart=/usr/bin/fluvial " in text, text
    # The units and settings that ours build on are this machine's; the executable and its manual are those just made.
    for folder in ["usr/lib/systemd/system", "lib/systemd/system"]:
        (root / folder).mkdir(parents=True, exist_ok=True)
        for unit in pathlib.Path("/lib/systemd/system").glob("*.target"):
            shutil.copy(unit, root / folder)
    told = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=yes", f"--root={root}", *units)
    assert told.strip() == "", told
    for role in ROLES:
        told = run("systemd-analyze", "security", "--offline=yes", "--no-pager", f"--root={root}",
                   f"--threshold={int(EXPOSURE_MAX[role] * 10)}", f"fluvial-{role}.service")
        exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", told)
        assert exposure and float(exposure.group(1)) <= EXPOSURE_MAX[role], told
        print(f"fluvial-{role}.service: exposure {exposure.group(1)}")


def check_manual(root, executable):
    pages = {path.name.removesuffix(".gz"): gzip.decompress(path.read_bytes()).decode()
             for path in (root / "usr/share/man/man1").iterdir()}
    commands = re.findall(r"^  ([a-z]+) ", run(executable, "--help").partition("Subcommands:")[2], re.MULTILINE)
    assert "fluvial.1" in pages and all(f"fluvial-{command}.1" in pages for command in set(commands) - {"fluvial"})
    create = pages["fluvial-token.1"]
    assert r"\fB\-\-weight\-max" in create and "fluvial token create" in create, create
    if shutil.which("groff") is None:
        print("groff is not installed: the manual is not formatted")
        return
    for page in pages.values():
        told = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-P-cbou"], input=page, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=True)
        assert told.stderr == "", told.stderr
        assert "NAME" in told.stdout and "SYNOPSIS" in told.stdout, told.stdout


def bash_answers(script, line):
    words = line.split(" ")
    ask = (f"source {script}; COMP_WORDS=({' '.join(word if word else chr(39) * 2 for word in words)}); "
           f"COMP_CWORD={len(words) - 1}; _fluvial; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    return set(run("bash", "--norc", "--noprofile", "-c", ask).split())


def zsh_answers(script, line):
    words = line.split(" ")
    quoted = " ".join(word if word else "''" for word in words)
    ask = ("compdef() { : }; compadd() { shift; print -rl -- $@ }; _files() { : };"
           "_describe() { [[ $1 == -o ]] && shift; print -rl -- ${${(P)2}%%:*} };"
           f"source {script}; words=({quoted}); CURRENT={len(words)}; _fluvial")
    return {word for word in run("zsh", "-f", "-c", ask).split() if word.startswith(words[-1])}


def fish_answers(script, line):
    told = run("fish", "--no-config", "-c", f"source {script}; complete -C '{line}'")
    return {entry.split("\t")[0] for entry in told.splitlines()}


def check_completions(root):
    share = root / "usr/share"
    shells = {
        "bash": (bash_answers, share / "bash-completion/completions/fluvial"),
        "zsh": (zsh_answers, share / "zsh/vendor-completions/_fluvial"),
        "fish": (fish_answers, share / "fish/vendor_completions.d/fluvial.fish"),
    }
    for shell, (answers, script) in shells.items():
        if shutil.which(shell) is None:
            print(f"{shell} is not installed: its completion is not tried")
            continue
        for line, wanted, unwanted in CASES:
            found = answers(script, line)
            assert wanted <= found and not found & unwanted, f"{shell}: {line!r} gives {sorted(found)}"
    check_tab(shells["bash"][1])


def check_tab(script):
    """A person's bash, with a terminal: the Tab key completes what is typed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PS1="> ", TERM="dumb", INPUTRC="/dev/null")
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    seen = b""

    def read_until(text):
        nonlocal seen
        end = time.monotonic() + 30
        while text not in seen:
            assert time.monotonic() < end, f"no {text!r} in {seen!r}"
            if select.select([terminal], [], [], 0.2)[0]:
                seen += os.read(terminal, 4096)

    try:
        os.write(terminal, f"source {script}; echo re''ady\n".encode())
        read_until(b"ready")
        os.write(terminal, b"fluvial tok\tcr\t--ro\tagg\t")
        read_until(b"fluvial token create --role aggregator")
        os.write(terminal, b"\x15fluvial coordinator --log-level=de\t")
        read_until(b"--log-level=debug")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def check_notifications(executable, folder, address):
    """The coordinator, as systemd starts it: ready, alive, draining."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address.replace("@", "\0", 1))
        manager.settimeout(30)
        environment = dict(os.environ, NOTIFY_SOCKET=address, WATCHDOG_USEC="200000")
        environment.pop("WATCHDOG_PID", None)
        process = subprocess.Popen([executable, "coordinator", "--data-dir", folder / "state", "--metrics-listen", "off",
                                    "--listen", "127.0.0.1:0", "--enrol-listen", "127.0.0.1:0", "--log-level", "error"],
                                   env=environment)
        try:
            heard = []
            while heard.count("WATCHDOG=1") < 4:
                heard += manager.recv(4096).decode().split("\n")
            assert "READY=1" in heard and "STATUS=ready" in heard, heard
            process.terminate()
            while "STOPPING=1" not in heard:
                heard += manager.recv(4096).decode().split("\n")
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


def commands_on(page):
    """Our commands among a page's examples and in its text, as words."""
    prose = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    for command in re.findall(r"`fluvial +([a-z][^`|]*)`", prose):
        yield command.split()
    for block in re.findall(r"^```[a-z]*\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            for command in re.findall(r"(?:^|-- |\()fluvial +([a-z][^|>&#()]*)", line.strip()):
                yield re.split(r"\s{2,}(?!-)", command)[0].split()


def check_pages(executable):
    """Each command that the pages show is one, with options that it has; what they name of deploy/ is there."""
    helps = {}

    def help_of(path):
        if path not in helps:
            helps[path] = run(executable, *path, "--help")
        return helps[path]

    count = 0
    for file in sorted((SOURCE / "docs").rglob("*.md")) + [SOURCE / "README.md"]:
        for words in commands_on(file.read_text()):
            path = ()
            while words[len(path):] and re.search(rf"^  {re.escape(words[len(path)])} ",
                                                  help_of(path).partition("Subcommands:")[2], re.MULTILINE):
                path += (words[len(path)],)
            assert path, f"{file.name}: fluvial {' '.join(words)}: no such command"
            for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
                assert re.search(rf"(?:^|[\s,]){re.escape(flag)}\b", help_of(path), re.MULTILINE), (
                    f"{file.name}: fluvial {' '.join(words)}: no {flag}")
            count += 1
        for path in re.findall(r"`(deploy/[\w./-]+)`", file.read_text()):
            assert (SOURCE / path).exists() or path == MADE_LATER, f"{file.name}: there is no {path}"
    assert count > 60, f"only {count} commands were found"
    print(f"{count} commands on the pages")


def main():
    build = pathlib.Path(sys.argv[1]).parent
    if shutil.which("cmake") is None:
        skip("cmake is not on the PATH")
    with tempfile.TemporaryDirectory(prefix="fluvial-install-") as temporary:
        root = pathlib.Path(temporary) / "root"
        install(build, root)
        executable = root / "usr/bin/fluvial"
        check_units(root)
        check_manual(root, executable)
        check_completions(root)
        check_pages(executable)
        check_notifications(executable, pathlib.Path(temporary), f"{temporary}/notify")
        check_notifications(executable, pathlib.Path(temporary), f"@fluvial-test-{os.getpid()}")
    print("ok")


if __name__ == "__main__":
    main()
