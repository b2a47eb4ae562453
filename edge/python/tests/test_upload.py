"""A model on its way to a coordinator on another machine: over long lines, cut lines, and by several operators at once."""

import hashlib
import json
import os
import subprocess
import threading

import numpy as np
import pytest

import fluvial
from fluvial import _http, _upload
from line import Line

MODEL = {"w": np.arange(2_000_000, dtype=np.float32)}  # 8 MB: 31 parts


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A federation with its admin API on a port, the folders of two operators, and what connects them over a line."""
    folder = tmp_path_factory.mktemp("operators")
    settings = {"coordinator.admin_listen": "127.0.0.1:0", "coordinator.upload_bytes_max": 32 << 20}
    with fluvial.testing.LocalFederation(sites=1, settings=settings) as local:
        for name in ("anna", "bert"):
            token = folder / f"{name}.token"
            token.touch(mode=0o600)
            asked = {"role": "operator", "name": name, "access": "full"}
            token.write_text(local.admin._post("/v1/tokens", asked)["token"] + "\n")
            command = [fluvial.testing.executable(), "enroll", "--token-file", str(token), "--identity", str(folder / name)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
            assert done.returncode == 0, done.stderr
        yield local, folder, ("127.0.0.1", local.admin.status()["admin_port"])


@pytest.fixture(autouse=True)
def _quickly(monkeypatch):
    monkeypatch.setattr(_upload, "_PAUSE_SECONDS", (0.1, 0.5))


def admin(network, line, name="bert"):
    return fluvial.coordinator.Admin(f"https://127.0.0.1:{line.port}", identity=str(network[1] / name))


def left(network):
    return os.listdir(os.path.join(network[0].folder, "coordinator", "uploads"))


def run_of(network, name, start):
    """Starts a run, which begins with MODEL, and stops it."""
    run = start({"name": name, "rounds": 2})
    np.testing.assert_array_equal(network[0].admin.model(run, 0)["w"], MODEL["w"])
    network[0].admin.stop(run)
    assert left(network) == [], "it is used up"


def test_a_long_line_costs_a_round_trip_and_not_one_a_part(network):
    with Line(network[2], delay_s=0.02) as line:
        run_of(network, "long", lambda plan: admin(network, line).start_run(plan, MODEL))
        assert line.connections <= 4, "the plan is checked, the upload begun, all its parts, the run begun"


def test_the_command_line_does_the_same(network, tmp_path):
    fluvial.save_model(tmp_path / "model.safetensors", MODEL)
    (tmp_path / "plan.toml").write_text('name = "typed"\nrounds = 2\nmodel = "model.safetensors"\n')
    with Line(network[2], delay_s=0.02, cut_after=[3 << 20, 5 << 20]) as line:

        def start(_):
            command = [fluvial.testing.executable(), "run", "start", str(tmp_path / "plan.toml"), "--json"]
            command += ["--admin", f"https://127.0.0.1:{line.port}", "--identity", str(network[1] / "bert")]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert done.stderr.count("going on in") >= 2, done.stderr
            return json.loads(done.stdout)["run"]

        run_of(network, "typed", start)


def test_after_a_cut_it_goes_on_where_it_was(network, capsys):
    with Line(network[2], delay_s=0.005, cut_after=[2 << 20, 4 << 20, 6 << 20]) as line:
        far, had = admin(network, line), []
        post = far._post

        def listening(path, body):
            answer = post(path, body)
            had.extend([answer["bytes"]] if path == "/v1/uploads" else [])
            return answer

        far._post = listening
        run_of(network, "cut", lambda plan: far.start_run(plan, MODEL))
        assert had[0] == 0 and had == sorted(had) and had[-1] > 1 << 20, "it says what has come, and that is not sent again"
    assert capsys.readouterr().err.count("going on with the model") >= 3


def test_two_operators_at_once(network):
    runs = {}
    with Line(network[2]) as line:

        def send(name, value):
            far = admin(network, line, name)
            path = network[1] / f"{name}.safetensors"
            fluvial.save_model(path, {"w": np.full(1_000_000, value, np.float32)})
            runs[name] = far._upload(str(path))

        threads = [threading.Thread(target=send, args=given) for given in (("anna", 1), ("bert", 2))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert len(left(network)) == 2
        for name, value in (("anna", 1), ("bert", 2)):
            far = admin(network, line, name)
            run = far._begin({"plan": far.check_plan({"name": name, "rounds": 2})["plan"], "upload": runs[name]})["run"]
            assert set(far.model(run, 0)["w"]) == {value}
            far.stop(run)
        with pytest.raises(fluvial.CoordinatorRefused, match="404"):
            far._begin({"plan": far.check_plan({"name": "x", "rounds": 2})["plan"], "upload": runs["bert"]})
    assert left(network) == []


def test_what_is_too_large_is_refused_before_its_first_byte(network):
    with Line(network[2]) as line:
        with pytest.raises(fluvial.CoordinatorRefused, match=r"429.*a model of 39 MiB.*may have 32 MiB .*upload_bytes_max"):
            admin(network, line).start_run({"name": "large", "rounds": 2}, {"w": np.zeros(10_000_000, np.float32)})
        assert line.up_bytes < 1 << 16
        with pytest.raises(fluvial.CoordinatorRefused, match="429.*upload_bytes_max"):
            admin(network, line)._post("/v1/uploads", {"bytes": 1 << 62, "sha256": "0" * 64})
    assert left(network) == []


def test_what_is_no_model_is_refused_before_anything_is_sent(network, tmp_path):
    path = tmp_path / "no.safetensors"
    path.write_bytes(b"\x01" * 100)
    with Line(network[2]) as line:
        with pytest.raises(ValueError, match="is no model file"):
            admin(network, line)._upload(str(path))
        assert line.connections == 0


def test_a_model_that_is_not_what_was_declared_is_given_up(network):
    with Line(network[2]) as line:
        far = admin(network, line)
        data = os.urandom(1000)
        begun = far._post("/v1/uploads", {"bytes": 1000, "sha256": hashlib.sha256(data).hexdigest()})
        assert begun["bytes"] == 0
        with _http.pipe(far._connect) as pipe:
            for begin, part, status in ((0, data[:600], 200), (601, data[601:], 400), (600, data[600:-1] + b"!", 500)):
                pipe.ask("PUT", f"/v1/uploads/{begun['upload']}?from={begin}", part)
                answer = pipe.answer()
                assert answer[0] == status, answer
            assert b"SHA-256 differs" in answer[1]
    assert left(network) == []


def test_a_run_that_could_not_begin_leaves_its_model_for_the_next_try(network):
    with Line(network[2]) as line:
        far = admin(network, line)
        first = far.start_run({"name": "first", "rounds": 1_000_000}, {"w": np.zeros(2, np.float32)})
        with pytest.raises(fluvial.CoordinatorRefused, match="409.*is active"):
            far.start_run({"name": "second", "rounds": 2}, MODEL)
        assert len(left(network)) == 1
        far.stop(first)
        sent = line.up_bytes
        run_of(network, "second", lambda plan: far.start_run(plan, MODEL))
        assert line.up_bytes - sent < 1 << 16, "it was there"
