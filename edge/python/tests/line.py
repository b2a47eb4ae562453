"""A line between a client and a coordinator, for tests: it counts connections, delays what passes, and can be cut."""

import contextlib
import heapq
import socket
import threading
import time


_UNDER_WAY_MAX = 256  # pieces of 64 KiB in one direction


class Line:
    """Forwards connections to `target`. delay_s: each way. cut_after: so many bytes towards the target, once each.

    connections: so many were made. up_bytes: so many got to the target.
    """

    def __init__(self, target, delay_s=0.0, cut_after=()):
        self.connections = 0
        self.up_bytes = 0
        self._target, self._delay_s, self._cuts = target, delay_s, sorted(cut_after)
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in list(self._open):
            _end(one)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections += 1
                server = socket.create_connection(self._target)
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._open += [client, server]
                for ends, is_up in (((client, server), True), ((server, client), False)):
                    threading.Thread(target=self._forward, args=(*ends, is_up), daemon=True).start()

    def _forward(self, source, target, is_up):
        arrived, ready = [], threading.Condition()

        def deliver():
            while True:
                with ready:
                    ready.wait_for(lambda: arrived)
                    due, _, data = heapq.heappop(arrived)
                    ready.notify()
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    if not data:
                        return target.shutdown(socket.SHUT_WR)
                    target.sendall(data)
                except OSError:
                    return _end(source)
                if is_up and self._is_cut(len(data)):
                    _end(source)
                    return target.shutdown(socket.SHUT_WR)  # what got there is read

        threading.Thread(target=deliver, daemon=True).start()
        number, data = 0, b"-"
        while data:
            try:
                data = source.recv(1 << 16)
            except OSError:
                data = b""
            with ready:
                ready.wait_for(lambda: len(arrived) < _UNDER_WAY_MAX or not data, timeout=60)
                heapq.heappush(arrived, (time.monotonic() + self._delay_s, number, data))
                ready.notify()
            number += 1

    def _is_cut(self, count):
        with self._lock:
            self.up_bytes += count
            if self._cuts and self.up_bytes >= self._cuts[0]:
                del self._cuts[0]
                return True
        return False


def _end(one):
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
