"""Training scripts against the real processes."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import fluvial


def in_threads(count, work):
    errors = []

    def run(index):
        try:
            work(index)
        except BaseException as error:  # whatever it is, the test fails with it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not errors, errors
    assert not any(thread.is_alive() for thread in threads)


def test_federated_averaging_is_the_weighted_mean(federation):
    rng = np.random.default_rng(3)
    start = {"w": rng.standard_normal((20, 30)).astype(np.float32), "seen": np.array([0], np.int64)}
    steps = [[rng.standard_normal((20, 30)).astype(np.float32) for _ in range(3)] for _ in range(4)]
    federation.start_run("average", model=start, rounds=3, local_steps=5, worker={"rate": 0.5})

    def train(index):
        with federation.connect(index) as site:
            numbers = []
            for round in site.rounds("average"):
                assert site.name == federation.sites[index]
                assert round.local_steps == 5 and round.parameters == {"rate": 0.5}
                numbers.append(round.number)
                model = {name: array.copy() for name, array in round.arrays().items()}
                model["w"] += steps[index][round.number - 1]
                model["seen"] += index + 1
                round.submit(model, samples=10 * (index + 1), metrics={"loss": float(index)})
            assert numbers == [1, 2, 3]

    in_threads(4, train)
    expected = start["w"].astype(np.float64)
    for number in range(3):
        expected = expected + sum((index + 1) * steps[index][number].astype(np.float64) for index in range(4)) / 10
    model = federation.model("average")
    np.testing.assert_allclose(model["w"], expected, rtol=0, atol=2e-6)
    assert model["seen"].tolist() == [4 * 3]  # the greatest of the sites' counters
    np.testing.assert_array_equal(federation.model("average", 0)["w"], start["w"])


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


def test_arrays_outlive_their_round_and_nobody_can_change_them(small):
    small.start_run("keep", model={"w": np.zeros(5, np.float32)}, rounds=2)
    kept = []
    site = small.connect(0)
    for round in site.rounds("keep"):
        arrays = round.arrays()
        with pytest.raises(ValueError):
            arrays["w"][0] = 1
        kept.append(arrays["w"])
        round.submit({"w": arrays["w"] + 1}, samples=1)
        with pytest.raises(fluvial.RoundClosed):
            round.submit({"w": arrays["w"]}, samples=1)
        with pytest.raises(fluvial.RoundClosed):
            round.arrays()
    assert [array[0] for array in kept] == [0, 1]


def test_what_cannot_be_submitted_leaves_the_round_open(small):
    small.start_run("refused", model={"w": np.zeros(5, np.float32)}, rounds=1)
    for round in small.connect(0).rounds("refused"):
        with pytest.raises(fluvial.ModelMismatch, match="w"):
            round.submit({"v": np.zeros(5, np.float32)}, samples=1)
        with pytest.raises(ValueError, match="samples is 0"):
            round.submit({"w": np.zeros(5, np.float32)}, samples=0)
        with pytest.raises(ValueError, match="samples is 1.7"):
            round.submit({"w": np.zeros(5, np.float32)}, samples=1.7)
        with pytest.raises(ValueError, match="metrics are too many"):
            round.submit({"w": np.ones(5)}, samples=1, metrics={f"m{number}": 0.0 for number in range(65)})
        with pytest.raises(ValueError, match="no blanks"):
            round.submit({"w": np.ones(5)}, samples=1, metrics={"train loss": 0.0})
        round.submit({"w": np.ones(5)}, samples=1)
    assert small.model("refused")["w"].tolist() == [1] * 5


def test_a_round_that_is_left_is_sat_out():
    with fluvial.testing.LocalFederation(sites=2) as local:
        local.start_run(
            "left",
            model={"w": np.zeros(3, np.float32)},
            rounds=2,
            plan={"participants": {"quorum": 1}, "deadlines": {"soft_ms": 200, "hard_ms": 30_000}},
        )

        def train(index):
            for round in local.connect(index).rounds("left"):
                if round.number == 1 and index == 0:
                    continue
                round.submit({"w": round.arrays()["w"] + index + 1}, samples=1)

        in_threads(2, train)
        assert local.model("left", 1)["w"].tolist() == [2, 2, 2]  # the other's alone
        assert local.model("left", 2)["w"].tolist() == [3.5, 3.5, 3.5]


def test_windows_do_not_wait_for_everybody():
    start = {"w": np.zeros(3, np.float32)}
    with fluvial.testing.LocalFederation(sites=2) as local:
        plan = {"mode": "async", "async": {"goal": 1}}
        with pytest.raises(fluvial.FederationFailed, match=r"participants.quorum = 2: expected at most async.goal = 1"):
            local.start_run("all", model=start, plan={**plan, "participants": {"quorum": 2}})
        local.start_run("windows", model=start, rounds=2, plan=plan)
        with local.connect(0) as site:  # the other one never trains
            for round in site.rounds("windows"):
                round.submit({"w": round.arrays()["w"] + 1}, samples=1)
        local.wait("windows", timeout_s=60)
        assert [len(round["contributors"]) for round in local.rounds("windows")] == [1, 1]


def test_leaving_the_loop_hands_the_round_back(small):
    small.start_run("back", model={"w": np.zeros(3, np.float32)}, rounds=2)
    site = small.connect(0)
    seen = []
    while len(seen) < 4:
        for round in site.rounds("back"):
            seen.append(round.number)
            if len(seen) % 2:
                break
            round.submit({"w": round.arrays()["w"] + 1}, samples=1)
    assert seen == [1, 1, 2, 2]
    small.wait("back")
    assert small.model("back")["w"].tolist() == [2, 2, 2]


def test_two_runs_one_after_the_other(small):
    site = small.connect(0)
    for name in ("first", "second"):
        small.start_run(name, model={"w": np.zeros(3, np.float32)}, rounds=2)
        numbers = []
        for round in site.rounds(name):
            assert round.run == name
            numbers.append(round.number)
            round.submit({"w": round.arrays()["w"] + 1}, samples=1)
        assert numbers == [1, 2]
        assert small.model(name)["w"].tolist() == [2, 2, 2]


def test_rounds_end_when_the_run_is_stopped(small):
    number = small.start_run("stopped", model={"w": np.zeros(3, np.float32)}, rounds=1_000_000)
    seen = 0
    for round in small.connect(0).rounds("stopped"):
        seen += 1
        if seen == 3:
            small.stop_run("stopped")
        round.submit({"w": round.arrays()["w"]}, samples=1)
    assert seen >= 3 and number >= 1


def test_rounds_end_when_the_agent_does():
    with fluvial.testing.LocalFederation(sites=1) as local:
        site = local.connect(0)
        ended = threading.Event()

        def wait():
            assert list(site.rounds()) == []
            ended.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        local.stop_processes()
        assert ended.wait(timeout=30)
        waiting.join()
        assert site.detach_reason


def test_nothing_to_do_is_a_timeout(small):
    with pytest.raises(TimeoutError):
        next(small.connect(0).rounds("never", timeout_s=0.05))


WORKER = """
import signal
import sys
import fluvial

