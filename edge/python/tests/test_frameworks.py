"""What continuous integration relies on: that no test of a framework is left out unseen."""

import os
import subprocess
import sys

SKIPPED = 'import pytest\n\npytest.importorskip("no_such_framework", reason="needs PyTorch")\n\n\ndef test_it():\n    pass\n'


def run(folder, name, **environment):
    here = os.path.dirname(os.path.abspath(__file__))
    (folder / "conftest.py").write_text(open(os.path.join(here, "conftest.py"), encoding="utf-8").read())
    (folder / name).write_text(SKIPPED)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **environment}
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_skipped_framework_fails_where_frameworks_are_required(tmp_path):
    done = run(tmp_path, "test_some.py", FLUVIAL_FRAMEWORKS="required")
    assert done.returncode == 1 and "test_some.py: Skipped: needs PyTorch" in done.stdout, done.stdout


def test_what_is_on_the_list_may_be_skipped(tmp_path):
    assert run(tmp_path, "test_fsdp.py", FLUVIAL_FRAMEWORKS="required").returncode == 5


def test_elsewhere_it_may_be_skipped(tmp_path):
    assert run(tmp_path, "test_some.py", FLUVIAL_FRAMEWORKS="").returncode == 5
