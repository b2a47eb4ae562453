"""LocalFederation: runs by name or number, what a plan is made of, workers that train() starts and that end."""

import sys
import threading

import numpy as np
import pytest

import fluvial
from fluvial._toml import plan_text

MODEL = {"w": np.zeros(2, np.float32)}


@pytest.fixture(scope="module")
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


def add_one(name):
    def worker(site, index):
        for round in site.rounds(name):
            round.submit({"w": round.arrays()["w"] + 1}, samples=1)

    return worker


def test_a_run_goes_by_its_name_or_its_number(small):
    number = small.start_run("named", MODEL, rounds=2)
    small.train(add_one("named"))
    small.wait(number, timeout_s=60)
    small.join()
    for run in ("named", number, str(number), np.int64(number)):
        assert small.model(run)["w"].tolist() == [2, 2] and len(small.rounds(run)) == 2 == len(small.site_metrics(run))
    assert small.start_run("more", continues=number) == number + 1
    small.stop_run(number + 1)


def test_a_runs_name_is_a_text_of_any_language_that_turns_nothing_around(small):
    small.start_run("Klinikum Köln 病院", MODEL)
    small.train(add_one("Klinikum Köln 病院"))
    small.wait("Klinikum Köln 病院", timeout_s=60)
    small.join()
    for name in ("lo\u202ess", "two\nlines", "ze\u200bro"):
        with pytest.raises(fluvial.FederationFailed, match="name = .*: expected no control characters"):
            small.start_run(name, MODEL)


def test_a_run_that_is_not_there_is_told_from_those_that_are(small):
    small.start_run("there", MODEL)
    small.stop_run("there")
    for ask in (small.wait, small.rounds, small.site_metrics, small.model, small.evaluate, small.stop_run, small.admin.run):
        with pytest.raises(fluvial.UnknownRun, match="^no run is called 'their'; there are: .*there"):
            ask("their")
        with pytest.raises((fluvial.CoordinatorRefused, fluvial.FederationFailed), match="99"):
            ask(99)


def test_a_worker_goes_by_a_runs_name(small):
    site = small.connect(0)
    for ask in (site.rounds, lambda run: site.allreduce(MODEL["w"], run), fluvial.evaluations):
        with pytest.raises(TypeError, match="run is 1, a int; workers and evaluators go by a run's name"):
            ask(1)
    with pytest.raises(TypeError, match="run is None"):
        site.allreduce(MODEL["w"], None)
    site.close()


def test_a_plan_of_numpys_numbers(small):
    worker = {"lr": np.float32(0.1), "sizes": np.array([8, 16]), "on": np.bool_(True), "decay": {"start": np.float64(1), "decay": 0.5}}
    small.start_run("numbers", MODEL, rounds=np.int64(2), local_steps=np.int32(3), worker=worker)
    site = small.connect(0)
    for round in site.rounds("numbers"):
        assert round.local_steps == 3 and round.config["lr"] == pytest.approx(0.1) and round.config["on"] is True
        assert list(round.config["sizes"]) == [8, 16] and round.config["decay"] == 0.5 ** (round.number - 1)
        round.submit(MODEL, samples=1)
    site.close()
    assert len(small.rounds("numbers")) == 2


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        ({"worker": {"lr": None}}, ValueError, "worker.lr is None"),
        ({"plan": {"optimizer": {"momentum": None}}}, ValueError, "optimizer.momentum is None"),
        ({"rounds": None}, ValueError, "rounds is None"),
        ({"worker": {"net": object()}}, TypeError, "worker.net is a object"),
    ],
)
def test_what_no_plan_can_have_is_named(small, wrong, error, message):
    with pytest.raises(error, match=message):
        small.start_run("wrong", MODEL, **wrong)


def test_the_text_of_a_plan():
    plan = {"worker": {"lr": {"start": 0.1, "decay": np.float64(0.5)}, "names": ("a", "b")}, "name": 'a "b"', "empty": {}}
    plan.update({"optimizer.name": "mean", "seed": 2**64 - 1, "optimizer": {"name": "fedavg"}, "rounds": np.int64(3)})
    assert plan_text(plan).splitlines() == [
        '"name" = "a \\"b\\""', '"seed" = "18446744073709551615"', '"rounds" = 3',
        "", '["worker"]', '"lr" = {start = 0.1, decay = 0.5}', '"names" = ["a", "b"]',
        "", '["optimizer"]', '"name" = "fedavg"',
    ]


