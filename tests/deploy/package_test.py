"""The .deb and the wheel of this build, and what a release says of them. The .deb's files are used where they were unpacked;
the wheel is installed into a virtual environment, where a federation trains, and removed again.

usage: package_test.py BIN_FOLDER
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from containers import SOURCE, skip

VERSION = (SOURCE / "VERSION").read_text().split()[0]
sys.path[:0] = [str(SOURCE / "deploy/wheel"), str(SOURCE / "deploy/release")]

TRAIN = """\
import numpy, fluvial, sys
assert fluvial.__file__.startswith(sys.prefix), fluvial.__file__
assert fluvial.testing.executable().startswith(sys.prefix), fluvial.testing.executable()
with fluvial.testing.LocalFederation(sites=2) as federation:
    federation.start_run("probe", model={"w": numpy.zeros(4, numpy.float32)}, rounds=2)
    rounds = [federation.connect(index).rounds("probe") for index in range(2)]
    for _ in range(2):
        for each, step in zip(rounds, (1, 3)):
            round = next(each)
            round.submit({"w": round.arrays()["w"] + numpy.float32(step)}, samples=1)
    federation.wait("probe")
    assert (federation.model("probe")["w"] == 4).all(), federation.model("probe")
"""


def run(*command, **more):
    ran = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False, **more)
    if ran.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {ran.returncode}\n{ran.stdout}")
    return ran.stdout


def build_deb(build, dist):
    run("cpack", "--config", build / "CPackConfig.cmake", "-B", dist, "-D", "CPACK_THREADS=0")
    return next(dist.glob("*.deb"))


def check_deb(deb, folder):
    fields = run("dpkg-deb", "--field", deb)
    assert re.search(rf"^Version: {re.escape(VERSION)}$", fields, re.MULTILINE), fields
    depends = re.search(r"^Depends: (.*)$", fields, re.MULTILINE).group(1)
    for name in ("libc6 (>=", "libssl3", "libsqlite3-0", "libprotobuf"):
        assert name in depends, depends
    control, root = folder / "control", folder / "root"
    run("dpkg-deb", "--control", deb, control)
    for script in ("postinst", "prerm", "postrm"):
        assert os.access(control / script, os.X_OK), script
        run("sh", "-n", control / script)
    check_purge(control / "postrm")
    run("dpkg-deb", "--extract", deb, root)
    for file in (control / "conffiles").read_text().split():
        assert (root / file.lstrip("/")).stat().st_mode & 0o7777 == 0o640, file
    held = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    for path in ("usr/bin/fluvial", "usr/lib/systemd/system/fluvial-edge.service", "usr/lib/sysusers.d/fluvial.conf",
                 "usr/share/man/man1/fluvial-edge.1.gz", "usr/share/bash-completion/completions/fluvial",
                 "usr/share/doc/fluvial/copyright", "usr/share/doc/fluvial/NEWS.gz"):
        assert path in held, f"{path} is not in {sorted(held)}"
    assert "ExecStart=/usr/bin/fluvial " in (root / "usr/lib/systemd/system/fluvial-edge.service").read_text()
    owners = run("dpkg-deb", "--contents", deb)
    assert all(" root/root " in line for line in owners.splitlines()), owners
    assert run(root / "usr/bin/fluvial", "--version") == f"fluvial {VERSION}\n"
    print(f"{deb.name}: {deb.stat().st_size / 1e6:.1f} MB")


# Over folders of its own in place of this machine's. fluvial-other is somebody else's.
PURGE = """\
mount -t tmpfs none /etc && mount -t tmpfs none /var/lib && mount -t tmpfs none /run
for folder in /etc /run; do
  for wants in multi-user.target.wants hospital.target.requires; do
    mkdir -p $folder/systemd/system/$wants
    for unit in coordinator aggregator edge other; do
      ln -s /usr/lib/systemd/system/fluvial-$unit.service $folder/systemd/system/$wants/
    done
  done
