"""Which models of a run stay: the newest, the best by the plan's metric, and those with a label."""

import pathlib

import numpy as np
import pytest

import fluvial

LOSSES = [3, 1, 2, 1, 4, 5]


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


def add_one(site, index):
    for round in site.rounds():
        round.submit({"w": round.arrays()["w"] + 1}, samples=1, metrics={"loss": LOSSES[round.number - 1]})


def test_the_best_and_those_with_a_label_stay(small, tmp_path):
    plan = {"models_kept": 1, "models_kept_best": "loss:min"}
    gate = len(LOSSES)
    small.start_run("kept", {"w": np.zeros(4, np.float32)}, rounds=gate, plan=plan)
    small.admin.label("before", 0, "kept")
    small.train(add_one)
    small.wait("kept", timeout_s=60)
    small.admin.label("last", run="kept")
    small.admin.label("gone", run="kept")
    small.admin.unlabel("gone", "kept")  # removes what nothing keeps, also when the last round has not yet come to that
    assert small.admin.models("kept") == [
        {"round": 0, "labels": ["before"], "best": None},
        {"round": 2, "labels": [], "best": 1.0},
        {"round": gate, "labels": ["last"], "best": None},
    ]
    for which, value in (("before", 0), ("best", 2), ("last", gate), ("latest", gate), (2, 2)):
        assert small.admin.model("kept", which)["w"].tolist() == [value] * 4
    (tmp_path / "of-another").write_text("theirs")
    (tmp_path / "out.tmp").symlink_to(tmp_path / "of-another")
    out = pathlib.Path(small.admin.download(str(tmp_path / "out"), "kept"))
    assert out.stat().st_mode & 0o777 == 0o600 and not out.is_symlink()
    assert (tmp_path / "of-another").read_text() == "theirs"
    with pytest.raises(fluvial.CoordinatorRefused, match="no longer kept"):
        small.admin.model("kept", 3)
    with pytest.raises(fluvial.CoordinatorRefused, match="'never'"):
        small.admin.model("kept", "never")
    with pytest.raises(fluvial.CoordinatorRefused, match="round 0 already"):
        small.admin.label("before", "best", "kept")
    small.admin.unlabel("before", "kept")
    assert [model["round"] for model in small.admin.models("kept")] == [2, gate]


def test_the_commands(small):
    small.start_run("kept", {"w": np.zeros(4, np.float32)}, rounds=2)
    small.train(add_one)
    small.wait("kept", timeout_s=60)
    small._fluvial("model", "label", "latest", "1", "candidate")
    assert "candidate" in small._fluvial("model", "list")
    with pytest.raises(fluvial.FederationFailed, match="a label"):
        small._fluvial("model", "label", "latest", "1", "two words")
    small._fluvial("model", "unlabel", "latest", "candidate")
    assert "candidate" not in small._fluvial("model", "list")
    kinds = [line for line in small._fluvial("audit", "show").splitlines() if "model-" in line]
    assert len(kinds) == 2 and "candidate" in kinds[0]


def test_a_plan_names_its_metric(small):
    with pytest.raises(fluvial.FederationFailed, match="plan: models_kept_best = 'two words': expected a metric"):
        small.start_run("kept", {"w": np.zeros(4, np.float32)}, plan={"models_kept_best": "two words"})
