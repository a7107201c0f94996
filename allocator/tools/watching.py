"""`shmtensor top`: a pool, live. And how rich draws a table."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from allocator.looking import glance
from allocator.stats import top_holders
from allocator.survey import Survey, survey
from allocator.tools.app import age, json_option, plain, pool_argument, show_json, size
from allocator.tools.facts import described

ROWS = 8


@click.command("top")
@pool_argument
@click.option("-d", "--delay", default=1.0, show_default=True, help="Seconds between looks.")
@click.option("-n", "--iterations", default=0, help="Look so often, then end; by default until Ctrl-C.")
@json_option
def top_command(pool: str, delay: float, iterations: int, as_json: bool) -> None:
    """Show a pool, live: how full, who holds what, the largest blocks, the oldest messages.

    With --json, and where stdout is no terminal, one picture after the other.
    """
    looks = 0
    try:
        if as_json or not sys.stdout.isatty():
            while True:
                found = survey(pool)
                show_json(facts(found)) if as_json else Console().print(picture(found))
                looks += 1
                if looks == iterations:
                    return
                time.sleep(delay)
        with Live(picture(survey(pool)), screen=not iterations, auto_refresh=False) as live:
            while True:
                live.update(picture(survey(pool)), refresh=True)
                looks += 1
                if looks == iterations:
                    return
                time.sleep(delay)
    except KeyboardInterrupt:
        pass


def facts(found: Survey) -> dict[str, Any]:
    """What `picture` shows, as JSON has it."""
    held = [{"bytes": nbytes, "pid": pid, "name": name} for nbytes, pid, name in top_holders(found, ROWS)]
    return {
        "name": found.name,
        "stats": plain(found.stats()),
        "living": glance(found.name).living,
        "holders": held,
        "largest": found.shared()[:ROWS],
        "tickets": found.tickets()[:ROWS],
    }


def picture(found: Survey) -> RenderableType:
    """One screen."""
    stats, shared, tickets = found.stats(), found.shared(), found.tickets()
    head = Text.assemble(
        (f" {found.name} ", "reverse"),
        f"  used {size(stats.used_bytes)} · committed {size(stats.committed_bytes)} (peak {size(stats.peak_bytes)})"
        f" · limit {size(stats.limit_bytes)} · {stats.clients} processes · {stats.records} blocks shared"
        f" · {stats.tickets} messages · {stats.names} names",
    )
    bar = ProgressBar(total=max(stats.limit_bytes, 1), completed=stats.used_bytes)
    held = [(size(nbytes), str(pid), name) for nbytes, pid, name in top_holders(found, ROWS)]
    largest = [(size(block.nbytes), str(block.record), described(block.holders)) for block in shared[:ROWS]]
    oldest = [(age(t.age_seconds), size(t.nbytes), f"{t.sender_name} ({t.sender_pid})") for t in tickets[:ROWS]]
    parts: list[RenderableType] = [head, bar]
    for heads, rows in (
        (("HELD", "PID", "PROCESS"), held),
        (("LARGEST", "RECORD", "KEPT BY"), largest),
        (("IN FLIGHT", "BYTES", "SENDER"), oldest),
    ):
        if rows:
            parts += ["", table(heads, rows)]
    return Group(*parts)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without lines; columns of numbers to the right."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for head, column in zip(heads, zip(*rows, strict=True), strict=True):
        numbers = all(cell[:1].isdigit() for cell in column)
        drawn.add_column(head, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    return drawn
