"""What is built to be shipped is hardened (cmake/FluvialHardening.cmake), by readelf on what came out. A small program that is
built with none of it shows that each look can fail.

usage: hardening_test.py COMPILER EXECUTABLE...
"""

import pathlib
import re
import subprocess
import sys
import tempfile

NOT_HARDENED = [
    "-O2", "-U_FORTIFY_SOURCE", "-fno-stack-protector", "-fno-pie", "-no-pie", "-Wl,-z,norelro,-z,lazy,-z,execstack"]
LANDING = {"X86-64": b"\xf3\x0f\x1e\xfa", "AArch64": b"\x5f\x24\x03\xd5"}  # endbr64; bti c
LANDINGS_MIN = 100  # what the C library's own start brings is fewer than ten
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


def code(path):
    """The bytes of .text, and for which processor they are."""
    section = re.search(r"\.text +PROGBITS +\w+ (\w+) (\w+)", readelf(path, "-S"))
    offset, size = (int(number, 16) for number in section.groups())
    processor = "AArch64" if "AArch64" in readelf(path, "-h") else "X86-64"
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read(size), processor


def compiling(path):
    """What is missing of what the compiler does."""
    symbols = readelf(path, "--dyn-syms")
    text, processor = code(path)
    missing = {
        "a guarded stack": "__stack_chk_fail" in symbols,
        "copies that are checked (FORTIFY)": re.search(r"\b__mem(cpy|move|set)_chk\b", symbols),
        "places to land for indirect jumps": text.count(LANDING[processor]) >= LANDINGS_MIN,
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
        seen = compiling(plain)
        assert len(seen) == 3, f"a program with nothing of it is only found to lack {seen}"
    for executable in map(pathlib.Path, executables):
        missing = linking(executable) + compiling(executable)
        assert not missing, f"{executable} lacks: {'; '.join(missing)}"


if __name__ == "__main__":
    main()
