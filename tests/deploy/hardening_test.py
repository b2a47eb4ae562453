"""What is built to be shipped is hardened (cmake/FluvialHardening.cmake), by readelf on what came out. A small program that is
built with none of it shows that each look can fail.

usage: hardening_test.py COMPILER EXECUTABLE...
"""

import pathlib
import re
import subprocess
import sys
import tempfile

NOT_HARDENED = ["-O2", "-fno-pie", "-no-pie", "-Wl,-z,norelro,-z,lazy,-z,execstack"]
PROGRAM = """\
#include <string.h>
int main(int count, char** words) {
  char text[8];
  strcpy(text, words[0]);
  return text[count];
}
"""


def readelf(path, *options):
    return subprocess.run(["readelf", "-W", *options, str(path)], stdout=subprocess.PIPE, check=True, text=True).stdout


def linking(path):
    """What is missing of what the linker does."""
    header, segments, dynamic = readelf(path, "-h"), readelf(path, "-l"), readelf(path, "-d")
    stack = re.search(r"GNU_STACK( +0x\w+){5} (\S+)", segments)
    missing = {
        "loaded anywhere (PIE)": "DYN" in header and re.search(r"FLAGS_1.*\bPIE\b", dynamic),
        "read-only relocations (RELRO)": "GNU_RELRO" in segments,
        "relocations resolved at the start (BIND_NOW)": re.search(r"FLAGS_1.*\bNOW\b", dynamic),
        "a stack without code": stack and "E" not in stack.group(2),
        "code without relocations": "TEXTREL" not in dynamic,
    }
    return [what for what, there in missing.items() if not there]


def main():
    compiler, *executables = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        source, plain = pathlib.Path(folder, "plain.c"), pathlib.Path(folder, "plain")
        source.write_text(PROGRAM)
        subprocess.run([compiler, "-x", "c", source, "-o", plain, *NOT_HARDENED], check=True)
        seen = linking(plain)
        assert len(seen) >= 4, f"a program with nothing of it is only found to lack {seen}"
    for executable in map(pathlib.Path, executables):
        missing = linking(executable)
        assert not missing, f"{executable} lacks: {'; '.join(missing)}"


if __name__ == "__main__":
    main()
