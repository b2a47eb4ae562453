"""A run that is started from Python: from a plan as a file, a text or a mapping, and from whatever is a model."""

import json
import pickle

import numpy as np
import pytest

import fluvial

MODEL = {"w": np.arange(5, dtype=np.float32), "seen": np.array([3], np.int64)}
ONCE = {"name": "once", "rounds": 1, "participants": {"quorum": 2}}


@pytest.fixture(scope="module")
def local():
    with fluvial.testing.LocalFederation(sites=2) as federation:
        yield federation


@pytest.fixture
def admin(local):
    """What a notebook has. No run of the test's stays active."""
    yield fluvial.admin(local.admin_socket)
    for run in local.admin.runs():
        if run["status"] in ("running", "paused"):
            local.admin.stop(run["id"])


def test_a_whole_day(local, admin, capsys):
    model = {"w": np.zeros(5, np.float32)}
    run = admin.start_run({"name": "day", "rounds": 3, "optimizer.name": "fedavg", "participants": {"quorum": 2}}, model)
    assert run == admin.number("day") and run.name == "day" and run.notes == []

    def worker(site, index):
        for round in site.rounds("day"):
            round.submit({"w": round.arrays()["w"] + 1}, samples=1, metrics={"loss": 4 - round.number})
        site.evaluate(lambda arrays: ({"first": float(arrays["w"][0])}, 1), run="day-evaluation")

    local.train(worker)
    admin.wait(run, timeout_s=120, progress=True)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["round 1", "round 2", "round 3"]
    best = admin.best("loss", "min", run)["round"]
    fluvial.load_arrays(model, admin.model(run, best))
    assert model["w"].tolist() == [3] * 5
    assert admin.evaluate(run, timeout_s=120)["metrics"] == {"first": 3.0}
    local.join()

    more = admin.start_run({**admin.run(run)["plan"], "name": "more", "rounds": 1000}, continues=run)
    assert admin.model(more, 0)["w"].tolist() == [3] * 5
    admin.stop(more, "enough for today")
    with pytest.raises(fluvial.RunFailed, match="stopped after 0 of 1000 rounds: by an administrator: enough for today"):
        admin.wait(more, timeout_s=60)


def test_a_plans_file_names_its_model_beside_it(admin, tmp_path, monkeypatch):
    folder = tmp_path / "lr=0.1"
    folder.mkdir()
    fluvial.save_model(str(folder / "initial.safetensors"), MODEL)
    (folder / "plan.toml").write_text('name = "file"\nmodel = "initial.safetensors"\n[deadlines]\nhard_ms = "10m"\n')
    monkeypatch.chdir(tmp_path)
    for plan in (folder / "plan.toml", "lr=0.1/plan.toml"):
        run = admin.start_run(plan)
        about = admin.run(run)
        assert about["name"] == "file" and about["plan"]["deadlines.hard_ms"] == 600_000
        assert admin.model(run)["seen"].tolist() == [3]
        admin.stop(run)


@pytest.mark.parametrize("kind", ["mapping", "safetensors", "npz", "some"])
def test_a_model_is_arrays_or_a_file(admin, tmp_path, kind):
    safetensors, npz = tmp_path / "model.safetensors", tmp_path / "model.npz"
    fluvial.save_model(str(safetensors), MODEL)
    np.savez(npz, **MODEL)
    model, only = {"mapping": (MODEL, None), "safetensors": (str(safetensors), None), "npz": (npz, None),
                   "some": (safetensors, ["w"])}[kind]
    run = admin.start_run('name = "once"', model, only=only)
    began = admin.model(run, 0)
    assert sorted(began) == (["w"] if only else ["seen", "w"])
    np.testing.assert_array_equal(began["w"], MODEL["w"])


def test_another_runs_plan_is_a_plan(admin):
    plan = {"name": "first", "seed": 2**64 - 1, "optimizer": {"name": "fedavg:lr=0.5"}, "worker": {"lr": {"start": 0.1, "decay": 0.5}}}
    first = admin.start_run(plan, MODEL)
    admin.stop(first)
    again = admin.start_run({**admin.run(first)["plan"], "name": "again", "optimizer.learning_rate": 0.25}, continues=first)
    kept, changed = admin.run(first)["plan"], admin.run(again)["plan"]
    assert changed["optimizer.name"] == "fedavg:lr=0.25"
    assert {key for key in kept if kept[key] != changed[key]} == {"name", "optimizer.name", "optimizer.learning_rate"}


def test_what_a_plan_says_wrongly_is_named(admin, tmp_path):
    (tmp_path / "wrong.toml").write_text('name = "a"\ncodecc = "int8"\n')
    with pytest.raises(fluvial.CoordinatorRefused, match="wrong.toml:2: unknown key 'codecc': did you mean 'codec'?"):
        admin.start_run(tmp_path / "wrong.toml", MODEL)
    with pytest.raises(fluvial.CoordinatorRefused, match="plan:2: rounds = 0: expected"):
        admin.start_run('name = "a"\nrounds = 0', MODEL)
    for plan, message in (
        ({"rounds": 3}, "plan: name is missing"),
        ({"name": "a", "codec": "int7"}, "plan: codec = 'int7': "),
        ({"name": "a", "optimizer": {"momentum": 0.9}}, "plan: optimizer.momentum = 0.9: expected none with optimizer fedavg"),
    ):
        with pytest.raises(fluvial.CoordinatorRefused, match=message):
            admin.start_run(plan, MODEL)
    with pytest.raises(FileNotFoundError):
        admin.start_run("nowhere.toml", MODEL)
    with pytest.raises(FileNotFoundError):
        admin.start_run({"name": "a", "model": tmp_path / "nowhere.safetensors"})
    with pytest.raises(ValueError, match="names no model"):
        admin.start_run(ONCE)
    with pytest.raises(fluvial.UnknownRun, match="'before'"):
        admin.start_run(ONCE, continues="before")
    with pytest.raises(fluvial.ModelMismatch, match="nothing here to train"):
        admin.start_run(ONCE, {"seen": MODEL["seen"]})
    assert all(run["status"] in ("done", "stopped") for run in admin.runs())


def test_one_run_at_a_time(admin):
    admin.start_run(ONCE, MODEL)
    for _ in range(3):  # more than there are places for models on their way in
        with pytest.raises(fluvial.CoordinatorRefused, match="409"):
            admin.start_run(ONCE, MODEL)


def test_what_is_noted_of_a_plan_is_a_warning(admin):
    plan = {"name": "notes", "codec": "dgc", "optimizer": {"name": "fedavgm"}}
    with pytest.warns(UserWarning, match="dgc") as told:
        run = admin.start_run(plan, MODEL)
    assert run.notes == [str(one.message) for one in told] and told[0].filename == __file__
    assert admin.check_plan(plan)["notes"] == run.notes


def test_a_plan_is_checked_without_a_run(admin):
    before = admin.runs()
    checked = admin.check_plan({**ONCE, "model": "models/initial.safetensors"})
    assert checked["model"] == "models/initial.safetensors"
    assert checked["plan"]["participants.quorum"] == 2 and checked["plan"]["codec"] == "fp32"
    assert "participants.min" not in checked["plan"], "it is settled by who is enrolled when a run starts"
    assert admin.runs() == before


def test_a_started_run_is_its_number():
    run = fluvial.coordinator.StartedRun(7, "digits", ["a note"])
    assert run == 7 and f"{run}" == str(run) == json.dumps(run) == "7" and repr(run) == "<run 7: digits>"
    again = pickle.loads(pickle.dumps(run))
    assert again == 7 and again.name == "digits" and again.notes == ["a note"]
