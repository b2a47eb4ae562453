"""Manual pages out of `fluvial COMMAND --help`: one for the executable and one for each of its commands.

usage: man_pages.py EXECUTABLE FOLDER
"""

import gzip
import pathlib
import re
import shutil
import subprocess
import sys

SECTIONS = ("Positionals:", "Options:", "Subcommands:")


class Help:
    """What `--help` says of a command: description, usage, (name, text, line) for each entry of a section, and what stands below."""

    def __init__(self, executable, words):
        self.words = words
        text = subprocess.run([executable, *words, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout
        head, _, rest = text.partition("\nUsage: ")
        self.description = " ".join(head.split())
        self.usage, _, rest = rest.partition("\n")
        self.entries = {}
        footer, section = [], None
        for line in rest.splitlines():
            if line in SECTIONS:
                section = self.entries.setdefault(line[:-1], [])
            elif section is not None and line.startswith(" "):
                self._take_entry(section, line)
            elif line or footer:
                section = None
                footer.append(line)
        self.footer = "\n".join(footer).strip("\n")

    @staticmethod
    def _take_entry(section, line):
        """A name and, from column 34 on, its text; the text of a name that is too long stands on the next line."""
        name, text = line[:34].strip(), line[34:].strip()
        if name:
            fits = line[33:34] in ("", " ")
            section.append((name, text, line.strip()) if fits else (line.strip(), "", line.strip()))
        else:  # so what stood before was all name, blanks at column 34 or not
            section[-1] = (section[-1][2], text, section[-1][2])

    def commands(self):
        return [name for name, _, _ in self.entries.get("Subcommands", [])]


def plain(text):
    """Text as roff shows it unchanged."""
    text = text.replace("\\", r"\e").replace("-", r"\-")
    return "\n".join(rf"\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))


def body(told, root_footer):
    lines = []
    for section, title in (("Positionals", "ARGUMENTS"), ("Options", "OPTIONS"), ("Subcommands", "COMMANDS")):
        entries = told.entries.get(section, [])
        if not entries or (section == "Subcommands" and told.words):
            continue
        lines.append(f".SS {title}" if len(told.words) > 1 else f".SH {title}")
        for name, text, _ in entries:
            lines += [".TP", rf"\fB{plain(name)}\fR", plain(text)]
    if told.footer and told.footer != root_footer:
        lines += [".PP", ".nf", plain(told.footer), ".fi"]
    return lines


def page(executable, words, version, root_footer):
    told = Help(executable, words)
    name = "-".join(["fluvial", *words])
    lines = [f'.TH {name.upper()} 1 "" "fluvial {version}" "Fluvial"', ".SH NAME",
             rf"{plain(name)} \- {plain(told.description.split('. ')[0])}", ".SH SYNOPSIS", rf"\fB{plain(told.usage)}\fR",
             ".SH DESCRIPTION", plain(told.description)]
    lines += body(told, root_footer if words else None)
    for command in told.commands() if words else []:
        inner = Help(executable, [*words, command])
        lines += [f'.SH "{" ".join(["fluvial", *words, command])}"', plain(inner.description), ".PP",
                  rf"\fB{plain(inner.usage)}\fR"]
        lines += body(inner, root_footer)
    others = ["fluvial", *(f"fluvial-{command}" for command in Help(executable, []).commands())]
    lines += [".SH SEE ALSO", ",\n".join(rf"\fB{plain(other)}\fR(1)" for other in others if other != name)]
    return "\n".join(lines) + "\n"


def main():
    executable, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    version = subprocess.run([executable, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()[1]
    root = Help(executable, [])
    for words in [[], *([command] for command in root.commands())]:
        path = folder / ("-".join(["fluvial", *words]) + ".1.gz")
        path.write_bytes(gzip.compress(page(executable, words, version, root.footer).encode(), mtime=0))


if __name__ == "__main__":
    main()
