"""What of others is in an executable of ours: from the link, from the compiler's own record of headers, and from the
distribution's packages that these files belong to. Notices and SPDX documents are made of it."""

import dataclasses
import functools
import hashlib
import os
import pathlib
import re
import subprocess
import time

# Libraries that every machine has (PEP 600), and so no wheel brings.
OF_THE_MACHINE = re.compile(r"(ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libresolv|libstdc\+\+|libgcc_s)\.so\.\d+")


NO_NOTICE = {
    "cuda-toolkit": "Parts of the NVIDIA CUDA toolkit, which its End User License Agreement names as redistributable:\n"
                    "the runtime (cudart_static), and headers of CCCL (Apache License 2.0 with LLVM exceptions).\n",
}


@dataclasses.dataclass(frozen=True, order=True)
class Package:
    name: str
    version: str
    source: str  # whose copyright file holds for it, too
    how: str = ""  # STATIC_LINK, DYNAMIC_LINK, CONTAINS


def output_of(*command):
    return subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def shared_libraries(executable):
    """The libraries that an executable loads: {name: path}."""
    found = re.findall(r"^\s*(\S+) => (/\S+) \(|^\s*(/\S+) \(", output_of("ldd", executable), re.MULTILINE)
    return {name or pathlib.Path(loader).name: path or loader for name, path, loader in found}


def compiled_headers(build, targets):
    """Third-party headers that the objects of these targets were compiled with."""
    objects = [path for path in output_of("ninja", "-C", build, "-t", "inputs", *targets).splitlines()
               if path.endswith(".o")]
    told = output_of("ninja", "-C", build, "-t", "deps", *objects)
    return sorted(set(map(os.path.realpath, set(re.findall(r"^\s+(/usr/\S+)", told, re.MULTILINE)))))


def library_inputs(command):
    """The libraries that a link command names, by path or as -lNAME behind the folders of -L."""
    found = {argument for argument in command if re.fullmatch(r"/.*\.(a|so)(\.[0-9.]+)?", argument)}
    folders = [argument[2:] for argument in command if argument.startswith("-L")]
    for name in (argument[2:] for argument in command if argument.startswith("-l")):
        paths = [f"{folder}/lib{name}.{kind}" for folder in folders for kind in ("so", "a")]
        found |= set([path for path in paths if os.path.exists(path)][:1])
    return sorted(os.path.realpath(path) for path in found)


def _spellings(path):
    """As dpkg may know it: /lib is a link to /usr/lib."""
    path = os.path.realpath(path)
    return [path, path.removeprefix("/usr")] if path.startswith("/usr/lib") else [path]


def owners(paths):
    """The packages that the files belong to, and the files that belong to none."""
    asked = {spelling: path for path in paths for spelling in _spellings(path)}
    if not asked:
        return set(), []
    told = subprocess.run(["dpkg-query", "-S", *asked], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout
    names, known = set(), set()
    for line in told.splitlines():
        packages, _, path = line.rpartition(": ")
        if path in asked:
            names |= {name.split(":")[0] for name in packages.split(", ")}
            known.add(asked[path])
    return names, sorted(set(paths) - known)


@functools.lru_cache(maxsize=None)
def package(name, how):
    version, source = output_of("dpkg-query", "-W", "-f", "${Version}\t${source:Package}\n", name).splitlines()[0].split(
        "\t")
    return Package(name, version, source, how)


def _stranger(path, how):
    """What no package of the distribution brought: the CUDA toolkit, as a rule."""
    toolkit = re.match(r"/usr/local/cuda-([0-9.]+)/", path)
    return Package("cuda-toolkit", toolkit.group(1), "", how) if toolkit else Package(pathlib.Path(path).name, "", "", how)


def packages_of(paths, how):
    names, strangers = owners(paths)
    return {package(name, how) for name in names} | {_stranger(path, how) for path in strangers}


def by_source(packages):
    """One package a source: a -dev package's headers and its library are one work."""
    chosen = {}
    for one in sorted(packages):
        chosen.setdefault(one.source or one.name, one)
    return sorted(chosen.values())


def notices(packages):
    """The distribution's copyright files of these packages, one after the other."""
    text = ["Fluvial contains, or is linked with, the following works of others, as Debian packages them.\n"]
    for one in by_source(packages):
        path = pathlib.Path(f"/usr/share/doc/{one.name}/copyright")
        said = path.read_text(errors="replace") if path.exists() else NO_NOTICE.get(one.name, "(no copyright file)\n")
        text.append(f"{'=' * 100}\n{one.name} {one.version} (source: {one.source or 'unknown'})\n{'=' * 100}\n{said}")
    return "\n".join(text)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def spdx(artifact, version, packages):
    """An SPDX 2.3 document, as a value for json.dump, of the file `artifact`."""
    artifact = pathlib.Path(artifact)
    checksum = sha256(artifact)
    made = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    unknown = {"downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
               "copyrightText": "NOASSERTION"}
    ours = dict(unknown, SPDXID="SPDXRef-fluvial", name="fluvial", versionInfo=version, licenseDeclared="Apache-2.0",
                packageFileName=artifact.name, supplier="NOASSERTION", primaryPackagePurpose="APPLICATION",
                checksums=[{"algorithm": "SHA256", "checksumValue": checksum}])
    listed = [ours]
    relationships = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                      "relatedSpdxElement": "SPDXRef-fluvial"}]
    for one in sorted(packages):
        identifier = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{one.how}-{one.name}")
        entry = dict(unknown, SPDXID=identifier, name=one.name, licenseDeclared="NOASSERTION", supplier="NOASSERTION")
        if one.version and not one.source:
            entry.update(versionInfo=one.version)
        elif one.version:
            purl = f"pkg:deb/debian/{one.name.replace('+', '%2B')}@{one.version.replace('+', '%2B')}?arch=amd64"
            entry.update(versionInfo=one.version, supplier="Organization: Debian", sourceInfo=f"source: {one.source}",
                         externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                        "referenceLocator": purl}])
        listed.append(entry)
        relationships.append({"spdxElementId": "SPDXRef-fluvial", "relationshipType": one.how,
                              "relatedSpdxElement": identifier})
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": artifact.name,
            "documentNamespace": f"urn:fluvial:spdx:{artifact.name}:{checksum}",
            "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", made), "creators": ["Tool: fluvial-release"]},
            "packages": listed, "relationships": relationships}
