"""docs/tutorial.md, typed as it stands and in its order: its files are written, its commands typed.

usage: tutorial_test.py BIN_FOLDER
"""

import json
import re
import subprocess
import sys
import tempfile

from containers import SOURCE, skip
from walk import Machine, enter

PAGE = "docs/tutorial.md"
STAYS = re.compile(r"fluvial (coordinator|edge)\b|.*\bpython train\.py$")


def blocks():
    """(language, text) of each fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (SOURCE / PAGE).read_text(), re.MULTILINE | re.DOTALL)


def ready(command):
    """What says that a command which stays is there."""
    folder = re.search(r"--data-dir (\S+)", command)
    return f"fluvial health --data-dir {folder.group(1)}" if folder else None


def follow(machine):
    said = {}
    for language, text in blocks():
        if language in ("python", "toml"):
            name = re.match(r"# (\w+\.\w+)\n", text)
            assert name, f"a file of the tutorial begins with its name: {text[:60]!r}"
            (machine.home / name.group(1)).write_text(text)
            continue
        assert language == "sh", f"a block of the tutorial is python, toml or sh: {text[:60]!r}"
        for command in text.splitlines():
            if STAYS.match(command):
                machine.start(command, ready(command))
            else:
                said[command] = machine.type(command)
    return said


def accuracy(text):
    return float(re.search(r"accuracy .*: ([0-9.]+)", text).group(1))


def main():
    enter()
    if subprocess.run(["/usr/bin/python3", "-c", "import torch, numpy, google.protobuf"], check=False,
                      capture_output=True).returncode != 0:
        skip("the tutorial trains with PyTorch, and /usr/bin/python3 has none")
    with tempfile.TemporaryDirectory(prefix="fluvial-tutorial-") as folder:
        machine = Machine(folder, sys.argv[1])
        said = follow(machine)
        shown = json.loads(machine.type("fluvial rounds show latest --json"))
        assert shown["round"] == 20 and len(shown["contributors"]) == 3, shown
        assert accuracy(said["python alone.py"]) > 0.6, said["python alone.py"]
        assert accuracy(said["python rehearsal.py"]) > 0.6, said["python rehearsal.py"]
        assert accuracy(said["python look.py"]) > 0.6, said["python look.py"]
        assert "north" in said["fluvial nodes list"] and "west" in said["fluvial rounds show latest"], said
        machine.fresh()
    print("ok")


if __name__ == "__main__":
    main()
