"""Models evaluated: by the coordinator's side, and by the sites on their own data."""

import threading

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=2) as local:
        yield local


def add_one(site, index):
    for round in site.rounds("evaluated"):
        round.submit({"w": round.arrays()["w"] + 1}, samples=1)


def test_each_committed_model_is_evaluated_until_the_run_ends(small):
    evaluated = {}
    model = {"w": np.zeros(4, np.float64)}
    attached = threading.Event()

    def evaluator():
        def score(given):
            assert given is model and given["w"].dtype == np.float64
            return {"test_score": float(given["w"][0])}

        attached.set()
        evaluated.update(fluvial.evaluate(score, model, run="evaluated", socket=small.evaluation_socket))

    thread = threading.Thread(target=evaluator)
    thread.start()
    attached.wait()
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)}, rounds=4, worker={"rate": 0.5})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    thread.join(timeout=60)
    assert not thread.is_alive(), "it ends with its run"
    assert evaluated[4] == {"test_score": 4.0}, "the last model is never left out"
    rounds = {round["round"]: round["evaluation"] for round in small.rounds("evaluated")}
    assert {number: one for number, one in rounds.items() if one} == evaluated
    assert small.admin.best("test_score", "max")["round"] == 4


def test_an_evaluator_knows_its_run_and_may_fail(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)}, rounds=2, worker={"rate": 0.5})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    given = next(fluvial.evaluations("evaluated", socket=small.evaluation_socket))  # there is one that nobody evaluated
    assert (given.run, given.round, given.parameters) == ("evaluated", 2, {"rate": 0.5})

    def fails(arrays):
        raise ZeroDivisionError("no test data")

    small.start_run("evaluated", {"w": np.zeros(4, np.float32)}, rounds=1)
    small.train(add_one)
    with pytest.raises(ZeroDivisionError):
        fluvial.evaluate(fails, run="evaluated", socket=small.evaluation_socket)


def test_a_worker_that_trains_is_told_that_this_socket_is_for_evaluation(small):
    with pytest.raises(fluvial.AgentRefused, match="only tasks to evaluate.*worker socket of a site's agent"):
        fluvial.connect(small.evaluation_socket)
    with pytest.raises(fluvial.AgentRefused, match="only tasks to train.*the coordinator's worker socket"):
        next(fluvial.evaluations(socket=small.worker_socket(0)))


def test_sites_evaluate_on_their_own_data_and_the_mean_is_weighted(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32), "steps": np.array([7], np.int64)}, rounds=2)

    def train(site, index):
        for round in site.rounds("evaluated"):
            round.submit({"w": round.arrays()["w"] + 1, "steps": np.array([9], np.int64)}, samples=1)

    small.train(train)
    small.wait("evaluated", timeout_s=60)

    def test(site, index):
        model = {"w": np.zeros(4, np.float32), "steps": np.array([0], np.int64)}
        own = site.evaluate(lambda given: ({"score": float(given["w"][0]) * (index + 1)}, 100 * (index + 1)), model,
                            run="evaluated-evaluation")
        assert own == {"score": 2.0 * (index + 1)}

    small.train(test)
    found = small.evaluate("evaluated", timeout_s=60)
    small.join()
    assert found["round"] == 2
    assert found["sites"]["site-2"] == {"weight": 200, "metrics": {"score": 4.0}}
    assert found["metrics"] == pytest.approx({"score": (100 * 2 + 200 * 4) / 300})
    np.testing.assert_array_equal(small.admin.model()["w"], small.model("evaluated")["w"])


def test_an_evaluation_that_a_worker_fails_in_says_so(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)

    def fails(site, index):
        site.evaluate(lambda arrays: ({}, 0), run="evaluated-evaluation")

    small.train(fails)
    with pytest.raises(fluvial.FederationFailed, match="samples is 0"):
        small.evaluate("evaluated", timeout_s=60)


def test_a_run_of_windows_is_evaluated_at_every_site(small):
    plan = {"mode": "async", "async": {"goal": 1, "lead_max": 3}, "staleness_max": 4}
    small.start_run("evaluated", {"w": np.ones(4, np.float32)}, rounds=2, plan=plan)
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    small.join()
    first_is_in = threading.Event()

    def test(site, index):
        def score(arrays):
            if index == 1:
                assert first_is_in.wait(timeout=30)
            return {"score": float(index)}, 10

        for round in site.rounds("evaluated-evaluation"):
            metrics, samples = score(round.arrays())
            round.report(metrics, samples=samples)
            first_is_in.set()

    small.train(test)
    found = small.evaluate("evaluated", timeout_s=60)
    assert sorted(found["sites"]) == small.sites and found["metrics"] == {"score": 0.5}
    plan = small.admin.run("evaluated-evaluation")["plan"]
    assert (plan["mode"], plan["late"]) == ("rounds", "residual")


def test_an_evaluation_that_is_given_up_makes_room_for_the_next_run(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    with pytest.raises(TimeoutError, match="no worker attached"):
        small.evaluate("evaluated", timeout_s=0.1)

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small.admin.evaluate("evaluated", check=interrupted)
    assert [run["status"] for run in small.admin.runs()] == ["done", "stopped", "stopped"]
    assert "given up: KeyboardInterrupt" in small.admin.runs()[-1]["reason"]
    small.start_run("next", {"w": np.zeros(4, np.float32)})


@pytest.mark.parametrize("answer", [{"score": 1.0}, 0.9, (0.9, 500), ({"score": 1.0}, 10, 3), None])
def test_an_answer_of_another_shape_is_refused_with_what_is_expected(tmp_path, answer):
    model = {"w": np.zeros(2, np.float32)}
    with FakeAgent(tmp_path / "a", model) as agent:
        agent.task(1, model)
        with pytest.raises(TypeError, match=r"the function returns \(metrics by name, samples\), as .*; this one gave"):
            agent.site.evaluate(lambda arrays: answer, run="run")


def test_an_evaluator_is_told_so_too(small):
    small.start_run("evaluated", {"w": np.zeros(4, np.float32)})
    small.train(add_one)
    small.wait("evaluated", timeout_s=60)
    with pytest.raises(TypeError, match="the function returns metrics by name, as .*; this one gave a tuple"):
        fluvial.evaluate(lambda arrays: ({"score": 1.0}, 10), run="evaluated", socket=small.evaluation_socket)
