"""Early stopping, the best model, and the hooks, with libraries that stand in for the real ones."""

import sys
import threading
import types
import warnings

import numpy as np
import pytest

import fluvial
from fluvial import callbacks


class Federation:
    """Stands in for an Admin: plays events, notes what is asked of it."""

    def __init__(self, events):
        self.events, self.stopped, self.downloaded = events, [], []

    def watch(self, run, first):
        for event in self.events:
            if self.stopped:
                break
            yield event
        yield {"event": "state", "run": run, "status": "stopped" if self.stopped else "done", "reason": ""}

    def stop(self, run, reason):
        self.stopped.append((run, reason))

    def download(self, path, run, round):
        self.downloaded.append((path, run, round))


def committed(number, loss, **evaluation):
    return {"event": "committed", "run": 1, "round": number, "metrics": {"loss": loss}, "evaluation": evaluation,
            "contributors": [{"name": "hospital-a", "weight": 3, "metrics": {"loss": loss}}], "seconds": 0.5}


def evaluated(number, **evaluation):
    return {"event": "evaluated", "run": 1, "round": number, "evaluation": evaluation}


def test_early_stopping_stops_the_run_and_says_why():
    opened = {"event": "opened", "run": 1, "round": 1}
    federation = Federation([opened] + [committed(n, max(1.0, 3.0 - n)) for n in range(1, 20)])
    stopping = callbacks.EarlyStopping("loss", patience=3)
    callbacks.follow(federation, 1, [stopping])
    assert federation.stopped == [(1, "loss has not improved on 1 for 3 rounds (early stopping)")]
    assert stopping.stopped and stopping.best == 1.0


def test_early_stopping_counts_rounds_not_messages():
    events = [event for n in range(1, 5) for event in (committed(n, 1.0), evaluated(n, accuracy=n / 10))]
    federation = Federation(events)
    callbacks.follow(federation, 1, [callbacks.EarlyStopping("accuracy", "max", patience=1)])
    assert federation.stopped == []
    callbacks.follow(federation, 1, [callbacks.EarlyStopping("loss", patience=4)])
    assert federation.stopped == [], "three rounds without improvement"


def test_early_stopping_in_a_workers_own_loop():
    stopping = callbacks.EarlyStopping(patience=2, min_delta=0.1)
    assert [stopping.update(value) for value in (1.0, 0.95, 0.85, float("nan"), 0.8)] == [False, False, False, False, True]
    with pytest.raises(ValueError, match="patience is 0"):
        callbacks.EarlyStopping(patience=0)
    with pytest.raises(ValueError, match="mode is 'best'"):
        callbacks.EarlyStopping(mode="best")


@pytest.mark.parametrize("make", [lambda: callbacks.EarlyStopping("val_loss", patience=5), lambda: callbacks.BestModel("b", "val_loss")])
def test_a_metric_that_no_round_has_is_said(make):
    callback = make()
    said = "had 'val_loss'; there are: auc, loss"
    with pytest.warns(RuntimeWarning) as told:
        callbacks.follow(Federation([event for n in range(1, 20) for event in (committed(n, 1.0), evaluated(n, auc=1.0))]), 1, [callback])
    name = type(callback).__name__
    assert [str(one.message) for one in told] == [f"{name}: none of 5 rounds so far {said}", f"{name}: no round {said}"]


def test_a_metric_that_is_no_number_any_more_is_said_once():
    lost = [{**committed(n, 1.0), "metrics": {"auc": 0.5}} for n in range(3, 20)]
    with pytest.warns(RuntimeWarning) as told:
        callbacks.follow(Federation([committed(1, 3.0), committed(2, 2.0), *lost]), 1, [callbacks.EarlyStopping("loss", patience=4)])
    said = "EarlyStopping: none of 4 rounds since it was there last had 'loss'; there are: auc (NaN counts as none)"
    assert [str(one.message) for one in told] == [said]


def test_a_short_run_is_told_at_its_end():
    nothing = {"event": "committed", "run": 1, "round": 1, "metrics": {}, "evaluation": {}}
    with pytest.warns(RuntimeWarning, match="no round had 'loss'; there are: none"):
        callbacks.follow(Federation([nothing]), 1, [callbacks.EarlyStopping("loss")])


