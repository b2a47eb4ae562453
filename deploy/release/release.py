"""Says of each file of a release what is in it: an SPDX document beside each, the notices, and the checksums of all.

usage: release.py BUILD_FOLDER DIST_FOLDER     (DIST_FOLDER holds the .deb, the wheel, the image's archive: what there is)
"""

import json
import pathlib
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "deploy/wheel")]
import build_wheel  # noqa: E402
import third_party  # noqa: E402


def of_deb(build):
    """Headers are compiled in; the libraries are the distribution's, named by the package's dependencies."""
    libraries = set()
    for name in build_wheel.EXECUTABLES:
        libraries |= set(third_party.shared_libraries(build / "bin" / name).values())
    headers = third_party.compiled_headers(build, [f"bin/{name}" for name in build_wheel.EXECUTABLES])
    return third_party.packages_of(headers, "STATIC_LINK") | third_party.packages_of(libraries, "DYNAMIC_LINK")


def of_image(build):
    """As the .deb, with the libraries inside."""
    return {third_party.Package(one.name, one.version, one.source,
                                "CONTAINS" if one.how == "DYNAMIC_LINK" else one.how) for one in of_deb(build)}


def main():
    build, dist = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    version = (SOURCE / "VERSION").read_text().split()[0]
    if f"## {version}" not in (SOURCE / "CHANGELOG.md").read_text():
        raise SystemExit(f"release: CHANGELOG.md says nothing of {version}")
    kinds = {"*.deb": of_deb, "*.whl": build_wheel.third_parties, "*image*.tar*": of_image}
    everything = set()
    for pattern, packages_of in kinds.items():
        for artifact in sorted(dist.glob(pattern)):
            packages = packages_of(build)
            everything |= packages
            document = third_party.spdx(artifact, version, packages)
            artifact.with_name(artifact.name + ".spdx.json").write_text(json.dumps(document, indent=1) + "\n")
    if not everything:
        raise SystemExit(f"release: {dist} holds no .deb, no wheel and no image")
    (dist / "THIRD-PARTY-NOTICES.txt").write_text(third_party.notices(everything))
    files = sorted(path for path in dist.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    (dist / "SHA256SUMS").write_text("".join(f"{third_party.sha256(path)}  {path.name}\n" for path in files))
    print("\n".join(path.name for path in [*files, dist / "SHA256SUMS"]))


if __name__ == "__main__":
    main()
