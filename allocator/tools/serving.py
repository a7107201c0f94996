"""`shmtensor serve`: the service as a program; its options, its log, and who is told that it is ready."""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import time
from typing import Any

import click

from allocator.config import HTTP_TOKEN_VARIABLE, TICKET_GRACE_SECONDS
from allocator.service import Service, log, make_or_take_over, notify
from allocator.tools.app import Size, size
from allocator.tools.web import Web, listen

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Address(click.ParamType[tuple[str, int]]):
    """Where to listen: HOST:PORT, or a port alone for this machine only. Port 0 is one that is free."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Host and port."""
        host, _, port = value.rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            self.fail(f"{value!r} is no address: write 127.0.0.1:8000, [::1]:8000 or 8000", param, ctx)
        return host.strip("[]") or "127.0.0.1", int(port)


@click.command("serve")
@click.option("--name", required=True, help="Of the pool: 1 to 14 letters, digits, '_', '.' or '-'.")
@click.option("--limit", type=Size(), help="Of a new pool, as in 4G; by default 80 % of what the machine has free.")
@click.option("--ticket-grace", default=TICKET_GRACE_SECONDS, show_default=True, help="Of a new pool: see Pool.create.")
@click.option("--drain", default=10.0, show_default=True, help="Seconds to wait for clients after SIGTERM or SIGINT.")
@click.option("--idle-exit", type=float, help="Leave after so many seconds without a client.")
@click.option("--ready-fd", type=int, help="Write the pool's name, and the page's address, here once clients can come.")
@click.option(
    "--http", type=Address(), help="Serve the page, /metrics, /healthz and /api here; a port alone: loopback."
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True)
def serve_command(
    name: str,
    limit: int | None,
    ticket_grace: float,
    drain: float,
    idle_exit: float | None,
    ready_fd: int | None,
    http: tuple[str, int] | None,
    log_format: str,
    log_level: str,
) -> None:
    """Keep a pool while clients come and go: make it, or take over a living one of that name.

    Every second it takes back what dead processes had. Clients attach with Pool.attach(NAME) or
    SHMTENSOR_POOL=NAME, and need it for nothing else: killed, it is missed by nobody, its names stay, and the next
    serve takes the pool over. On SIGTERM, or Ctrl-C, it lets no new client in, waits for those there are up to
    --drain seconds, and leaves; a second signal ends the wait. The pool goes with its last client.

    --http shows the pool, live, to whoever has the address that is logged: a token is part of it, a new one at each
    start unless SHMTENSOR_HTTP_TOKEN says which.
    """
    _log_to_stderr(log_format, log_level)
    listener = None if http is None else _listen(*http)
    pool, was_there = make_or_take_over(name, limit=limit, ticket_grace=ticket_grace)
    if was_there and limit not in (None, pool.limit):
        log.warning("the pool has another limit", extra={"limit": size(pool.limit), "asked": size(limit or 0)})

    web: Web | None = None

    def ready() -> None:
        nonlocal web
        event = "took over" if was_there else "made"
        log.info(event, extra={"pool": pool.name, "limit": size(pool.limit), "pid": os.getpid()})
        lines = f"{pool.name}\n"
        if listener is not None:
            web = Web(pool.name, listener, os.environ.get(HTTP_TOKEN_VARIABLE) or secrets.token_urlsafe(24))
            log.info("page", extra={"address": web.address})
            lines += f"{web.address}\n"
        notify("READY=1")
        if ready_fd is not None:
            os.write(ready_fd, lines.encode())
            os.close(ready_fd)

    try:
        Service(pool, drain=drain, idle_exit=idle_exit).run(ready)
    finally:
        if web is not None:
            web.end()


def _listen(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        raise click.UsageError(f"can't listen on {host} port {port}: {error}") from None


def _log_to_stderr(log_format: str, log_level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines() if log_format == "text" else _JsonLines())
    log.addHandler(handler)
    log.setLevel(log_level.upper())
    log.propagate = False


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _ORDINARY}


class _Lines(logging.Formatter):
    """One line an event: time, level, what happened, and key=value."""

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        facts = " ".join(f"{key}={value}" for key, value in _facts(record).items())
        return f"{when} {record.levelname.lower()} {record.getMessage()} {facts}".rstrip()


class _JsonLines(logging.Formatter):
    """One JSON object a line: time in seconds since 1970, level, event, and its facts."""

    def format(self, record: logging.LogRecord) -> str:
        head = {"time": round(record.created, 3), "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps({**head, **_facts(record)}, ensure_ascii=False)
