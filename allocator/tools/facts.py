"""What is in one pool: `stats`, `clients`, `tensors`, `tickets`, `names`, `check`. From a copy of its tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from allocator.errors import CorruptPool
from allocator.looking import glance
from allocator.stats import Holder, SizeClassStats
from allocator.survey import survey
from allocator.system.host import process_name
from allocator.tools.app import WRONG, age, json_option, plain, pool_argument, show_json, show_table, size


@click.command("stats")
@pool_argument
@json_option
def stats_command(pool: str, as_json: bool) -> None:
    """Show a pool's numbers, as Pool.stats() gives them."""
    found = survey(pool)
    values, classes = plain(found.stats()), found.size_classes()
    if as_json:
        show_json({"name": pool, **values, "size_classes": classes})
        return
    rows = [
        (name.removesuffix("_bytes"), size(value) if name.endswith("_bytes") else str(value))
        for name, value in values.items()
    ]
    show_table(("OF " + pool, ""), rows, "")
    if classes:
        click.echo()
        heads = ("SLOTS OF", "SPANS", "USED", "COMMITTED")
        show_table(heads, [_class_row(found) for found in classes], "")


def _class_row(found: SizeClassStats) -> tuple[str, ...]:
    slots = size(found.slot_bytes) if found.slot_bytes else "one block"
    return slots, str(found.spans), size(found.used_bytes), size(found.committed_bytes)


@click.command("clients")
@pool_argument
@json_option
def clients_command(pool: str, as_json: bool) -> None:
    """List the processes of a pool, and whether they live."""
    clients = [(client, process_name(client.pid, client.started)) for client in glance(pool).clients]
    if as_json:
        show_json([{**plain(client), "name": name} for client, name in clients])
        return
    rows = [
        (str(client.slot), str(client.pid), name, client.state if client.alive else "dead", age(client.age_seconds))
        for client, name in clients
    ]
    show_table(("SLOT", "PID", "PROCESS", "STATE", "AGE"), rows, "no clients")


@click.command("tensors")
@pool_argument
@click.option("-n", "--count", default=0, help="Only the so many largest.")
@json_option
def tensors_command(pool: str, count: int, as_json: bool) -> None:
    """List the storages that were sent or published, the largest first, and who keeps each.

    What a process never sent is in nobody's table: stats and clients count it. With SHMTENSOR_TRACE=1 in the process
    that made it, the line that did is told, too.
    """
    shared = survey(pool).shared()[: count or None]
    if as_json:
        show_json(shared)
        return
    rows = [
        (str(block.record), size(block.nbytes), size(block.capacity), described(block.holders), block.site)
        for block in shared
    ]
    show_table(*_with_sites(("RECORD", "BYTES", "CAPACITY", "KEPT BY", "MADE AT"), rows), "nothing was sent")


def _with_sites(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
    """Without the last column, the sites, where nobody wrote one down."""
    if any(row[-1] for row in rows):
        return heads, rows
    return heads[:-1], [row[:-1] for row in rows]


def described(holders: tuple[Holder, ...]) -> str:
    """Who keeps a block, in a line."""
    texts = {"hold": "{name} ({pid})", "ticket": "a message of {pid}", "name": "the name {name!r}"}
    return ", ".join(texts[holder.kind].format(**holder._asdict()) for holder in holders)


@click.command("tickets")
@pool_argument
@json_option
def tickets_command(pool: str, as_json: bool) -> None:
    """List the messages in flight, the oldest first: what was pickled and not opened yet."""
    tickets = survey(pool).tickets()
    if as_json:
        show_json(tickets)
        return
    rows = [
        (age(t.age_seconds), size(t.nbytes), str(t.record), f"{t.sender_name} ({t.sender_pid})", t.site)
        for t in tickets
    ]
    show_table(*_with_sites(("AGE", "BYTES", "RECORD", "SENDER", "PICKLED AT"), rows), "no messages in flight")


@click.command("names")
@pool_argument
@json_option
def names_command(pool: str, as_json: bool) -> None:
    """List what is published, and how to read it: dtype, shape, strides, offset and flags."""
    names = survey(pool).names()
    if as_json:
        show_json(names)
        return
    rows = [
        (name, size(found.nbytes), age(found.age_seconds), str(found.publisher_pid), found.note)
        for name, found in names.items()
    ]
    show_table(("NAME", "BYTES", "AGE", "BY", "LAYOUT"), rows, "nothing is published")


@click.command("check")
@pool_argument
@json_option
def check_command(pool: str, as_json: bool) -> None:
    """Prove that a pool's tables agree with each other. Ends with status 1 if they don't."""
    try:
        found = survey(pool)
        found.check()
        wrong, facts = "", found.stats()
    except CorruptPool as error:
        wrong = str(error)
    if as_json:
        show_json({"name": pool, "sound": not wrong, "error": wrong})
    elif wrong:
        click.echo(f"{pool}: {wrong}")
    else:
        repair = " (a death cut a change short: whoever enters next repairs it)" if found.was_cut_short else ""
        click.echo(f"{pool}: sound; {facts.records} records, {facts.spans} spans, {facts.clients} clients{repair}")
    sys.exit(WRONG if wrong else 0)