done
mkdir -p /etc/fluvial /var/lib/fluvial/ca && : > /var/lib/fluvial/ca/ca.pem && : > /etc/fluvial/edge.token
sh {postrm} {word} >&2
find /etc/systemd /run/systemd -type l -printf '%f\\n' | sort | uniq -c | tr -s ' '
ls /etc/fluvial /var/lib/fluvial/ca
"""


def check_purge(postrm):
    """What systemctl enable left is gone after a purge, and stays after a removal."""
    def left(word):
        ran = subprocess.run(["unshare", "--mount", "sh", "-ec", PURGE.format(postrm=postrm, word=word)],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/etc"], check=False,
                                           stderr=subprocess.DEVNULL).returncode != 0:
        print("no mounts of our own here: a purge is not tried")
        return
    purged = left("purge")
    assert re.findall(r"(\d+) (fluvial-\w+)", purged) == [("4", "fluvial-other")], purged
    assert "edge.token" not in purged and "ca.pem" in purged, purged
    removed = left("remove")
    assert len(re.findall(r"4 fluvial-\w+", removed)) == 4 and "edge.token" in removed, removed


def check_wheel(wheel, folder):
    import build_wheel
    import third_party

    environment = {"PATH": f"{folder}/venv/bin:/usr/bin:/bin", "HOME": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    made = subprocess.run(["/usr/bin/python3", "-m", "venv", "--system-site-packages", folder / "venv"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment)
    if made.returncode != 0:
        skip(f"no virtual environment (./dev install --deploy): {made.stdout.strip()}")
    python, before = folder / "venv/bin/python", files_of(folder / "venv")
    # numpy and protobuf are the distribution's: nothing is fetched.
    run(python, "-m", "pip", "install", "--no-index", "--no-compile", "--find-links", wheel.parent, "fluvial",
        env=environment)
    assert run("fluvial", "--version", env=environment) == f"fluvial {VERSION}\n"
    run(python, "-B", "-c", TRAIN, env=environment, cwd=folder)
    run("fluvial", "demo", "--rounds", "1", env=environment, cwd=folder)
    needed = third_party.shared_libraries(folder / "venv/bin/fluvial")
    for name, path in needed.items():
        is_ours = path.startswith(str(folder.resolve())) or "/venv/" in path
        assert is_ours or third_party.OF_THE_MACHINE.fullmatch(name), f"{name} of this machine is needed: {path}"
    assert not any(name.startswith(("libssl", "libcrypto", "libprotobuf", "libsqlite3")) for name in needed), needed
    tag = build_wheel.platform_tag([folder / "venv/bin/fluvial"])
    glibc = tuple(int(part) for part in re.search(r"manylinux_(\d+)_(\d+)_", wheel.name).groups())
    assert tuple(int(part) for part in re.search(r"manylinux_(\d+)_(\d+)_", tag).groups()) <= glibc, (tag, wheel.name)
    run(python, "-m", "pip", "uninstall", "--yes", "fluvial", env=environment)
    left = {path for path in files_of(folder / "venv") - before if "__pycache__" not in path}
    assert not left, left
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")


def files_of(folder):
    return {str(path) for path in folder.rglob("*") if path.is_file()}


def check_release(build, dist, deb, wheel):
    run(sys.executable, "-B", SOURCE / "deploy/release/release.py", build, dist)
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=dist)
    assert len((dist / "SHA256SUMS").read_text().splitlines()) == len(list(dist.iterdir())) - 1
    for artifact, how in ((deb, "DYNAMIC_LINK"), (wheel, "STATIC_LINK")):
        document = json.loads((dist / f"{artifact.name}.spdx.json").read_text())
        assert document["spdxVersion"] == "SPDX-2.3" and document["packages"][0]["versionInfo"] == VERSION
        related = {one["relatedSpdxElement"]: one["relationshipType"] for one in document["relationships"]}
        assert set(related) == {one["SPDXID"] for one in document["packages"]}
        openssl = [one for one in document["packages"] if one["name"] in ("libssl3", "libssl-dev")]
        assert how in {related[one["SPDXID"]] for one in openssl}, openssl
        assert not any("gtest" in one["name"] for one in document["packages"]), "what tests are made of is not shipped"
        for one in document["packages"]:
            assert one["SPDXID"].startswith("SPDXRef-") and one["downloadLocation"], one
    notices = (dist / "THIRD-PARTY-NOTICES.txt").read_text()
    for work in ("(source: openssl)", "(source: protobuf)", "(source: cli11)", "(source: boost1.81)", "Apache License"):
        assert work in notices, f"the notices do not mention {work}"


def main():
    build = pathlib.Path(sys.argv[1]).resolve().parent
    with tempfile.TemporaryDirectory(prefix="fluvial-package-") as temporary:
        folder = pathlib.Path(temporary)
        dist = folder / "dist"
        dist.mkdir()
        for tool in ("dpkg-shlibdeps", "dpkg-deb", "cpack", "objdump", "file"):
            if subprocess.run(["which", tool], stdout=subprocess.DEVNULL, check=False).returncode != 0:
                skip(f"{tool} is not installed (./dev install --deploy)")
        import build_wheel

        deb = build_deb(build, dist)
        for rest in dist.glob("_CPack_Packages"):
            subprocess.run(["rm", "-rf", rest], check=True)
        check_deb(deb, folder)
        wheel = build_wheel.build_wheel(build, dist)
        check_wheel(wheel, folder)
        check_release(build, dist, deb, wheel)
    print("ok")


if __name__ == "__main__":
    main()
