"""An operator elsewhere, with a certificate of the federation's authority, against a real coordinator."""

import subprocess
import threading

import numpy as np
import pytest

import fluvial


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A federation with its admin API on a port, and the identities of a reader and of somebody who may do everything."""
    folder = tmp_path_factory.mktemp("operators")
    with fluvial.testing.LocalFederation(sites=2, settings={"coordinator.admin_listen": "127.0.0.1:0"}) as local:
        for name, access in (("anna", "read"), ("bert", "full")):
            token = folder / f"{name}.token"
            token.touch(mode=0o600)
            asked = {"role": "operator", "name": name, "access": access}
            token.write_text(local.admin._post("/v1/tokens", asked)["token"] + "\n")
            command = [fluvial.testing.executable(), "enroll", "--token-file", str(token), "--identity", str(folder / name)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
        address = f"https://127.0.0.1:{local.admin.status()['admin_port']}"
        yield local, lambda name: fluvial.admin(address, identity=str(folder / name))


def test_rounds_models_and_evaluation_from_another_machine(network, tmp_path):
    local, operator = network
    model = {"w": np.arange(3_000_000, dtype=np.float32) % 7}  # longer than a part, either way
    local.start_run("far", model, rounds=2)

    def worker(site, index):
        for round in site.rounds("far"):
            round.submit({"w": round.arrays()["w"] + 1}, samples=1, metrics={"loss": 1 / round.number})
        site.evaluate(lambda arrays: ({"first": float(arrays["w"][0])}, 10 * (index + 1)), run="far-evaluation")

    local.train(worker)
    far = operator("bert")
    far.wait("far", timeout_s=120)
    assert far.rounds("far") == local.rounds("far")
    assert far.best("loss", run="far")["round"] == 2
    np.testing.assert_array_equal(far.model("far", 1)["w"], model["w"] + 1)
    assert far.evaluate("far", 1, timeout_s=120)["sites"]["site-2"] == {"weight": 20, "metrics": {"first": 1.0}}
    local.join()


def test_a_run_is_started_from_another_machine(network):
    local, operator = network
    plan = {"name": "begun", "rounds": 2}
    with pytest.raises(fluvial.CoordinatorRefused, match="403"):
        operator("anna").start_run(plan, {"w": np.zeros(2, np.float32)})
    assert operator("anna").check_plan(plan)["plan"]["rounds"] == 2
    model = {"w": np.arange(700_000, dtype=np.float32)}  # longer than a part
    run = operator("bert").start_run(plan, model)
    np.testing.assert_array_equal(operator("bert").model(run, 0)["w"], model["w"])
    operator("bert").stop(run)
    with pytest.raises(fluvial.CoordinatorRefused, match="tensor 'v' stands where tensor 'w' is expected"):
        operator("bert").start_run(plan, {"v": model["w"]}, continues=run)


def test_a_reader_looks_and_changes_nothing(network):
    local, operator = network
    reader = operator("anna")
    local.start_run("read", {"w": np.zeros(2, np.float32)}, rounds=1_000_000)
    assert reader.run()["name"] == "read"
    with pytest.raises(fluvial.CoordinatorRefused, match="403"):
        reader.model("read", 0)
    with pytest.raises(fluvial.CoordinatorRefused, match="403"):
        reader.stop("read")
    stopped = []

    def follow():
        for event in reader.watch("read"):
            stopped.append(event)

    watching = threading.Thread(target=follow)
    watching.start()
    operator("bert").stop("read", "enough")
    watching.join(timeout=30)
    assert stopped[-1]["status"] == "stopped" and stopped[-1]["reason"] == "by an administrator: enough"


def test_the_only_identity_is_found_where_enroll_puts_it(tmp_path, monkeypatch):
    monkeypatch.delenv("FLUVIAL_IDENTITY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(ValueError, match="there is none in"):
        fluvial.admin("https://127.0.0.1:1")
    (tmp_path / "fluvial/anna").mkdir(parents=True)
    (tmp_path / "fluvial/anna/cert.pem").write_text("no certificate")
    with pytest.raises(ValueError, match="fluvial/anna: expected an operator's"):
        fluvial.admin("https://127.0.0.1:1")