def test_each_site_has_the_workers_that_its_rounds_wait_for():
    with fluvial.testing.LocalFederation(sites=2, workers=2) as local:
        local.start_run("pairs", MODEL, rounds=2)
        lock, trained = threading.Lock(), []

        def worker(site, index):
            for round in site.rounds("pairs"):
                with lock:
                    trained.append((index, round.number))
                round.submit({"w": round.arrays()["w"] + 1}, samples=1)

        local.train(worker)
        local.wait("pairs", timeout_s=60)
        local.join()
        assert sorted(trained) == [(0, 1), (0, 1), (0, 2), (0, 2), (1, 1), (1, 1), (1, 2), (1, 2)]


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(fluvial.testing, "_WITHOUT_WORKER_SECONDS", 0.2)


def test_waiting_ends_when_a_sites_worker_returned_early(soon):
    with fluvial.testing.LocalFederation(sites=2) as local:
        local.start_run("early", MODEL, rounds=3)

        def worker(site, index):
            for round in site.rounds("early"):
                round.submit({"w": round.arrays()["w"] + 1}, samples=1)
                if index == 0:
                    round.result()
                    return

        local.train(worker)
        with pytest.raises(fluvial.FederationFailed, match="^the worker at site-1 returned after round 1 of 3; nobody trains there now$"):
            local.wait("early", timeout_s=60)


def test_waiting_for_windows_ends_when_nobody_is_left(small, soon):
    small.start_run("windows", MODEL, rounds=3, plan={"mode": "async", "async": {"goal": 1}})

    def worker(site, index):
        for round in site.rounds("windows"):
            round.submit({"w": round.arrays()["w"] + 1}, samples=1)
            round.result()
            return

    small.train(worker)
    with pytest.raises(fluvial.FederationFailed, match="site-1 returned after round 1 of 3"):
        small.wait("windows", timeout_s=60)
    small.stop_run("windows")


def test_waiting_ends_when_a_script_has_ended_early(small, soon):
    script = small.start_worker(0, [sys.executable, "-c", "print('nothing to do')"])
    assert script.wait(timeout=60) == 0
    small.start_run("script", MODEL, rounds=3)
    with pytest.raises(fluvial.FederationFailed, match="site-1 returned before round 1 was committed; nobody trains there now"):
        small.wait("script", timeout_s=60)
    small.train(add_one("script"))  # somebody does again
    small.wait("script", timeout_s=60)
    small.join()


def test_workers_that_return_once_their_part_is_done_are_no_failure(soon):
    with fluvial.testing.LocalFederation(sites=2) as local:

        def worker(site, index):
            for round in site.rounds("done"):
                round.submit({"w": round.arrays()["w"] + 1}, samples=1)
                if round.number == 3:
                    return  # before the round is committed

        for _ in range(3):
            local.start_run("done", MODEL, rounds=3)
            local.train(worker)
            local.wait("done", timeout_s=60)
            local.join()


def test_a_run_that_goes_on_without_a_site_is_no_failure(soon):
    plan = {"participants": {"quorum": 1}, "deadlines": {"soft_ms": 500, "soft_min_ms": 500, "hard_ms": 30_000}}
    with fluvial.testing.LocalFederation(sites=2) as local:
        local.start_run("less", MODEL, rounds=3, plan=plan)

        def worker(site, index):
            for round in site.rounds("less"):
                round.submit({"w": round.arrays()["w"] + 1}, samples=1)
                if index == 0:
                    return

        local.train(worker)
        local.wait("less", timeout_s=60)
        assert [len(round["contributors"]) for round in local.rounds("less")][1:] == [1, 1]


def test_training_that_gives_no_numbers_is_told_to_its_worker_and_pauses_the_run(small):
    hour = 3_600_000
    plan = {"attempts_max": 2, "deadlines": {"soft_min_ms": 50, "soft_ms": hour, "hard_ms": hour}}
    small.start_run("spoilt", MODEL, rounds=1, plan=plan)
    before = []

    def worker(site, index):
        for round in site.rounds("spoilt"):
            before.append(round.previous)
            round.submit({"w": np.array([0, np.nan], np.float32)}, samples=1)

    with pytest.warns(RuntimeWarning) as told:
        small.train(worker)
        with pytest.raises(fluvial.RunFailed, match="tensor 'w', value 1 is nan"):
            small.wait("spoilt", timeout_s=60)
        small.stop_run("spoilt")
        small.join()
    said = "the update of site-1 in round 1 of spoilt counts nowhere: tensor 'w', value 1 is nan after training"
    assert {str(one.message).partition(", expected")[0] for one in told} == {said}
    assert before[0] is None and (before[1].round, before[1].outcome) == (1, "unused")
    assert "value 1 is nan" in before[1].reason


