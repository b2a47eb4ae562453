"""A parent that lies: it has an aggregator's own key, so children come to it, and says what no coordinator has signed."""

import contextlib
import socket
import ssl
import struct
import threading


def _field(number, content):
    """A message or text of less than 128 bytes within another (docs/formats/frame.md, proto/fluvial/v1/wire.proto)."""
    tag = number << 3 | 2
    head = bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    return head + bytes([len(content)]) + content


def _frame(envelope):
    return b"FLV1" + struct.pack("<III", len(envelope), 0, 0) + envelope


WELCOME = _frame(_field(2, b"\x08\x02" + _field(2, b"liar")))  # protocol 2
RENEWED = _frame(_field(19, _field(1, b"no certificate")))


class Liar:
    """Listens at `address` from the beginning; answers once serve() says whose key it has, until the end of the block."""

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        return self

    def __exit__(self, *why):
        # Wakes accept(), as close() alone would not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def serve(self, identity):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(identity / "cert.pem", identity / "key.pem")
        context.set_alpn_protocols(["fluvial/1"])
        threading.Thread(target=self._accept, args=[context], daemon=True).start()

    def _accept(self, context):
        while True:
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lie, args=[context, wire], daemon=True).start()

    @staticmethod
    def _lie(context, wire):
        with contextlib.suppress(OSError), wire, context.wrap_socket(wire, server_side=True) as session:
            session.recv(16)  # Hello
            session.sendall(WELCOME + RENEWED)
            while session.recv(4096):
                pass
