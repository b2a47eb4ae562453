"""What stands between a browser and the admin socket: `fluvial console` asked by hand, over real sockets."""

import http.client
import json
import re
import signal
import socket
import urllib.parse

from browser import until


class Door:
    def __init__(self, process, address):
        self.process = process
        self.address = urllib.parse.urlsplit(address)
        self.port = self.address.port
        self.key = urllib.parse.parse_qs(self.address.query)["key"][0]
        self.cookie = ""

    def ask(self, path, method="GET", body=None, **headers):
        """(status, text, headers)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        if self.cookie:
            given.setdefault("Cookie", self.cookie)
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text, {key.lower(): value for key, value in answer.getheaders()}

    def enter(self):
        status, _, headers = self.ask(f"/?key={self.key}")
        assert status == 200
        self.cookie = headers["set-cookie"].split(";")[0]
        return headers


def lets_one_browser_in(federation):
    door = Door(*federation.console())
    assert door.address.hostname == "127.0.0.1" and door.address.path == "/"
    assert re.fullmatch("[0-9a-f]{64}", door.key)
    for path in ("/", "/console/main.js", "/v1/status", "/v1/events", "/session"):
        status, text, _ = door.ask(path)
        assert status == 401 and "one-time address" in text, (path, status, text)
    assert door.ask(f"/?key={'0' * 64}")[0] == 403
    headers = door.enter()
    assert re.fullmatch(rf"fluvial-console-{door.port}=[0-9a-f]{{64}}; HttpOnly; SameSite=Strict; Path=/", headers["set-cookie"])
    assert door.key not in headers["set-cookie"]
    status, text, headers = door.ask(f"/?key={door.key}")
    assert status == 403 and "has been used" in text and "start it again" in text and "set-cookie" not in headers
    assert door.ask("/", Cookie=door.cookie + "0")[0] == 401
    status, text, headers = door.ask("/")
    assert status == 200 and text.startswith("<!doctype html>")
    assert "frame-ancestors 'none'" in headers["content-security-policy"] and "default-src 'self'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
    for name, kind in (("main.js", "text/javascript"), ("style.css", "text/css"), ("icon.svg", "image/svg+xml")):
        status, _, headers = door.ask(f"/console/{name}")
        assert status == 200 and headers["content-type"].startswith(kind), (name, headers)
        assert headers["x-content-type-options"] == "nosniff"
    status, text, _ = door.ask("/v1/status")
    assert status == 200 and json.loads(text)["role"] == "coordinator"
    door.process.send_signal(signal.SIGINT)
    assert door.process.wait(60) == 0
    assert not answers(door.port)


def refuses_other_pages(federation):
    door = Door(*federation.console())
    door.enter()
    here = f"127.0.0.1:{door.port}"
    for host in ("evil.example", f"evil.example:{door.port}", "127.0.0.1", f"127.0.0.1:{door.port + 1}", f"[::1]:{door.port}"):
        assert door.ask("/v1/status", Host=host)[0] == 421, host
    assert door.ask("/v1/status", Host=f"localhost:{door.port}")[0] == 200
    for origin in ("http://evil.example", "null", f"http://127.0.0.1:{door.port + 1}", f"https://{here}", f"http://localhost:{door.port}"):
        assert door.ask("/v1/status", Origin=origin)[0] == 403, origin
        assert door.ask("/v1/runs/1/stop", "POST", Origin=origin, X_Fluvial_Console="1")[0] == 403, origin
    assert door.ask("/v1/status", Origin=f"http://{here}")[0] == 200
    assert door.ask("/v1/status", Sec_Fetch_Site="same-site")[0] == 403


def carries_little_of_the_admin_api(federation):
    door = Door(*federation.console())
    door.enter()
    ours = {"X_Fluvial_Console": "1"}
    for path in ("/v1/tokens", "/v1/backup", "/v1/models/1/latest", "/v1/rounds/watch", "/v1/../v1/tokens", "/v1/%2e%2e/v1/tokens",
                 "/console/..%2f..%2fv1%2ftokens", "//v1/tokens"):
        assert door.ask(path)[0] in (403, 404), path
    for path in ("/v1/tokens", "/v1/nodes/hospital-oslo/revoke", "/v1/nodes/hospital-oslo/remove", "/v1/runs", "/v1/backup"):
        assert door.ask(path, "POST", "{}", **ours)[0] == 403, path
    assert door.ask("/v1/runs/1/stop", "POST")[0] == 403, "without the header"
    assert door.ask("/v1/runs/1/stop", "DELETE", **ours)[0] == 405
    status, text, _ = door.ask("/v1/runs/999/stop", "POST", **ours)
    assert status in (404, 409) and json.loads(text)["message"], "the coordinator's own answer"
    assert [node["name"] for node in federation.ask("nodes", "list")["nodes"] if node["revoked"]] == []
    assert door.ask("/v1/status", X_Large="x" * 20_000)[0] == 431
    assert door.ask("/v1/runs/1/stop", "POST", "x" * 2_000, **ours)[0] == 413
    reader = Door(*federation.console("--read-only"))
    reader.enter()
    status, text, _ = reader.ask("/v1/runs/1/pause", "POST", **ours)
    assert status == 403 and "--read-only" in text
    assert json.loads(reader.ask("/session")[1]) == {"read_only": True}


def bounds_its_connections(federation):
    door = Door(*federation.console())
    door.enter()
    idle = [socket.create_connection(("127.0.0.1", door.port)) for _ in range(40)]
    for one in idle:
        one.sendall(b"GET /session HTTP/1.1\r\n")  # and no more
    for _ in range(8):
        assert served(door), "who asks nothing gives way"
    until("the stillest to be closed", lambda: closed(idle[0]))
    for one in idle:
        one.close()
    with open("/proc/net/tcp", encoding="ascii") as table:
        listening = [line.split()[1] for line in table if line.split()[3] == "0A"]
    assert f"0100007F:{door.port:04X}" in listening and f"00000000:{door.port:04X}" not in listening


def served(door):
    try:
        return door.ask("/session")[0] == 200
    except (ConnectionError, http.client.HTTPException):
        return False


def closed(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    except ConnectionRefusedError:
        return False


class Stream:
    """GET /v1/events on the admin socket itself."""

    def __init__(self, federation, last_id=""):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(federation.socket))
        self.socket.sendall(f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {last_id}\r\n\r\n".encode())
        self.answer = http.client.HTTPResponse(self.socket)
        self.answer.begin()

    def next(self):
        """The next event; comments are none."""
        event = {}
        for line in iter(self.answer.readline, b""):
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name in ("id", "event", "data"):
                event[name] = value
            elif name == "" and "data" in event and not value:
                return event
        raise AssertionError("the stream ended")

    def close(self):
        self.answer.close()
        self.socket.close()


def streams_events(federation):
    first = Stream(federation)
    assert first.answer.headers["content-type"] == "text/event-stream"
    begun = first.next()
    told = json.loads(begun["data"])
    assert begun["event"] == "reset" and {node["name"] for node in told["nodes"]} >= {"hospital-oslo", "eu-west-1"}
    assert told["status"]["federation"] == "eu-hospitals" and isinstance(told["recent"], list)
    committed = first.next()
    while committed["event"] != "committed":
        committed = first.next()
    assert json.loads(committed["data"])["round"] >= 1 and "at" in json.loads(committed["data"])
    first.close()
    resumed = Stream(federation, committed["id"])
    following = resumed.next()
    assert following["event"] != "reset" and number(following) > number(committed), (committed["id"], following["id"])
    resumed.close()
    for unknown in ("0-1", "nonsense", committed["id"].split("-")[0] + "-99999999"):
        stream = Stream(federation, unknown)
        assert stream.next()["event"] == "reset", unknown
        stream.close()


def number(event):
    return int(event["id"].split("-")[1])


def bounds_its_watchers(federation):
    streams = [Stream(federation) for _ in range(16)]
    turned_away = Stream(federation)
    assert turned_away.answer.status == 429 and b"close another console" in turned_away.answer.read()
    turned_away.close()
    for stream in streams:
        stream.close()

    def free():
        stream = Stream(federation)
        status = stream.answer.status
        stream.close()
        return status == 200

    until("a place to be free again", free)


CHECKS = [lets_one_browser_in, refuses_other_pages, carries_little_of_the_admin_api, bounds_its_connections, streams_events,
          bounds_its_watchers]
