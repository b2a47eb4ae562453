"""The catalogue: catalogue/*.toml, one file a room, one table a mutant."""

import dataclasses
import pathlib
import re
import tomllib
import zlib

HERE = pathlib.Path(__file__).resolve().parent
KEYS = {"breaks", "file", "place", "slip", "within"}


class CatalogueError(Exception):
    pass


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    breaks: str  # the promise that it breaks, in words
    file: str  # from the root of the repository
    place: str  # what stands there; white space counts as one blank
    slip: str  # what a tired author could have written instead
    within: str  # where the place alone does not occur once: a longer text around it that does
    source: str  # the catalogue's file, for messages

    @property
    def number(self) -> int:
        return zlib.crc32(self.name.encode())  # stays when others come and go, so little is compiled again

    @property
    def room(self) -> str:
        return self.file.rsplit("/", 1)[0]

    @property
    def is_statement(self) -> bool:
        last = self.place.rstrip()[-1]
        return last == ";" or (last == "}" and ";" in self.place)  # T{a, b} is an expression

    def problem(self, what: str) -> CatalogueError:
        return CatalogueError(f"{self.source}: mutant '{self.name}': {what}")


def parse(text: str, source: str) -> list[Mutant]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CatalogueError(f"{source}: {error}") from error
    mutants = []
    for name, table in tables.items():
        keys = set(table) if isinstance(table, dict) else set()
        if not re.fullmatch(r"[a-z0-9-]+", name) or not keys <= KEYS or not KEYS - {"within"} <= keys:
            raise CatalogueError(f"{source}: '{name}': a name of a-z, 0-9 and -, with {', '.join(sorted(KEYS))}")
        mutant = Mutant(name=name, within=table.get("within", ""), source=source,
                        **{key: table[key] for key in KEYS - {"within"}})
        if not mutant.file.endswith(".cc"):  # of a header the tests would include the original
            raise mutant.problem(f"{mutant.file}: a place is in a .cc file")
        if not mutant.place.strip():
            raise mutant.problem("no place")
        if mutant.place.split() == mutant.slip.split():
            raise mutant.problem("the slip is what stands there")
        mutants.append(mutant)
    return mutants


def load(folder: pathlib.Path = HERE / "catalogue") -> list[Mutant]:
    mutants = []
    for path in sorted(folder.glob("*.toml")):
        mutants += parse(path.read_text(), f"tests/mutants/catalogue/{path.name}")
    for what in ("name", "number"):
        seen = set()
        for mutant in mutants:
            if getattr(mutant, what) in seen:
                raise mutant.problem(f"another mutant has its {what}")
            seen.add(getattr(mutant, what))
    return mutants
