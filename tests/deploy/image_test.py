"""The image, with the executables that were just built: what it holds, who it runs as, its health, its end.

usage: image_test.py BIN_FOLDER
"""

import pathlib
import sys

from containers import SOURCE, Podman, until

LIMIT_BYTES = 150_000_000
HARDENED = ["--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges"]


def start(podman, name, arguments, more=()):
    podman.run("run", "--detach", "--name", name, *HARDENED, *more, "fluvial", *arguments)


def is_healthy(podman, name):
    return podman.run("healthcheck", "run", name, check=False).returncode == 0


def check_what_it_says(podman):
    image = podman.inspect("fluvial", "image")
    version = (SOURCE / "VERSION").read_text().split()[0]
    assert image["Config"]["User"] == "10001:10001", image["Config"]
    assert image["Config"]["Labels"]["org.opencontainers.image.version"] == version
    assert image["Config"]["Volumes"] == {"/var/lib/fluvial": {}}, image["Config"]["Volumes"]
    assert image["Healthcheck"]["Test"] == ["CMD", "/usr/bin/fluvial", "health"], image
    assert image["Size"] <= LIMIT_BYTES, f"{image['Size']} bytes, at most {LIMIT_BYTES}"
    print(f"{image['Size'] / 1e6:.1f} MB")
    told = podman.run("run", "--rm", "--network", "none", *HARDENED, "fluvial", "--version").stdout
    assert told == f"fluvial {version}\n", told
    for shell in ("/bin/sh", "/bin/bash", "/usr/bin/dash"):
        ran = podman.run("run", "--rm", "--network", "none", "--entrypoint", shell, "fluvial", "-c", "true", check=False)
        assert ran.returncode == 127, f"{shell} is there"


def check_process(podman, name):
    process = pathlib.Path("/proc") / str(podman.pid(name))
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    assert status["Uid"].split() == ["10001"] * 4, status["Uid"]
    assert int(status["CapEff"], 16) == 0 and status["NoNewPrivs"].strip() == "1"
    root = next(line.split() for line in (process / "mountinfo").read_text().splitlines() if line.split()[4] == "/")
    assert "ro" in root[5].split(","), root
    refused = podman.run("exec", name, "fluvial", "token", "create", "--name", "x", "--out", "/x", check=False)
    assert refused.returncode == 1 and "Read-only file system" in refused.stderr, refused.stderr


def check_member(podman):
    """One entry point, by a token in a file or in the environment; the state is in the volume alone."""
    podman.run("exec", "coordinator", "fluvial", "token", "create", "--name", "site-1", "--out",
               "/var/lib/fluvial/site-1.token")
    state = pathlib.Path(podman.inspect("coordinator-state", "volume")["Mountpoint"])
    assert (state.stat().st_mode & 0o7777, state.stat().st_uid) == (0o700, 10001), oct(state.stat().st_mode)
    file = state / "site-1.token"
    assert file.stat().st_mode & 0o7777 == 0o600 and file.stat().st_uid == 10001
    podman.run("secret", "create", "site-1", file)
    file.unlink()
    network = ["--network", "container:coordinator", "--env", "FLUVIAL_METRICS_LISTEN=127.0.0.1:9401", "--volume",
               "site-state:/var/lib/fluvial"]
    secret = ["--tmpfs", "/tmp", "--secret", "site-1,uid=10001,mode=0400,target=/tmp/site-1"]
    start(podman, "site-1", ["edge", "--enroll", "--token-file", "/tmp/site-1"], [*network, *secret])
    until(60, "the site's health", lambda: is_healthy(podman, "site-1"))
    assert "can be read by others" not in podman.logs("site-1"), podman.logs("site-1")
    podman.run("kill", "--signal", "KILL", "site-1")
    podman.run("rm", "--force", "site-1")
    podman.run("secret", "rm", "site-1")
    start(podman, "site-1", ["edge", "--enroll"], network)  # the token is gone
    until(60, "the site's health, started again", lambda: is_healthy(podman, "site-1"))


def check_stop_while_waiting(podman):
    """Process 1 has no default action for a signal: it must end while it waits for a coordinator, too."""
    token = podman.run("exec", "coordinator", "fluvial", "token", "create", "--name", "site-2").stdout.strip()
    start(podman, "site-2", ["edge", "--enroll"], ["--network", "none", "--env", f"FLUVIAL_TOKEN={token}"])
    until(60, "a line about waiting", lambda: "not enrolled yet" in podman.logs("site-2"))
    podman.run("stop", "--time", "30", "site-2")
    assert podman.inspect("site-2")["State"]["ExitCode"] == 143, podman.inspect("site-2")["State"]


def check_drain(podman, name, line):
    podman.run("stop", "--time", "30", name)
    state = podman.inspect(name)["State"]
    assert state["ExitCode"] == 0, f"{state}\n{podman.logs(name)}"
    assert line in podman.logs(name), podman.logs(name)


def main():
    with Podman() as podman:
        podman.build(sys.argv[1], "cpu", "fluvial")
        check_what_it_says(podman)
        start(podman, "coordinator", ["coordinator", "--public-host", "localhost"],
              ["--network", "none", "--volume", "coordinator-state:/var/lib/fluvial"])
        until(60, "the coordinator's health", lambda: is_healthy(podman, "coordinator"))
        check_process(podman, "coordinator")
        check_member(podman)
        check_stop_while_waiting(podman)
        check_drain(podman, "site-1", "")
        check_drain(podman, "coordinator", "coordinator stopping")
    assert not podman.left_behind(), podman.left_behind()
    assert not podman.folder.exists(), podman.folder
    print("ok")


if __name__ == "__main__":
    main()
