"""The documentation as a site: the pages as git has them, and a reference of the commands and of the Python package.

usage: make.py EXECUTABLE [--serve]

Every page keeps its place in the tree, so links between pages are the same here and on the site. MkDocs runs in strict mode: a link to a
page or a heading that is not there fails.
"""

import pathlib
import re
import shutil
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PAGES = SOURCE / "build" / "docs-pages"
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)(#[^)\s]*)?(\))")


def tracked():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "docs/images"], cwd=SOURCE, check=True,
                            capture_output=True, text=True).stdout.split()
    return [pathlib.Path(path) for path in listed if (SOURCE / path).exists()]


def to_site(page, text):
    """A link to a folder is one to its README; a file that is no page comes along."""
    def mend(match):
        before, target, anchor, after = match.groups()
        if "://" in target or target.startswith("mailto:"):
            return match.group(0)
        found = (SOURCE / page.parent / target).resolve()
        if found.is_dir():
            return f"{before}{target.rstrip('/')}/README.md{anchor or ''}{after}"
        if found.is_file() and found.suffix != ".md":
            copy(found.relative_to(SOURCE))
        return match.group(0)
    return LINK.sub(mend, text)


def copy(path):
    (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(SOURCE / path, PAGES / path)


def stage():
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in tracked():
        if path.suffix == ".md":
            (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
            (PAGES / path).write_text(to_site(path, (SOURCE / path).read_text()))
        else:
            copy(path)


def help_of(executable, words):
    return subprocess.run([executable, *words, "--help"], check=True, capture_output=True, text=True).stdout


def subcommands(text):
    part = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^  (\S+)", part.group(1), re.MULTILINE) if part else []


def commands(executable):
    """Each command under its own heading, as --help prints it."""
    def below(words):
        text = help_of(executable, words)
        name = " ".join(["fluvial", *words])
        yield f"{'##' if len(words) < 2 else '###'} {name}\n\n```text\n{text.strip()}\n```\n"
        for word in subcommands(text):
            yield from below([*words, word])
    return "# Commands\n\nAs `--help` prints them.\n\n" + "\n".join(below([]))


def python():
    """What a script imports: the names of fluvial.__all__, and the modules that are imported by name."""
    source = (SOURCE / "edge/python/fluvial/__init__.py").read_text()
    names = re.findall(r'^    "(\w+)",$', source[source.index("__all__"):], re.MULTILINE)
    modules = {path.stem for path in (SOURCE / "edge/python/fluvial").glob("*.py")}
    errors = re.findall(r"^class (\w+)", (SOURCE / "edge/python/fluvial/errors.py").read_text(), re.MULTILINE)
    first = ["connect", "Site", "Round"]
    wanted = first + [name for name in names if name not in {*modules, *errors, *first}]
    wanted += [name for name in ("testing", "torch", "fsdp", "errors") if name in modules]
    return "# Python\n\n`import fluvial`. The guide is [the package's page](../edge/python/README.md).\n\n" + "".join(
        f"::: fluvial.{name}\n\n" for name in wanted)


def main():
    executable = str(pathlib.Path(sys.argv[1]).resolve())
    stage()
    (PAGES / "reference").mkdir()
    (PAGES / "reference/commands.md").write_text(commands(executable))
    (PAGES / "reference/python.md").write_text(python())
    command = ["serve"] if "--serve" in sys.argv else ["build", "--strict"]  # --quiet would hide warnings from --strict, too
    done = subprocess.run([sys.executable, "-m", "mkdocs", *command, "-f", str(SOURCE / "docs/site/mkdocs.yml")], check=False)
    if done.returncode == 0:
        print("build/docs/index.html")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