def test_a_metric_that_comes_with_the_evaluation_is_no_missing_one():
    events = [event for n in range(1, 10) for event in (committed(n, 1.0), evaluated(n, auc=n / 10))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        callbacks.follow(Federation(events), 1, [callbacks.EarlyStopping("auc", "max", patience=1), callbacks.BestModel("b", "auc")])
        callbacks.follow(Federation([]), 1, [callbacks.EarlyStopping("auc")])


def test_the_best_model_is_kept():
    scores = {1: 0.7, 2: 0.9, 3: 0.8}
    events = [event for n, auc in scores.items() for event in (committed(n, 3.0 / n), evaluated(n, auc=auc))]
    federation = Federation(events)
    best = callbacks.BestModel("best.safetensors", "auc", "max")
    callbacks.follow(federation, 1, [best])
    assert federation.downloaded == [("best.safetensors", 1, 1), ("best.safetensors", 1, 2)]
    assert best.round == 2 and best.best == 0.9


def test_tensorboard_gets_each_number_once(monkeypatch):
    made = []

    class SummaryWriter:
        def __init__(self, log_dir):
            self.log_dir, self.scalars, self.flushed = log_dir, [], False
            made.append(self)

        def add_scalar(self, name, value, step):
            self.scalars.append((name, value, step))

        def flush(self):
            self.flushed = True

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.utils", types.ModuleType("torch.utils"))
    callbacks.follow(Federation([committed(1, 3.0), evaluated(1, auc=0.7)]), 1, [callbacks.TensorBoard("logs", sites=True)])
    (writer,) = made
    assert writer.log_dir == "logs" and writer.flushed
    expected = {"evaluation/auc": 0.7, "hospital-a/loss": 3.0, "round/seconds": 0.5, "sites/loss": 3.0}
    assert sorted(writer.scalars) == [(name, value, 1) for name, value in sorted(expected.items())]


def test_a_writer_of_ones_own(monkeypatch):
    written = []
    writer = types.SimpleNamespace(add_scalar=lambda *what: written.append(what), flush=lambda: None)
    callbacks.follow(Federation([committed(1, 3.0)]), 1, [callbacks.TensorBoard(writer)])
    assert ("sites/loss", 3.0, 1) in written


def test_mlflow_and_wandb(monkeypatch):
    logged, tags, sent = [], {}, []
    mlflow = types.SimpleNamespace(log_metrics=lambda named, step: logged.append((named, step)), set_tag=tags.__setitem__)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(log=sent.append))
    hooks = [callbacks.MLflow(), callbacks.WandB()]
    callbacks.follow(Federation([committed(1, 3.0), evaluated(1, auc=0.7)]), 1, hooks)
    assert logged == [({"sites/loss": 3.0, "round/seconds": 0.5}, 1), ({"evaluation/auc": 0.7}, 1)]
    assert tags == {"fluvial.status": "done"}
    assert sent == [{"sites/loss": 3.0, "round/seconds": 0.5, "round": 1}, {"evaluation/auc": 0.7, "round": 1}]


@pytest.mark.parametrize("hook, library", [(callbacks.MLflow, "mlflow"), (callbacks.WandB, "wandb")])
def test_a_hook_without_its_library_says_so_when_it_is_made(hook, library, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match=library):
        hook()


def test_tensorboard_without_its_library_says_what_to_install(monkeypatch):
    for library in ("torch.utils.tensorboard", "tensorboardX"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        callbacks.TensorBoard("logs")


def test_against_a_real_federation(tmp_path):
    path = str(tmp_path / "best.safetensors")
    with fluvial.testing.LocalFederation(sites=1) as local:
        local.start_run("early", {"w": np.zeros(2, np.float32)}, rounds=1000)

        def worker(site, index):
            for round in site.rounds("early"):
                loss = 1.0 if round.number >= 3 else 5.0 - round.number
                round.submit({"w": round.arrays()["w"] + 1}, samples=1, metrics={"loss": loss})

        followed = []
        hooks = [callbacks.EarlyStopping("loss", patience=4), callbacks.BestModel(path, "loss")]
        following = threading.Thread(target=lambda: followed.append(local.admin.follow("early", hooks)))
        following.start()
        local.train(worker)
        with pytest.raises(fluvial.RunFailed, match="early stopping") as failed:
            local.wait("early", timeout_s=60)
        following.join(timeout=30)
        assert followed == [None] and failed.value.reason.startswith("by an administrator: loss has not improved on 1 for 4")
        assert hooks[1].round == 3 and fluvial.load_model(path)["w"].tolist() == [3, 3]
