"""The examples of examples/pytorch run as they stand, for a few rounds."""

import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs PyTorch")
EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "pytorch"


@pytest.mark.parametrize(
    "script, rounds, said",
    [
        ("digits_cnn.py", 2, "2 rounds, accuracy"),
        ("characters.py", 1, "1 rounds, nats a letter"),
        ("digits_ddp.py", 3, "the four copies are the same, bit for bit"),
        ("adapters.py", 2, "6 tensors travelled, "),
    ],
)
def test_example(script, rounds, said):
    if not EXAMPLES.exists():
        pytest.skip("needs the sources")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-B", str(EXAMPLES / script), str(rounds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout
    if script != "digits_ddp.py":
        assert f"\nround {rounds}: " in "\n" + done.stdout, "it prints as it goes"
