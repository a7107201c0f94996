"""`shmtensor serve`: the service as a program; its options, its log, and who is told that it is ready."""

from __future__ import annotations

import json
import logging
import os
import time
from typing import Any

import click

from allocator.config import TICKET_GRACE_SECONDS
from allocator.service import Service, log, make_or_take_over, notify
from allocator.tools.app import Size, size

_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@click.command("serve")
@click.option("--name", required=True, help="Of the pool: 1 to 14 letters, digits, '_', '.' or '-'.")
@click.option("--limit", type=Size(), help="Of a new pool, as in 4G; by default 80 % of what the machine has free.")
@click.option("--ticket-grace", default=TICKET_GRACE_SECONDS, show_default=True, help="Of a new pool: see Pool.create.")
@click.option("--drain", default=10.0, show_default=True, help="Seconds to wait for clients after SIGTERM or SIGINT.")
@click.option("--idle-exit", type=float, help="Leave after so many seconds without a client.")
@click.option("--ready-fd", type=int, help="Write the pool's name here once clients can come, and close it.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning"]), default="info", show_default=True)
def serve_command(
    name: str,
    limit: int | None,
    ticket_grace: float,
    drain: float,
    idle_exit: float | None,
    ready_fd: int | None,
    log_format: str,
    log_level: str,
) -> None:
    """Keep a pool while clients come and go: make it, or take over a living one of that name.

    Every second it takes back what dead processes had. Clients attach with Pool.attach(NAME) or
    SHMTENSOR_POOL=NAME, and need it for nothing else: killed, it is missed by nobody, its names stay, and the next
    serve takes the pool over. On SIGTERM, or Ctrl-C, it lets no new client in, waits for those there are up to
    --drain seconds, and leaves; a second signal ends the wait. The pool goes with its last client.
    """
    _log_to_stderr(log_format, log_level)
    pool, was_there = make_or_take_over(name, limit=limit, ticket_grace=ticket_grace)
    if was_there and limit not in (None, pool.limit):
        log.warning("the pool has another limit", extra={"limit": size(pool.limit), "asked": size(limit or 0)})

    def ready() -> None:
        event = "took over" if was_there else "made"
        log.info(event, extra={"pool": pool.name, "limit": size(pool.limit), "pid": os.getpid()})
        notify("READY=1")
        if ready_fd is not None:
            os.write(ready_fd, f"{pool.name}\n".encode())
            os.close(ready_fd)

    Service(pool, drain=drain, idle_exit=idle_exit).run(ready)


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
