"""Many sites on one machine: they share processes, and a few threads or processes train for all of them."""

import collections
import multiprocessing
import os
import threading
import urllib.request

import numpy as np
import pytest

import fluvial

SITES = 40


@pytest.fixture(scope="module")
def many():
    with fluvial.testing.LocalFederation(sites=SITES, aggregators=1) as local:
        yield local


def zeros():
    return {"w": np.zeros(1000, np.float32)}


def step(round, index):
    """The mean over all sites, weighted with index + 1, of index + 1."""
    round.submit({"w": round.arrays()["w"] + np.float32(index + 1)}, samples=index + 1)


def mean_of_step():
    weights = np.arange(1, SITES + 1, dtype=np.float64)
    return (weights * weights).sum() / weights.sum()


def expect_all_counted(federation, run, rounds):
    assert [len(round["contributors"]) for round in federation.rounds(run)] == [SITES] * rounds
    counted = [(row["round"], row["site"]) for row in federation.site_metrics(run)]
    assert sorted(counted) == sorted((number, name) for number in range(1, rounds + 1) for name in federation.sites)
    np.testing.assert_allclose(federation.model(run)["w"], rounds * mean_of_step(), rtol=1e-6)


def resident_bytes(federation, index):
    url = f"http://127.0.0.1:{federation._about['sites'][index]['metrics_port']}/metrics"
    for line in urllib.request.urlopen(url).read().decode().splitlines():
        if line.startswith("process_resident_memory_bytes "):
            return float(line.split()[1])
    raise AssertionError("no process_resident_memory_bytes")


def test_a_few_threads_train_for_all_sites(many):
    lock, calls, busy, most = threading.Lock(), collections.Counter(), set(), 0

    def counted(round, index):
        nonlocal most
        with lock:
            calls[index, round.number] += 1
            assert index not in busy, "two rounds of one site at once"
            busy.add(index)
            most = max(most, len(busy))
        step(round, index)
        with lock:
            busy.remove(index)

    before = threading.active_count()
    many.start_run("threads", model=zeros(), rounds=3)
    many.train_rounds(counted, "threads", at_once=3)
    assert threading.active_count() <= before + 3
    many.wait("threads", timeout_s=120)
    many.join()
    assert most <= 3
    assert calls == {(index, number): 1 for index in range(SITES) for number in (1, 2, 3)}
    expect_all_counted(many, "threads", 3)


def step_and_tell(round, index):
    round.submit({"w": round.arrays()["w"] + np.float32(index + 1)}, samples=index + 1, metrics={"pid": os.getpid()})


def test_a_few_processes_train_for_all_sites(many):
    many.start_run("processes", model=zeros(), rounds=2)
    many.train_rounds(step_and_tell, "processes", at_once=2, processes=True)
    many.wait("processes", timeout_s=120)
    many.join()
    expect_all_counted(many, "processes", 2)
    shares = collections.defaultdict(set)
    for row in many.site_metrics("processes"):
        shares[row["metrics"]["pid"]].add(row["site"])
    assert len(shares) == 2 and os.getpid() not in shares
    assert [len(sites) for sites in shares.values()] == [SITES // 2] * 2, "a site changed its process"


def step_without_data(round, index):
    if index == 1:
        raise ValueError("no data")
    step(round, index)


@pytest.mark.parametrize("processes", [False, True])
def test_what_a_step_raises_ends_the_wait(processes):
    with fluvial.testing.LocalFederation(sites=3) as local:
        local.start_run("fails", model=zeros(), rounds=1)
        local.train_rounds(step_without_data, "fails", at_once=2, processes=processes)
        with pytest.raises(fluvial.FederationFailed, match="the worker at site-2 failed: ValueError: no data"):
            local.wait("fails", timeout_s=120)


def test_a_round_without_an_answer_is_sat_out():
    with fluvial.testing.LocalFederation(sites=3) as local:
        plan = {"participants": {"quorum": 2}, "deadlines": {"soft_ms": 200, "hard_ms": 60_000}}
        local.start_run("sits-out", model=zeros(), rounds=2, plan=plan)
        local.train_rounds(lambda round, index: step(round, index) if index else None, "sits-out", at_once=1)
        local.wait("sits-out", timeout_s=60)
        contributors = [[site["name"] for site in round["contributors"]] for round in local.rounds("sits-out")]
        assert [sorted(names) for names in contributors] == [["site-2", "site-3"]] * 2


def test_a_site_costs_little_memory(many):
    many.start_run("memory", model=zeros(), rounds=2)
    many.train_rounds(step, "memory", at_once=2)
    many.wait("memory", timeout_s=120)
    process = 48 << 20  # without a site
    assert resident_bytes(many, 0) < process + SITES * (5 << 20)


def test_a_federation_ends_though_a_process_was_forked_off():
    with fluvial.testing.LocalFederation(sites=1) as local:
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(
            target=lambda: there.send(local._process.stdin.closed) or there.recv(), daemon=True
        )
        child.start()
        assert here.recv(), "it holds the pipe by which the federation is kept"
        assert not local._process.stdin.closed
        here.send(None)
        child.join()


def test_what_cannot_be_is_refused(many):
    with pytest.raises(fluvial.FederationFailed, match="start_run"):
        many.train_rounds(step, "unknown")
    many.start_run("refused", model=zeros())
    with pytest.raises(ValueError, match="at_once is -1"):
        many.train_rounds(step, "refused", at_once=-1)
    many.stop_run("refused")
