"""`shmtensor ls`. Without NumPy, so that it answers at once."""

from __future__ import annotations

import click

from allocator.looking import glance_at_all
from allocator.tools.app import age, json_option, plain, show_json, show_table, size

HEADS = ("POOL", "STATE", "LIMIT", "USED", "COMMITTED", "CLIENTS", "DEAD", "NAMES", "AGE")


@click.command("ls")
@json_option
def ls_command(as_json: bool) -> None:
    """List this user's pools on this machine.

    STATE is served (a service keeps it), live, orphaned (no process of it lives: gc removes it once its messages and
    its service have been awaited) or unfinished. DEAD counts processes that died and wait to be reaped.
    """
    found = glance_at_all()
    if as_json:
        show_json([{**plain(pool), "living": pool.living, "dead": len(pool.clients) - pool.living} for pool in found])
        return
    rows = [
        (
            pool.name,
            pool.state,
            size(pool.limit_bytes),
            size(pool.used_bytes),
            size(pool.committed_bytes),
            str(pool.living),
            str(len(pool.clients) - pool.living),
            str(pool.names),
            age(pool.age_seconds),
        )
        for pool in found
    ]
    show_table(HEADS, rows, "no pools")
