"""`reap`, `purge` and `gc`: what clients do when memory is needed, now and from outside."""

from __future__ import annotations

import click

from allocator import visiting
from allocator.leaving import find_leftovers, remove_leftover
from allocator.tools.app import json_option, pool_argument, show_json, show_table, size


@click.command("reap")
@pool_argument
@json_option
def reap_command(pool: str, as_json: bool) -> None:
    """Take back what dead processes had, rather than when memory is needed."""
    dead = visiting.reap(pool)
    if as_json:
        show_json({"name": pool, "reaped": dead})
    else:
        click.echo(f"{pool}: {dead} dead processes reaped")


@click.command("purge")
@pool_argument
@json_option
def purge_command(pool: str, as_json: bool) -> None:
    """Give memory that nobody uses back to the kernel. The next to use it pays for page faults."""
    nbytes = visiting.purge(pool)
    if as_json:
        show_json({"name": pool, "purged_bytes": nbytes})
    else:
        click.echo(f"{pool}: {size(nbytes)} given back")


@click.command("gc")
@click.option("-n", "--dry-run", is_flag=True, help="Only list.")
@click.option("--all", "awaited_too", is_flag=True, help="Also those whose messages or service may still be awaited.")
@json_option
def gc_command(dry_run: bool, awaited_too: bool, as_json: bool) -> None:
    """Remove what this user's dead pools left: lists, then removes.

    Dead is a pool of which no process lives, which the kernel says: never one that is only old or idle.
    """
    leftovers = find_leftovers()
    going = [leftover for leftover in leftovers if awaited_too or not leftover.awaited]
    if not as_json:
        rows = [(left.name, size(left.nbytes), "awaited" if left.awaited else "dead") for left in leftovers]
        show_table(("POOL", "MEMORY", "STATE"), rows, "no leftovers")
    names = [] if dry_run else [leftover.name for leftover in going]
    removed = [name for name in names if remove_leftover(name, spare_awaited=not awaited_too)]
    if as_json:
        show_json({"leftovers": leftovers, "removed": removed})
    elif removed:
        click.echo(f"removed {', '.join(removed)}")
