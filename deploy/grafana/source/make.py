"""Writes the dashboards into deploy/grafana: ./dev dashboards. With --check: says whether they are there as they would be made.

It needs requirements.txt, which `./dev install --deploy` installs into build/tools.
"""

import json
import pathlib
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder

import aggregators
import one_round
import one_run
import one_site
import overview
import security

FOLDER = pathlib.Path(__file__).resolve().parents[1]
BOARDS = {"overview": overview, "run": one_run, "round": one_round, "site": one_site, "aggregators": aggregators,
          "security": security}


def main():
    check, stale = "--check" in sys.argv[1:], []
    for name, module in BOARDS.items():
        path = FOLDER / f"{name}.json"
        text = json.dumps(module.dashboard(), cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"not as deploy/grafana/source makes them: {', '.join(stale)}; ./dev dashboards writes them")


if __name__ == "__main__":
    main()
