"""Stands before a link command: what is there as an archive is linked as one, so that what comes out needs few libraries
of its machine. Of the output it says beside it, in OUTPUT.json, what was linked.

usage: link_static.py COMPILER ARGUMENT...
"""

import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "release"))
import third_party  # noqa: E402


def archive_of(argument):
    """The archive of a shared library; none: there is none, or the argument is something else."""
    found = re.fullmatch(r"(/.*/lib[^/]+?)\.so(\.[0-9.]+)?", argument)
    archive = pathlib.Path(f"{found.group(1)}.a") if found else None
    return str(archive) if archive and archive.exists() else None


def main():
    command = [archive_of(argument) or argument for argument in sys.argv[1:]]
    output = pathlib.Path(command[command.index("-o") + 1])
    output.with_name(output.name + ".json").write_text(json.dumps({"libraries": third_party.library_inputs(command)}, indent=1))
    sys.stdout.flush()
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
