"""`shmtensor serve --http`: a pool's page, its numbers as JSON and for Prometheus, for whoever has the token.

A process of its own, which looks at the pool from outside: whatever is asked of it, and however slowly, the service's
upkeep goes on. It ends when the service does, also when that is killed: the pipe between them says so.
"""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from allocator.errors import AllocatorError
from allocator.survey import survey
from allocator.tools.portrait import portrait

FRESH_SECONDS = 0.5  # a portrait so old is given again: many who look cost the pool what one does
SAMPLE_SECONDS, SAMPLES = 1.0, 1800
HEALTHY_SECONDS = 5.0  # the service's upkeep comes each second
REQUEST_SECONDS = 10.0  # of silence, then the connection is closed
MOST_REQUESTS = 32  # at a time
END_SECONDS = 5.0
PARTS = ("stats", "size_classes", "clients", "spans", "tensors", "tickets", "names")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
PAGE = Path(__file__).with_name("page.html")


# ---- in the service


class Web:
    """The process that answers, and where. Made once there is a pool, from a socket that listens."""

    def __init__(self, pool: str, listener: socket.socket, token: str) -> None:
        host, port = listener.getsockname()[:2]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}/?token={quote(token)}"
        with listener:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "allocator.tools.web", pool, str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                process_group=0,  # Ctrl-C is for the service: the page shows how it drains
                text=True,
            )
        assert self.process.stdin is not None
        self.process.stdin.write(f"{token}\n")  # neither arguments nor environment: others can read those
        self.process.stdin.flush()

    def end(self) -> None:
        """Close the pipe, and wait; not for one that is stopped."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. Raises OSError."""
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


# ---- in the process that answers


class Watch:
    """What is known of a pool. One look at a time in this process: a second one that ended would drop the lock under
    which the first one copies.
    """

    def __init__(self, pool: str) -> None:
        self.pool = pool
        self.looking = threading.Lock()
        self.history: deque[tuple[float, int, int, int]] = deque(maxlen=SAMPLES)
        self.taken = float("-inf")
        self.last: dict[str, Any] = {}

    def look(self) -> dict[str, Any]:
        """The portrait, at most `FRESH_SECONDS` old."""
        with self.looking:
            if time.monotonic() - self.taken > FRESH_SECONDS:
                self.last = portrait(survey(self.pool))
                self.taken = time.monotonic()
            return self.last

    def metrics(self) -> bytes:
        """For Prometheus. Raises ModuleNotFoundError without the extra `service`."""
        from prometheus_client import CollectorRegistry, generate_latest

        from allocator.tools.metrics import PoolCollector

        registry = CollectorRegistry(auto_describe=False)
        with self.looking:
            registry.register(PoolCollector(self.pool))
            return bytes(generate_latest(registry))

    def sample(self) -> None:
        """Note used, committed and limit, with the time in seconds since 1970."""
        stats = self.look()["stats"]
        self.history.append((time.time(), stats["used_bytes"], stats["committed_bytes"], stats["limit_bytes"]))

    def keep_sampling(self) -> None:
        """For ever."""
        while True:
            with suppress(AllocatorError, OSError):
                self.sample()
            time.sleep(SAMPLE_SECONDS)


class Server(ThreadingHTTPServer):
    """Answers on a socket that listens already, to so many at a time; the others are cut off."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, watch: Watch, token: str) -> None:
        super().__init__(listener.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket, self.watch, self.token = listener, watch, token.encode()
        self.places = threading.BoundedSemaphore(MOST_REQUESTS)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, if there is a place."""
        if self.places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Silent where who asked has gone."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request. GET only, and nothing without the token."""

    server: Server
    timeout = REQUEST_SECONDS
    server_version, sys_version = "shmtensor", ""

    def do_GET(self) -> None:
        """Answer."""
        try:
            asked = urlsplit(self.path)
        except ValueError as error:
            self._answer_json(400, {"error": str(error)})
            return
        if not self._has_token(asked.query):
            self._answer_json(403, {"error": "open the address that shmtensor serve printed: the token is part of it"})
            return
        try:
            self._answer_path(asked.path)
        except AllocatorError as error:
            self._answer_json(503, {"error": str(error)})
        except ModuleNotFoundError as error:
            self._answer_json(501, {"error": f"metrics need {error.name}: pip install 'shmtensor[service]'"})

    def _has_token(self, query: str) -> bool:
        given = [self.headers.get("Authorization", "").removeprefix("Bearer "), *parse_qs(query).get("token", [])]
        return any(secrets.compare_digest(token.encode(errors="replace"), self.server.token) for token in given)

    def _answer_path(self, path: str) -> None:
        watch, part = self.server.watch, path.removeprefix("/api/")
        if path == "/":
            self._answer(200, "text/html; charset=utf-8", PAGE.read_bytes())
        elif path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", watch.metrics())
        elif path == "/healthz":
            late = watch.look()["upkeep_seconds"]
            healthy = late is not None and late < HEALTHY_SECONDS
            self._answer_json(200 if healthy else 503, {"healthy": healthy, "upkeep_seconds": late})
        elif path == "/api/pool":
            self._answer_json(200, watch.look())
        elif path == "/api/history":
            self._answer_json(200, [list(point) for point in tuple(watch.history)])
        elif path.startswith("/api/") and part in PARTS:
            self._answer_json(200, watch.look()[part])
        else:
            there = ["/", "/metrics", "/healthz", "/api/pool", "/api/history", *(f"/api/{part}" for part in PARTS)]
            self._answer_json(404, {"error": f"nothing is here: there are {', '.join(there)}"})

    def _answer_json(self, status: int, value: Any) -> None:
        self._answer(status, "application/json", json.dumps(value, ensure_ascii=False).encode(errors="replace"))

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the service's log is of events, and addresses hold the token."""


def main(pool: str, descriptor: int) -> None:
    """Answer until stdin ends, whose first line is the token."""
    token = sys.stdin.readline().rstrip("\n")
    if not token:
        return
    watch = Watch(pool)
    server = Server(socket.socket(fileno=descriptor), watch, token)
    for work in (server.serve_forever, watch.keep_sampling):
        threading.Thread(target=work, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
