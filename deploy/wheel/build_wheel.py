"""A Python wheel of the package fluvial, with the executables: `./dev wheel`.

usage: build_wheel.py BUILD_FOLDER OUT_FOLDER     (BUILD_FOLDER/portable holds what link_static.py linked)

In an environment it becomes bin/fluvial and bin/fluvial-digits; lib/fluvial with what could not be linked into them;
share/fluvial with the example's data; and the package.
"""

import base64
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "deploy/release"))
import third_party  # noqa: E402

EXECUTABLES = ("fluvial", "fluvial-digits")

# The glibc of the first distribution that came with that version of libstdc++'s symbols: PEP 600 asks for both.
GLIBC_WITH_GLIBCXX = {"3.4.29": (2, 34), "3.4.30": (2, 35), "3.4.31": (2, 38), "3.4.32": (2, 39), "3.4.33": (2, 41)}


def numbers(text):
    return tuple(int(part) for part in text.split("."))


def symbol_versions(path, family):
    told = third_party.output_of("objdump", "-T", path)
    return {numbers(found) for found in re.findall(rf"\(?\b{family}_(\d+(?:\.\d+)+)\)?", told)}


def platform_tag(paths):
    """What the files need of a machine, read out of the versions of the symbols that they ask for."""
    floor = max(version for path in paths for version in symbol_versions(path, "GLIBC"))
    newest = max(version for path in paths for version in symbol_versions(path, "GLIBCXX"))
    for text, glibc in GLIBC_WITH_GLIBCXX.items():
        if newest >= numbers(text):
            floor = max(floor, glibc)
    if newest > numbers(list(GLIBC_WITH_GLIBCXX)[-1]):
        raise SystemExit(f"wheel: GLIBCXX_{'.'.join(map(str, newest))} is newer than the table in build_wheel.py")
    return f"manylinux_{floor[0]}_{floor[1]}_x86_64"


def stripped(path, folder):
    out = folder / path.name
    shutil.copy(path, out)
    subprocess.run(["strip", "--strip-unneeded", out], check=True)
    out.chmod(0o755)
    return out


def bundled_libraries(executables):
    found = {}
    for executable in executables:
        for name, path in third_party.shared_libraries(executable).items():
            if not third_party.OF_THE_MACHINE.fullmatch(name):
                found[name] = path
    return found


def third_parties(build):
    """The packages whose code is in the wheel."""
    static, shared = set(), set()
    for name in EXECUTABLES:
        linked = json.loads((build / f"portable/{name}.json").read_text())["libraries"]
        static |= {path for path in linked if path.endswith(".a")}
        shared |= set(bundled_libraries([build / "portable" / name]).values())
    headers = third_party.compiled_headers(build, [f"portable/{name}" for name in EXECUTABLES])
    return (third_party.packages_of(static | set(headers), "STATIC_LINK") |
            third_party.packages_of(shared, "DYNAMIC_LINK"))


def metadata(project, version):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}",
             f"Summary: {project['description']}", f"License: {project['license']['text']}",
             f"Requires-Python: {project['requires-python']}", "Description-Content-Type: text/markdown"]
    lines += [f"Requires-Dist: {one}" for one in project["dependencies"]]
    for extra, needs in project.get("optional-dependencies", {}).items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {one}; extra == "{extra}"' for one in needs)]
    return "\n".join(lines) + "\n\n" + (SOURCE / "edge/python/README.md").read_text()


class Wheel:
    """A zip file whose entries are the same bytes whenever it is made of the same files."""

    def __init__(self, path, info):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self.info = info
        self.record = []

    def add(self, name, content, mode=0o644):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        content = content.encode() if isinstance(content, str) else content
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}")

    def close(self):
        name = f"{self.info}/RECORD"
        self.add(name, "\n".join([*self.record, f"{name},,"]) + "\n")
        self.zip.close()


def build_wheel(build, out):
    version = (SOURCE / "VERSION").read_text().split()[0]
    project = tomllib.loads((SOURCE / "edge/python/pyproject.toml").read_text())["project"]
    packages = third_parties(build)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        executables = [stripped(build / "portable" / name, folder) for name in EXECUTABLES]
        libraries = {name: stripped(pathlib.Path(path).resolve(), folder)
                     for name, path in bundled_libraries([build / "portable" / name for name in EXECUTABLES]).items()}
        tag = f"py3-none-{platform_tag([*executables, *libraries.values()])}"
        info, data = f"fluvial-{version}.dist-info", f"fluvial-{version}.data"
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("fluvial-*.whl"):
            old.unlink()
        path = out / f"fluvial-{version}-{tag}.whl"
        wheel = Wheel(path, info)
        for module in sorted((SOURCE / "edge/python/fluvial").iterdir()):
            if module.suffix == ".py" or module.name == "py.typed":
                wheel.add(f"fluvial/{module.name}", module.read_bytes())
        for executable in executables:
            wheel.add(f"{data}/scripts/{executable.name}", executable.read_bytes(), 0o755)
        for name, library in sorted(libraries.items()):
            wheel.add(f"{data}/data/lib/fluvial/{name}", library.read_bytes(), 0o755)
        wheel.add(f"{data}/data/share/fluvial/digits.csv.gz", (SOURCE / "examples/digits/digits.csv.gz").read_bytes())
        wheel.add(f"{info}/METADATA", metadata(project, version))
        wheel.add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: fluvial\nRoot-Is-Purelib: false\nTag: {tag}\n")
        wheel.add(f"{info}/licenses/LICENSE", (SOURCE / "LICENSE").read_bytes())
        wheel.add(f"{info}/licenses/THIRD-PARTY-NOTICES.txt", third_party.notices(packages))
        wheel.close()
    return path


if __name__ == "__main__":
    print(build_wheel(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])))
