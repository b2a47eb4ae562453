"""A coordinator of the test's own making: the console's files as they lie, answers and events as the test wants them. For what a
real federation shows seldom, or must never: faults, hostile names, hundreds of members."""

import http.server
import json
import pathlib
import queue
import threading

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}
# As coordinator/service/admin/page.cc has it; console_test.py compares.
POLICY = ("default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
          "require-trusted-types-for 'script'; trusted-types 'none'")


class StandIn:
    def __init__(self, answers):
        self.answers = answers  # by path, without the query
        self.changes = []  # (path, headers) of each POST
        self.last_ids = []  # of each stream that was asked for
        self.refuse_changes = ""
        self.number = 0
        self.streams = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, status, kind, body, more=()):
                self.send_response(status)
                for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *more):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                path = self.path.split("?")[0]
                file = SOURCE / "coordinator/console" / ("index.html" if path == "/" else path.removeprefix("/console/"))
                if path == "/v1/events":
                    outer.serve_events(self)
                elif path in outer.answers:
                    self.reply(200, "application/json", json.dumps(outer.answers[path]).encode())
                elif (path == "/" or path.startswith("/console/")) and file.is_file():
                    self.reply(200, TYPES[file.suffix], file.read_bytes(), [("Content-Security-Policy", POLICY)])
                else:
                    self.reply(404, "application/json", b'{"code":"not_found","message":"no such thing"}')

            def do_POST(self):
                outer.changes.append((self.path, dict(self.headers)))
                if outer.refuse_changes:
                    self.reply(409, "application/json", json.dumps({"code": "failed_precondition", "message": outer.refuse_changes}).encode())
                else:
                    self.reply(200, "application/json", b"{}")

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # a page that is closed breaks off its connections

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/"

    def reset(self):
        return {"status": self.answers["/v1/status"], "nodes": self.answers["/v1/nodes"]["nodes"],
                "recent": self.answers.get("recent", [])}

    def serve_events(self, request):
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Connection", "close")
        request.end_headers()
        events = queue.Queue()
        self.last_ids.append(request.headers.get("Last-Event-ID", ""))
        if not self.last_ids[-1]:
            events.put(("reset", self.reset()))
        self.streams.append(events)
        while (event := events.get()) is not None:
            self.number += 1
            request.wfile.write(f"id: 1-{self.number}\nevent: {event[0]}\ndata: {json.dumps(event[1])}\n\n".encode())
            request.wfile.flush()
        request.close_connection = True

    def send(self, name, data):
        for stream in self.streams:
            stream.put((name, data))

    def hang_up(self):
        for stream in self.streams:
            stream.put(None)
        self.streams = []

    def close(self):
        self.hang_up()
        self.server.shutdown()
        self.server.server_close()
