"""Writes the rules as a resource of the Prometheus operator, deploy/kubernetes/monitoring/rules.yaml: ./dev dashboards. With
--check: says whether it is there as it would be made."""

import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
MADE = FOLDER.parent / "kubernetes/monitoring/rules.yaml"
HEAD = """\
# Made of deploy/prometheus/rules by ./dev dashboards: change them there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: fluvial
spec:
  groups:
"""


def groups(path):
    _, _, body = path.read_text(encoding="utf-8").partition("groups:\n")
    return "".join(f"  {line}" if line.strip() else line for line in body.splitlines(keepends=True))


def main():
    text = HEAD + "".join(groups(FOLDER / f"rules/{name}.yml") for name in ("recording", "alerts"))
    if "--check" not in sys.argv[1:]:
        MADE.write_text(text, encoding="utf-8")
    elif MADE.read_text(encoding="utf-8") != text:
        sys.exit("deploy/kubernetes/monitoring/rules.yaml is not what deploy/prometheus/rules say; ./dev dashboards writes it")


if __name__ == "__main__":
    main()
