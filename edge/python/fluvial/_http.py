"""HTTP to a coordinator: over its admin socket, or over mutual TLS with an operator's certificate."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
from typing import Any, Callable, Iterator, Optional, Tuple
from urllib.parse import urlsplit

from .errors import CoordinatorRefused, CoordinatorUnavailable

Connector = Callable[[Optional[float]], http.client.HTTPConnection]
_NAME = "fluvial://coordinator/"  # how a coordinator's certificate begins its name
_DEFAULT_PORT = 7402
_HEAD_BYTES_MAX = 1 << 10  # an answer's first line
_ANSWER_BYTES_MAX = 1 << 20


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: Optional[float]) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class _TlsConnection(http.client.HTTPSConnection):
    """The server is known by its certificate's role, not by a host's name: a federation has an authority of its own."""

    def connect(self) -> None:
        super().connect()
        names = [name for kind, name in self.sock.getpeercert().get("subjectAltName", ()) if kind == "URI"]
        if not any(name.startswith(_NAME) for name in names):
            self.close()
            raise ssl.SSLCertVerificationError(f"{self.host}:{self.port} is no coordinator of this federation, but {names}")


def connector(address: str, identity: Optional[str], timeout_s: float) -> Connector:
    """Makes connections to `address`: a socket's path, or https://host:port with the folder `identity`."""
    if not address.startswith(("https://", "http://")):
        if identity is not None:
            raise ValueError("identity belongs to an address https://host:port; the admin socket knows its caller by its user")
        path = os.path.expanduser(address)
        return lambda silence_s: _UnixConnection(path, silence_s or timeout_s)
    place = urlsplit(address)
    if place.scheme != "https" or not place.hostname:
        raise ValueError(f"{address}: expected https://host:port, or the path of an admin socket")
    context = _context(os.path.expanduser(identity or os.environ.get("FLUVIAL_IDENTITY") or _only_identity()))
    host, port = place.hostname, place.port or _DEFAULT_PORT
    return lambda silence_s: _TlsConnection(host, port, timeout=silence_s or timeout_s, context=context)


def _only_identity() -> str:
    """The one that `fluvial enroll` made on this machine."""
    folder = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "fluvial")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    there = [name for name in names if os.path.exists(os.path.join(folder, name, "cert.pem"))]
    if len(there) != 1:
        which = f"there are {', '.join(there)} in {folder}" if there else f"there is none in {folder}"
        raise ValueError(f"https needs identity, the folder with the operator's key.pem, cert.pem and ca.pem: {which}")
    return os.path.join(folder, there[0])


def _context(folder: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # _TlsConnection checks the name
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_verify_locations(os.path.join(folder, "ca.pem"))
        context.load_cert_chain(os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem"))
    except (OSError, ssl.SSLError) as error:
        raise ValueError(f"{folder}: expected an operator's key.pem, cert.pem and ca.pem there ({error})") from error
    return context


@contextlib.contextmanager
def request(connect: Connector, method: str, path: str, body: Any, silence_s: Optional[float] = None) -> Iterator[Any]:
    """One request; its answer, while the block lasts. CoordinatorUnavailable: there is none."""
    with _connected(connect(silence_s)) as connection:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {} if data is None else {"Content-Type": "application/json"})
        yield connection.getresponse()


@contextlib.contextmanager
def pipe(connect: Connector) -> Iterator["Pipe"]:
    """A connection whose requests may follow each other before their answers come. CoordinatorUnavailable: it is cut."""
    with _connected(connect(None)) as connection:
        connection.connect()
        yield Pipe(connection)


class Pipe:
    """What pipe() gives. So many requests may be without an answer that the answers stay within what sockets hold."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._socket = connection.sock
        self._answers = self._socket.makefile("rb")

    def ask(self, method: str, path: str, body: bytes) -> None:
        head = f"{method} {path} HTTP/1.1\r\nHost: coordinator\r\nContent-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)

    def answer(self) -> Tuple[int, bytes]:
        """Status and body of the first request's that has none yet."""
        line = self._answers.readline(_HEAD_BYTES_MAX).split()
        if len(line) < 2 or not line[1].isdigit():
            raise http.client.BadStatusLine("the coordinator closed the connection")
        length = int(http.client.parse_headers(self._answers).get("Content-Length") or 0)
        data = self._answers.read(min(length, _ANSWER_BYTES_MAX))
        return int(line[1]), data


@contextlib.contextmanager
def _connected(connection: http.client.HTTPConnection) -> Iterator[http.client.HTTPConnection]:
    """Closes it in the end; what goes wrong in between is one of this package's errors."""
    try:
        yield connection
    except ssl.SSLEOFError as error:
        raise CoordinatorUnavailable(f"{_name(connection)}: the connection was cut") from error
    except ssl.SSLError as error:
        raise CoordinatorRefused(f"{_name(connection)}: {error}") from error
    except PermissionError as error:
        raise CoordinatorRefused(f"{_name(connection)}: this user may not open the admin socket (admin_users)") from error
    except (OSError, http.client.HTTPException) as error:
        why = str(error) or type(error).__name__
        raise CoordinatorUnavailable(f"no coordinator answers at {_name(connection)} ({why})") from error
    finally:
        connection.close()


def _name(connection: http.client.HTTPConnection) -> str:
    return getattr(connection, "_path", None) or f"{connection.host}:{connection.port}"