signal.signal(signal.SIGINT, signal.default_int_handler)  # which who runs the tests in the background ignores
site = fluvial.connect(sys.argv[1])
for round in site.rounds("survive"):
    print("training", flush=True)
    sys.stdin.readline()
    round.submit(round.arrays(), samples=1)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_worker_that_ends_leaves_the_agent_well(small, how):
    small.start_run("survive", model={"w": np.zeros(3, np.float32)}, rounds=1)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(WORKER), small.worker_socket(0)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    with worker:
        try:
            assert worker.stdout.readline() == b"training\n"
            worker.send_signal(how)
            worker.wait(timeout=30)
        finally:
            worker.kill()
    for round in small.connect(0).rounds("survive"):  # the task is given to whoever is there
        round.submit({"w": np.full(3, 7.0)}, samples=1)
    assert small.model("survive")["w"].tolist() == [7, 7, 7]


EXPORTED = ("ADMIN", "ADMIN_SOCKET", "CONFIG", "DATA_DIR", "EVALUATION_SOCKET", "IDENTITY", "WORKER_SOCKET")


def test_what_is_exported_for_another_federation_is_not_this_ones(monkeypatch):
    for name in EXPORTED:
        monkeypatch.setenv(f"FLUVIAL_{name}", "/proc/of-another")
    monkeypatch.setenv("FLUVIAL_PROGRESS", "off")  # sets no process of a federation
    say = f"""
import fluvial, os, sys
print([os.environ.get("FLUVIAL_" + name) for name in {EXPORTED}], fluvial.admin().run()["name"], os.environ["FLUVIAL_PROGRESS"])
sys.exit(1)
"""
    with fluvial.testing.LocalFederation(sites=1, aggregators=1, settings={"site.log_level": "debug"}) as local:
        local.start_run("own", {"w": np.zeros(2, np.float32)})
        assert local.start_worker(0, [sys.executable, "-c", say]).wait(timeout=60) == 1
        with pytest.raises(fluvial.FederationFailed) as said:
            local.wait("own", timeout_s=60)
        for name in (local.worker_socket(0), local.evaluation_socket, local.admin_socket, "own off"):
            assert name in str(said.value)
        assert "of-another" not in str(said.value)
        assert local.model("own", 0)["w"].tolist() == [0, 0]


def test_a_federations_settings_are_those_that_it_is_given():
    with fluvial.testing.LocalFederation(sites=1, settings={"coordinator.admin_listen": "127.0.0.1:0"}) as local:
        assert local.admin.status()["admin_port"] > 0
    with pytest.raises(fluvial.FederationFailed, match="--set.*site.nothing=1.*ROLE.KEY=VALUE"):
        fluvial.testing.LocalFederation(settings={"site.nothing": 1})


def test_a_federation_that_cannot_start_says_why(monkeypatch, tmp_path):
    with pytest.raises(fluvial.FederationFailed, match="--sites"):
        fluvial.testing.LocalFederation(sites=0)
    monkeypatch.delenv("FLUVIAL_EXECUTABLE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(fluvial.FederationFailed, match="FLUVIAL_EXECUTABLE"):
        fluvial.testing.LocalFederation()
