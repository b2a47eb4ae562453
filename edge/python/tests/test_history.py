"""What a run made, asked of the coordinator: rounds, metrics, models; and waiting for a run."""

import http.server
import json
import os
import socketserver
import ssl
import subprocess
import sys
import threading
import types

import numpy as np
import pytest

import fluvial
from fluvial import coordinator


def worker(site, index):
    for round in site.rounds("history"):
        model = {"w": round.arrays()["w"] + index + 1}
        round.submit(model, samples=10 * (index + 1), metrics={"loss": 1 / round.number, "site": index})


@pytest.fixture(scope="module")
def finished():
    with fluvial.testing.LocalFederation(sites=2) as local:
        local.start_run("history", {"w": np.zeros(4, np.float32)}, rounds=3)
        local.train(worker)
        local.wait("history", timeout_s=60)
        yield local


def test_rounds_say_who_was_in_and_what_was_reported(finished):
    rounds = finished.rounds("history")
    assert [round["round"] for round in rounds] == [1, 2, 3]
    assert [site["name"] for site in rounds[0]["contributors"]] == finished.sites
    assert rounds[1]["metrics"] == pytest.approx({"loss": 0.5, "site": 2 / 3})  # weighted with the samples
    sites = finished.site_metrics("history")
    assert sites[1] == {"round": 1, "site": "site-2", "weight": 20, "metrics": {"loss": 1.0, "site": 1.0}}
    assert len(sites) == 6


def test_a_coordinators_admin_socket_gives_the_same(finished, monkeypatch):
    monkeypatch.delenv("FLUVIAL_ADMIN", raising=False)
    monkeypatch.setenv("FLUVIAL_ADMIN_SOCKET", finished.admin_socket)
    admin = fluvial.admin()
    assert admin.rounds("history") == finished.rounds("history")
    assert admin.rounds("history", 2, 2)[0]["round"] == 2
    assert admin.run()["name"] == "history" and admin.runs()[0]["status"] == "done"
    assert {node["name"] for node in admin.nodes()} >= set(finished.sites)
    assert admin.status()["sites_connected"] == 2
    admin.wait("history")
    with pytest.raises(KeyError, match="histroy.*there are: history"):
        admin.rounds("histroy")
    with pytest.raises(fluvial.CoordinatorRefused, match="404"):
        admin.model("history", 99)


def test_best_is_the_round_of_the_least_or_greatest(finished):
    assert finished.admin.best("loss")["round"] == 3
    assert finished.admin.best("loss", "max")["round"] == 1
    with pytest.raises(KeyError, match="'los'.*there are: loss, site"):
        finished.admin.best("los")
    with pytest.raises(ValueError, match="'least'"):
        finished.admin.best("loss", "least")
    rounds = [{"round": 1, "metrics": {"loss": 1}, "evaluation": {"loss": 3}}, {"round": 2, "metrics": {"loss": float("nan")}}]
    assert coordinator.best(rounds, "loss")["round"] == 1


def test_models_of_rounds_can_be_had(finished, tmp_path):
    mean = (10 * 1 + 20 * 2) / 30
    np.testing.assert_allclose(finished.admin.model("history", 2)["w"], 2 * mean, rtol=1e-6)
    np.testing.assert_array_equal(finished.admin.model("history", 0)["w"], 0)
    path = finished.admin.download(str(tmp_path / "last.safetensors"), "history")
    np.testing.assert_allclose(fluvial.load_model(path)["w"], 3 * mean, rtol=1e-6)
    assert os.listdir(tmp_path) == ["last.safetensors"]


def test_a_frame_has_a_column_for_each_metric(finished, monkeypatch):
    pandas = types.ModuleType("pandas")
    pandas.DataFrame = lambda rows: rows
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    first = finished.rounds("history").frame()[0]
    assert first["metrics.loss"] == 1.0 and first["contributors"] == 2 and first["round"] == 1
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="needs pandas"):
        finished.rounds("history").frame()