def test_an_update_that_the_coordinator_refuses_is_told_to_its_worker_too(small):
    hour = 3_600_000
    plan = {"attempts_max": 2, "update_norm_max": 1.0, "deadlines": {"soft_min_ms": 50, "soft_ms": hour, "hard_ms": hour}}
    small.start_run("long", MODEL, rounds=1, plan=plan)

    def worker(site, index):
        for round in site.rounds("long"):
            round.submit({"w": np.array([3, 4], np.float32)}, samples=1)

    with pytest.warns(RuntimeWarning, match="the update of site-1 in round 1 of long counts nowhere: .*norm"):
        small.train(worker)
        with pytest.raises(fluvial.RunFailed, match="norm"):
            small.wait("long", timeout_s=60)
        small.stop_run("long")
        small.join()


def test_who_comes_after_the_end_is_told_and_waits_for_another_run_of_the_name(small):
    number = small.start_run("over", MODEL)
    small.train(add_one("over"))
    small.wait("over", timeout_s=60)
    small.join()
    list(fluvial.evaluations("over", socket=small.evaluation_socket))  # the last model, which nobody had evaluated
    said = f"run {number}, 'over', is done already, and this waits for another of that name"
    with small.connect(0) as site:
        with pytest.raises(TimeoutError, match=said):
            next(site.rounds("over", timeout_s=0))
        with pytest.raises(TimeoutError, match=said):
            next(fluvial.evaluations("over", socket=small.evaluation_socket, timeout_s=0))
        small.start_run("over", MODEL)
        assert next(site.rounds("over", timeout_s=60)).number == 1
        small.stop_run("over")


def test_an_allreduce_in_a_run_that_steps_is_refused(small):
    small.start_run("steps", MODEL, optimizer="fedavg")
    with small.connect(0) as site:
        with pytest.raises(fluvial.PlanMismatch, match='optimizer.name = "mean" in its plan; run steps has "fedavg"'):
            site.allreduce(MODEL["w"], "steps", timeout_s=60)
    small.stop_run("steps")


@pytest.mark.parametrize("wrong, why", [(np.nan, "finite"), (np.inf, "finite"), (70_000.0, "value_abs_max of 1024")])
def test_an_allreduce_that_is_refused_says_so_at_once_and_the_next_call_is_the_rounds_next_attempt(wrong, why):
    """Both sites are needed: the other one waits for this one's next attempt."""
    found = {}

    def worker(site, index):
        value = np.array([1, 2 + 2 * index], np.float32)
        if index == 1:
            with pytest.raises(fluvial.UpdateRefused, match=why):
                site.allreduce(value + np.array([0, wrong], np.float32), "values")
        found[index] = [site.allreduce(value + step, "values").tolist() for step in range(2)]

    with fluvial.testing.LocalFederation(sites=2) as local:
        hour = 3_600_000
        plan = {"participants": {"quorum": 2}, "deadlines": {"soft_ms": hour, "hard_ms": hour, "adaptive": False}}
        local.start_run("values", {"value": np.zeros(2, np.float32)}, rounds=2, optimizer="mean", plan=plan)
        with pytest.warns(RuntimeWarning, match="counts nowhere"):
            local.train(worker)
            local.wait("values", timeout_s=120)
            local.join()
    assert found == {0: [[1, 3], [2, 4]], 1: [[1, 3], [2, 4]]}


def test_each_worker_of_a_site_whose_sum_is_refused_hears_of_it():
    turns, refused, means = iter([np.nan, 1.0]), [], []

    def worker(site, index):
        value = next(turns)
        try:
            mean = site.allreduce({"w": np.array([value])}, "pair")
        except fluvial.UpdateRefused as error:
            refused.append(error.reason)
            mean = site.allreduce({"w": np.array([2.0])}, "pair")
        means.append(mean["w"].tolist())

    with fluvial.testing.LocalFederation(sites=1, workers=2) as local:
        local.start_run("pair", {"w": np.zeros(1, np.float32)}, rounds=1, optimizer="mean")
        with pytest.warns(RuntimeWarning, match="counts nowhere"):
            local.train(worker)
            local.wait("pair", timeout_s=120)
            local.join()
    assert len(refused) == 2 and all("finite" in reason for reason in refused) and means == [[2.0], [2.0]]
