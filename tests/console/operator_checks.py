"""The console over the network: `fluvial console --admin https://...` with an operator's certificate, and what is refused without."""

import http.client
import ssl
import subprocess

from browser import Page
from door_checks import Door


def a_reader_looks_from_elsewhere(federation, browser):
    identity = federation.operator("anna", "read")
    process, address = federation.console(identity=identity)
    page = Page(browser)
    assert page.go(address) == 200
    page.wait_text("eu-hospitals", "#federation")
    page.wait_text("live", "#connection")
    page.wait_text("4", "[data-key=Sites] dd")
    page.wait_text("hospital-oslo", "#tree")
    page.wait_text("running", "#runs .pill")
    page.wait_text("committed", "#events")  # the stream goes on
    assert page.value("document.querySelectorAll('[data-verb]').length") == 0, "no button that changes something"
    page.expect_no_errors()
    page.close()
    process.kill()

    door = Door(*federation.console(identity=identity))
    door.enter()
    status, text, _ = door.ask(f"/v1/runs/{federation.ask('run', 'show')['id']}/pause", "POST", X_Fluvial_Console="1")
    assert status == 403 and "may only look" in text, (status, text)
    assert federation.ask("run", "show")["status"] == "running"


def a_full_operator_pauses_a_run_from_elsewhere(federation, browser):
    _, address = federation.console(identity=federation.operator("bert", "full"))
    page = Page(browser)
    page.go(address)
    page.wait_text("live", "#connection")
    for verb, state in (("pause", "paused"), ("resume", "running")):
        button = f"document.querySelector('[data-verb={verb}]')"
        page.wait("the button", f"!!{button}")
        page.value(f"{button}.click()")  # without a pointer: the page moves with each round
        page.wait("the question", "document.querySelector('#confirm').open")
        page.value("document.querySelector('#confirm-yes').click()")
        page.wait_text(state, "#runs .pill")
        page.wait("the answer", "!document.querySelector('#confirm').open")
        assert federation.ask("run", "show")["status"] == state
        entry = federation.ask("audit", "show", "--kind", f"run-{verb}d", "--last", 1)["entries"][-1]
        assert entry["by"] == "operator" and entry["operator"] == "bert" and entry["from"].startswith("127.0.0.1:"), entry
    page.expect_no_errors()
    page.close()


def a_revoked_operator_is_shut_out_of_an_open_page(federation, browser):
    identity = federation.operator("carl", "full")
    _, address = federation.console(identity=identity)
    page = Page(browser)
    page.go(address)
    page.wait_text("live", "#connection")
    door = Door(*federation.console(identity=identity))
    door.enter()
    assert door.ask("/v1/status")[0] == 200
    federation.fluvial("nodes", "revoke", "carl")
    page.wait_text("connection lost", "#connection")
    for path, method in (("/v1/status", "GET"), ("/v1/events", "GET"), ("/v1/runs/1/stop", "POST")):
        status, text, _ = door.ask(path, method, X_Fluvial_Console="1")
        assert status == 403 and "revoked" in text, (path, status, text)
    page.close()


def nobody_comes_without_an_operators_certificate(federation, _):
    place = federation.admin_url
    for identity, why in ((federation.folder / "hospital-oslo/identity", "is the identity of site"),
                          (federation.folder / "nobody", "holds no identity")):
        done = subprocess.run([federation.bin / "fluvial", "console", "--admin", place, "--identity", identity, "--no-open", "--json"],
                              check=False, text=True, capture_output=True, timeout=60)
        assert done.returncode != 0 and why in done.stderr and done.stdout == "", (done.stdout, done.stderr)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(federation.folder / "operator-anna/ca.pem")
    context.set_alpn_protocols(["http/1.1"])
    try:
        ask(federation, context, "/v1/status")
        raise AssertionError("answered without a certificate")
    except (ssl.SSLError, ConnectionError, http.client.HTTPException):
        pass


def answers_no_page_that_a_browser_has_open(federation, _):
    """A person may have put their certificate into a browser, which then shows it for whatever page asks."""
    identity = federation.operator("dora", "full")
    context = ssl.create_default_context(cafile=identity / "ca.pem")
    context.load_cert_chain(identity / "cert.pem", identity / "key.pem")
    context.set_alpn_protocols(["http/1.1"])
    assert ask(federation, context, "/v1/status")[0] == 200
    run = federation.ask("run", "show")["id"]
    for header in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}, {"Origin": federation.admin_url}):
        for path, method in (("/v1/status", "GET"), (f"/v1/runs/{run}/stop", "POST")):
            status, text = ask(federation, context, path, method, header)
            assert status == 403 and "a page in a browser" in text, (header, path, status, text)
    assert federation.ask("run", "show")["status"] == "running"


def ask(federation, context, path, method="GET", headers=None):
    """(status, text)"""
    connection = http.client.HTTPSConnection("127.0.0.1", federation.ports[2], context=context, timeout=60)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


CHECKS = [a_reader_looks_from_elsewhere, a_full_operator_pauses_a_run_from_elsewhere, a_revoked_operator_is_shut_out_of_an_open_page,
          nobody_comes_without_an_operators_certificate, answers_no_page_that_a_browser_has_open]
