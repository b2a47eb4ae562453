"""FLUVIAL_FRAMEWORKS=required: a test that is skipped for want of PyTorch or JAX fails, unless it stands in MAY_BE_SKIPPED."""

import os

import pytest

import fluvial

REQUIRED = os.environ.get("FLUVIAL_FRAMEWORKS") == "required"
MAY_BE_SKIPPED = {
    "test_fsdp.py": "FSDP2 needs PyTorch 2.5, whose wheel brings CUDA (./dev test --pythons --torch)",
    "test_cuda.py": "a real GPU",
}
_unwanted = []


def _look_at(report):
    name = os.path.basename(report.nodeid.partition("::")[0])
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    if report.skipped and ("PyTorch" in reason or "JAX" in reason) and name not in MAY_BE_SKIPPED:
        _unwanted.append(f"{report.nodeid}: {reason}")


def pytest_collectreport(report):
    _look_at(report)


def pytest_runtest_logreport(report):
    _look_at(report)


def pytest_sessionfinish(session):
    if REQUIRED and _unwanted:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    if REQUIRED and _unwanted:
        terminalreporter.section("skipped, and FLUVIAL_FRAMEWORKS=required")
        for line in _unwanted:
            terminalreporter.line(line)


@pytest.fixture
def federation():
    with fluvial.testing.LocalFederation(sites=4, aggregators=2) as local:
        yield local