def test_nobody_there_is_said_so(tmp_path, monkeypatch):
    with pytest.raises(fluvial.CoordinatorUnavailable, match="no coordinator answers at .*nowhere"):
        fluvial.admin(str(tmp_path / "nowhere"))
    monkeypatch.delenv("FLUVIAL_IDENTITY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ValueError, match="identity.*there is none in"):
        fluvial.admin("https://127.0.0.1:1")
    for name in ("anna", "bert"):
        (tmp_path / ".config" / "fluvial" / name).mkdir(parents=True)
        (tmp_path / ".config" / "fluvial" / name / "cert.pem").write_text("")
    with pytest.raises(ValueError, match="identity.*there are anna, bert"):
        fluvial.admin("https://127.0.0.1:1")
    with pytest.raises(ValueError, match="key.pem"):
        fluvial.admin("https://127.0.0.1:1", identity=str(tmp_path))
    with pytest.raises(ValueError, match="https://host:port"):
        fluvial.admin("http://127.0.0.1:1")


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


def test_waiting_for_a_stopped_run_raises(small):
    small.start_run("stopped", {"w": np.zeros(3, np.float32)}, rounds=5)
    small.stop_run("stopped")
    with pytest.raises(fluvial.RunFailed, match="stopped after 0 of 5 rounds") as failed:
        small.wait("stopped", timeout_s=60)
    assert failed.value.status == "stopped" and isinstance(failed.value, fluvial.FederationFailed)


def test_waiting_for_a_run_that_pauses_itself_raises(small):
    plan = {"attempts_max": 1, "deadlines": {"soft_min_ms": 50, "soft_ms": 50, "hard_ms": 100}}
    small.start_run("paused", {"w": np.zeros(3, np.float32)}, plan=plan)
    with pytest.raises(fluvial.RunFailed, match="paused after 0 of 1 rounds: .*no quorum"):
        small.wait("paused", timeout_s=60)


def test_waiting_ends_with_the_workers_own_error(small):
    def fails(site, index):
        for round in site.rounds("crash"):
            raise ZeroDivisionError("of the worker's own")

    small.start_run("crash", {"w": np.zeros(3, np.float32)})
    small.train(fails)
    with pytest.raises(fluvial.FederationFailed, match="site-1 failed: ZeroDivisionError: of the worker's own") as failed:
        small.wait("crash", timeout_s=60)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_waiting_ends_with_what_a_script_wrote(small):
    small.start_run("script", {"w": np.zeros(3, np.float32)})
    text = "import fluvial\nfor round in fluvial.connect().rounds('script'):\n    raise RuntimeError('no data')\n"
    small.start_worker(0, [sys.executable, "-c", text])
    with pytest.raises(fluvial.FederationFailed, match="site-1 ended with status 1(?s:.*)RuntimeError: no data"):
        small.wait("script", timeout_s=60)


def test_waiting_ends_when_an_exception_left_the_connections_block(small):
    small.start_run("block", {"w": np.zeros(3, np.float32)})

    def work():
        with small.connect(0) as site:
            for round in site.rounds("block"):
                raise KeyError("label")

    thread = threading.Thread(target=lambda: pytest.raises(KeyError, work))
    thread.start()
    with pytest.raises(fluvial.FederationFailed, match="KeyError: 'label'"):
        small.wait("block", timeout_s=60)
    thread.join()


def test_waiting_ends_when_nobody_is_left_to_train(small, monkeypatch):
    monkeypatch.setattr(fluvial.testing, "_WITHOUT_WORKER_SECONDS", 0.1)
    small.start_run("left", {"w": np.zeros(3, np.float32)})
    for round in small.connect(0).rounds("left"):
        break
    with pytest.raises(fluvial.FederationFailed, match="site-1 left round 1 of left in the middle"):
        small.wait("left", timeout_s=60)


def test_waiting_has_an_end_that_says_who_is_waited_for(small):
    small.start_run("slow", {"w": np.zeros(3, np.float32)})
    with pytest.raises(TimeoutError, match=r"run 1 \(slow\) is running after 0.2 s, with 0 of 1 rounds"):
        small.wait("slow", timeout_s=0.2)


def test_a_wait_for_nobody_in_particular_names_no_node(small, monkeypatch):
    waits = [{"node": "", "what": "sites", "reason": "1 of 2 are connected"}, {"node": "site-1", "reason": "not connected"}]
    about = {"name": "slow", "status": "running", "committed": 0, "rounds": 1, "waits": waits}
    monkeypatch.setattr(small.admin, "_get", lambda path: about)
    with pytest.raises(TimeoutError, match="it waits for 1 of 2 are connected; site-1: not connected"):
        small.admin.wait(1, timeout_s=0)


# ---- over mutual TLS, with a server that stands in for the coordinator's -----------------------------------------------


def openssl(folder, *arguments):
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def certificate(folder, name, uri, authority):
    (folder / "ext").write_text(f"subjectAltName=URI:{uri}\n")
    openssl(folder, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", f"{name}.key", "-out", f"{name}.csr")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-days", "1",
            "-extfile", "ext", "-out", f"{name}.pem")


def identity(folder, name):
    made = folder / f"identity-{name}"
    made.mkdir()
    for source, target in ((f"{name}.key", "key.pem"), (f"{name}.pem", "cert.pem"), ("ca.pem", "ca.pem")):
        (made / target).write_bytes((folder / source).read_bytes())
    return str(made)


class Answers(http.server.BaseHTTPRequestHandler):
    MODEL = None

    def answer(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        names = [name for kind, name in self.connection.getpeercert()["subjectAltName"] if kind == "URI"]
        if self.path == "/v1/models/1/2":
            return self.answer(json.dumps({"path": "/on/another/machine", "round": 2, "sha256": ""}).encode())
        return self.answer(json.dumps({"sites_connected": 3, "caller": names[0]}).encode())

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.answer(self.MODEL[asked["from"] : asked["from"] + (256 << 10)], "application/octet-stream")

    def log_message(self, *_):
        pass


@pytest.fixture
def tls(tmp_path):
    openssl(tmp_path, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=ca",
            "-keyout", "ca.key", "-out", "ca.pem", "-days", "1")
    certificate(tmp_path, "operator", "fluvial://operator/9/alice", "ca")

    def serve(name, uri):
        certificate(tmp_path, name, uri, "ca")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
        context.load_verify_locations(tmp_path / "ca.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answers)
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"https://127.0.0.1:{server.server_address[1]}"

    servers = []
    yield types.SimpleNamespace(folder=tmp_path, serve=serve)
    for server in servers:
        server.shutdown()
        server.server_close()


def test_an_operator_elsewhere_asks_over_mutual_tls(tls):
    fluvial.save_model(str(tls.folder / "model"), {"w": np.arange(40, dtype=np.float32)})
    Answers.MODEL = (tls.folder / "model").read_bytes()
    address = tls.serve("coordinator", "fluvial://coordinator/1/coordinator")
    admin = fluvial.admin(address, identity=identity(tls.folder, "operator"))
    assert admin.status()["caller"] == "fluvial://operator/9/alice"
    assert admin.model(1, 2)["w"].tolist() == list(range(40)), "in parts: the file is on the coordinator's machine"


def test_a_server_that_is_no_coordinator_is_refused(tls):
    address = tls.serve("site", "fluvial://site/4/hospital-a")
    with pytest.raises(fluvial.CoordinatorRefused, match="no coordinator of this federation"):
        fluvial.admin(address, identity=identity(tls.folder, "operator"))


def test_a_server_of_another_authority_is_refused(tls):
    address = tls.serve("coordinator", "fluvial://coordinator/1/coordinator")
    mine = identity(tls.folder, "operator")
    openssl(tls.folder, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=other",
            "-keyout", "other.key", "-out", os.path.join(mine, "ca.pem"), "-days", "1")
    with pytest.raises(fluvial.CoordinatorRefused, match="certificate verify failed"):
        fluvial.admin(address, identity=mine)
