#!/usr/bin/env python3
"""make.py FOLDER: copies of the sources that have mutants, in which each place is a choice at run time, and table.cc.
make.py --files: their names. A place that is gone, or there twice, is an error."""

import pathlib
import re
import sys

import mutants
from mutants import Mutant

ROOT = mutants.HERE.parent.parent


def find(mutant: Mutant, text: str, begin: int, end: int, what: str) -> tuple[int, int]:
    """The one occurrence of `what`, however it is wrapped."""
    pattern = re.compile(r"\s+".join(re.escape(word) for word in what.split()))
    found = [match.span() for match in pattern.finditer(text, begin, end)]
    if len(found) != 1:
        raise mutant.problem(f"expected once in {mutant.file}, found {len(found)} times: {' '.join(what.split())}\n"
                             "Who changed that line mends the mutant, or gives it another place (CONTRIBUTING.md).")
    return found[0]


def place_of(mutant: Mutant, text: str) -> tuple[int, int]:
    begin, end = find(mutant, text, 0, len(text), mutant.within) if mutant.within else (0, len(text))
    return find(mutant, text, begin, end, mutant.place)


def choice(those: list[Mutant], original: str) -> str:
    """Line breaks stay where they were, so #line at the top is right throughout."""
    chosen = ""
    for mutant in those:
        slip = " ".join(mutant.slip.split("\n"))
        condition = f"::fluvial::mutants::is_on({mutant.number}u)"
        chosen += f"if ({condition}) {{ {slip} }} else " if mutant.is_statement else f"{condition} ? ({slip}) : "
    return f"{{ {chosen}{{ {original} }} }}" if those[0].is_statement else f"({chosen}({original}))"


def render(text: str, begin: int, end: int, places: list[tuple[int, int, list[Mutant]]]) -> str:
    """`places` are those between begin and end, the outer before the inner."""
    parts, at = [], begin
    while places:
        first, last, those = places[0]
        inner = [place for place in places[1:] if place[0] < last]
        for place in inner:
            if place[1] > last:
                raise place[2][0].problem(f"overlaps with '{those[0].name}'")
        parts += [text[at:first], choice(those, render(text, first, last, inner))]
        at, places = last, places[1 + len(inner):]
    return "".join(parts) + text[at:end]


def mutate(text: str, file: str, those: list[Mutant]) -> str:
    at: dict[tuple[int, int], list[Mutant]] = {}
    for mutant in those:
        at.setdefault(place_of(mutant, text), []).append(mutant)
    places = sorted(((*span, there) for span, there in at.items()), key=lambda place: (place[0], -place[1]))
    return f'#include "tests/mutants/selected.h"\n#line 1 "{file}"\n' + render(text, 0, len(text), places)


def table(those: list[Mutant]) -> str:
    rows = "".join(f'    {{{mutant.number}u, "{mutant.name}", "{mutant.room}"}},\n' for mutant in those)
    return ('#include "tests/mutants/selected.h"\n\nnamespace fluvial::mutants {\n\nstd::uint32_t selected = 0;\n\n'
            f"const std::vector<Mutant>& all() {{\n  static const std::vector<Mutant> known = {{\n{rows}  }};\n"
            "  return known;\n}\n\n}  // namespace fluvial::mutants\n")


def write(path: pathlib.Path, text: str) -> None:
    if path.exists() and path.read_text() == text:
        return  # nothing to compile again
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def main(arguments: list[str]) -> int:
    try:
        known = mutants.load()
        files = sorted({mutant.file for mutant in known})
        if arguments == ["--files"]:
            print(";".join(files), end="")
            return 0
        folder = pathlib.Path(arguments[0])
        for file in files:
            if not (ROOT / file).is_file():
                raise next(m for m in known if m.file == file).problem(f"there is no {file}")
            text = (ROOT / file).read_text()
            write(folder / file, mutate(text, file, [mutant for mutant in known if mutant.file == file]))
        write(folder / "table.cc", table(known))
    except mutants.CatalogueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
