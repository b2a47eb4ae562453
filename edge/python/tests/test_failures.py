"""LocalFederation: a worker's failure is that of its run, and of no later one."""

import sys

import numpy as np
import pytest

import fluvial
from fluvial.errors import FederationFailed

MODEL = {"w": np.zeros(2, np.float32)}
FAILS = ["-c", "import fluvial\nfor round in fluvial.connect().rounds('{run}'):\n    raise SystemExit('no memory')\n"]


@pytest.fixture
def pair():
    with fluvial.testing.LocalFederation(sites=2) as local:
        yield local


def good(name):
    def worker(site, index):
        for round in site.rounds(name):
            round.submit({"w": round.arrays()["w"] + 1}, samples=1)

    return worker


def bad(name, error=RuntimeError("no memory")):
    def worker(site, index):
        for _ in site.rounds(name):
            raise error

    return worker


def before_any_round(site, index):
    raise RuntimeError("no memory")


def trains(local, name):
    """The run trains and ends, whatever happened before."""
    number = local.start_run(name, MODEL, rounds=2)
    local.train(good(name))
    local.wait(number, timeout_s=60)
    local.join()
    assert local.model(number)["w"].tolist() == [2, 2]


def fails(local, run, said="the worker at site-. (failed|ended).*no memory"):
    with pytest.raises(FederationFailed, match=said):
        local.wait(run, timeout_s=60)


@pytest.mark.parametrize("worker", [bad("first"), before_any_round], ids=["in a round", "before any round"])
@pytest.mark.parametrize("heard", [True, False], ids=["waited for", "never waited for"])
def test_a_failure_of_a_run_that_was_stopped_is_none_of_the_next(pair, worker, heard):
    first = pair.start_run("first", MODEL)
    pair.train(worker)
    for thread in pair._threads:
        thread.join(60)
    if heard:
        for _ in range(2):
            fails(pair, first)
        with pytest.raises(FederationFailed, match="no memory"):
            pair.join()
    pair.stop_run(first)
    trains(pair, "second")
    trains(pair, "first")  # another run of that name
    fails(pair, first)


def test_a_failure_of_a_later_run_is_told_and_not_the_one_before(pair):
    pair.start_run("first", MODEL)
    pair.train(bad("first", ValueError("of the first")))
    fails(pair, "first", "ValueError: of the first")
    pair.stop_run("first")
    again = pair.start_run("first", MODEL)
    pair.train(bad("first", ValueError("of the second")))
    fails(pair, again, "ValueError: of the second")
    pair.stop_run(again)
    pair.start_run("evaluated", MODEL)
    pair.train(good("evaluated"))
    pair.wait("evaluated", timeout_s=60)
    pair.train(lambda site, index: site.evaluate(lambda model: 1 / 0, run="evaluated-evaluation"))
    with pytest.raises(FederationFailed, match="ZeroDivisionError"):
        pair.evaluate("evaluated", timeout_s=60)
    trains(pair, "last")


def test_who_trains_in_processes_or_by_steps_or_by_hand_fails_for_one_run(pair):
    first = pair.start_run("first", MODEL)
    started = pair.start_worker(0, [sys.executable, *[word.format(run="first") for word in FAILS]])
    fails(pair, first)
    assert started.wait(60) != 0
    pair.stop_run(first)
    second = pair.start_run("second", MODEL)
    pair.train_rounds(lambda round, index: 1 / 0, second, at_once=1)
    fails(pair, second, "ZeroDivisionError")
    pair.stop_run(second)
    third = pair.start_run("third", MODEL)
    with pytest.raises(ZeroDivisionError), pair.connect(1) as site:
        for _ in site.rounds("third"):
            raise ZeroDivisionError
    fails(pair, third, "ZeroDivisionError")
    pair.stop_run(third)
    trains(pair, "fourth")


def test_a_number_of_another_kind_is_named(pair):
    for name, wrong in [("rounds", "5"), ("rounds", 2.5), ("local_steps", "3"), ("participants", [2])]:
        with pytest.raises(TypeError, match=f"{name} is .*expected a whole number, as {name}=5"):
            pair.start_run("wrong", MODEL, **{name: wrong})
    with pytest.raises(TypeError, match="sites is '2', a str; expected a whole number"):
        fluvial.testing.LocalFederation(sites="2")
