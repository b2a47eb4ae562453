"""podman with a storage of its own, in a temporary folder: a test sees no image but its own and leaves nothing behind."""

import contextlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77

CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=20000:20000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
{runtime}
[network]
network_config_dir = "{folder}/networks"
"""


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def until(seconds, what, done):
    """Calls done() until it returns something; for what another process does in its own time and announces nowhere."""
    end = time.monotonic() + seconds
    while True:
        found = done()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


class Podman:
    def __init__(self):
        for tool in ("podman", "conmon", "runc", "buildah"):
            if tool != "buildah" and shutil.which(tool) is None:
                skip(f"{tool} is not installed (./dev install --deploy)")
        if os.geteuid() != 0:
            skip("podman is tried as root alone")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fluvial-deploy-"))
        conf = self.folder / "containers.conf"
        conf.write_text(CONTAINERS_CONF.format(folder=self.folder, runtime='runtime = "runc"'))
        self.environment = dict(os.environ, CONTAINERS_CONF=str(conf), BUILDAH_ISOLATION="chroot",
                                DISABLE_HC_SYSTEMD="true", TMPDIR=str(self.folder))
        self.tool = self.folder / "podman"  # for those who call podman themselves
        self.tool.write_text("#!/bin/sh\nexec /usr/bin/env podman --root {0}/root --runroot {0}/run \"$@\"\n".format(
            self.folder).replace("/usr/bin/env podman", shutil.which("podman")))
        self.tool.chmod(0o755)
        self.environment["FLUVIAL_CONTAINER_TOOL"] = str(self.tool)
        self.environment["PATH"] = f"{self.folder}:{self.environment['PATH']}"

    def __enter__(self):
        try:
            self._probe()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _probe(self):
        """The least that a container needs, with an executable that needs no library."""
        self.import_image("probe", {"usr/bin/probe": "/sbin/ldconfig"})
        ran = self.run("run", "--rm", "--network", "none", "probe", "/usr/bin/probe", "--version", check=False)
        if ran.returncode != 0:
            skip("containers are not permitted here: " + (ran.stderr.strip().splitlines() or ["no reason"])[-1])

    def __exit__(self, *_):
        self.run("rm", "--all", "--force", "--time", "0", check=False)
        self.run("pod", "rm", "--all", "--force", check=False)
        self.run("network", "prune", "--force", check=False)
        self.run("volume", "prune", "--force", check=False)
        until(60, "the last of podman's own processes", lambda: not self._processes())  # one that cleans up makes folders anew
        for mount in reversed(self._mounts()):
            subprocess.run(["umount", "--lazy", mount], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self):
        """Whose command line names the storage."""
        found = []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in (process / "cmdline").read_bytes():
                    found.append(process.name)
        return found

    def _mounts(self):
        lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
        return [line.split()[4] for line in lines if line.split()[4].startswith(str(self.folder))]

    def run(self, *arguments, check=True, **more):
        ran = subprocess.run([str(self.tool), *map(str, arguments)], env=self.environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **more)
        if check and ran.returncode != 0:
            raise AssertionError(f"podman {' '.join(map(str, arguments))}: {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return ran

    def inspect(self, what, kind="container"):
        return json.loads(self.run(kind, "inspect", what).stdout)[0]

    def pid(self, name):
        return self.inspect(name)["State"]["Pid"]

    def logs(self, name):
        ran = self.run("logs", name, check=False)
        return ran.stdout + ran.stderr

    def build(self, bin_folder, target, tag):
        subprocess.run([str(SOURCE / "deploy/image/build"), "--prebuilt", str(bin_folder), "--target", target, "--tag",
                        tag], env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def import_image(self, tag, files, folders=(), changes=()):
        """An image of some of this machine's files. `folders`: (path, owner)."""
        archive = self.folder / "import.tar"
        with tarfile.open(archive, "w") as tar:
            for path, owner in folders:
                entry = tarfile.TarInfo(path)
                entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o755, owner, owner
                tar.addfile(entry)
            for path, source in files.items():
                tar.add(os.path.realpath(source), path)
            passwd = b"root:x:0:0:root:/:/none\nnobody:x:65534:65534:nobody:/:/none\n"
            entry = tarfile.TarInfo("etc/passwd")
            entry.size = len(passwd)
            tar.addfile(entry, io.BytesIO(passwd))
        change_arguments = [part for change in changes for part in ("--change", change)]
        self.run("import", "--quiet", *change_arguments, archive, f"localhost/{tag}:latest")
        archive.unlink()

    def left_behind(self):
        """Processes that mention the storage, but for ourselves."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(self.folder) in text:
                found.append(text)
        return found
