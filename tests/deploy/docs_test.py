"""The documentation's site is made, strictly: no link to a page or a heading that is not there. And a link that leads nowhere is seen.

usage: docs_test.py BIN_FOLDER
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from containers import SOURCE, skip

PYTHON = SOURCE / "build/tools/bin/python"
MAKE = SOURCE / "docs/site/make.py"


def run(*command):
    return subprocess.run([PYTHON, "-B", *command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


def main():
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", "import material, mkdocstrings_handlers.python"], check=False,
                                             capture_output=True).returncode != 0:
        skip("MkDocs is not installed: ./dev install --deploy brings it")
    executable = pathlib.Path(sys.argv[1]) / "fluvial"
    made = run(MAKE, executable)
    assert made.returncode == 0, made.stdout
    commands = (SOURCE / "build/docs/reference/commands/index.html").read_text()
    assert "fluvial token create" in commands and "--weight-max" in commands, "the commands' reference is generated"
    python = (SOURCE / "build/docs/reference/python/index.html").read_text()
    assert "load_into" in python and "blocks" in python, "the package's reference is generated"
    assert "tutorial" in (SOURCE / "build/docs/search/search_index.json").read_text()
    (SOURCE / "build/docs-pages/bad-link.md").write_text("# A page\n\n[nowhere](nowhere.md)\n")  # staged, as make.py does it
    with tempfile.TemporaryDirectory(prefix="fluvial-docs-") as folder:
        broken = run("-m", "mkdocs", "build", "--strict", "-f", SOURCE / "docs/site/mkdocs.yml", "-d", folder)
    assert broken.returncode != 0 and "nowhere.md" in broken.stdout, broken.stdout
    print("ok")


if __name__ == "__main__":
    main()
