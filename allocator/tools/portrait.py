"""A pool as the page and the API show it: one survey, as JSON has it. Metadata only; no byte of the heap is read."""

from __future__ import annotations

import time
from typing import Any

from allocator.core.format import Header, Record
from allocator.stats import top_holders
from allocator.survey import Survey
from allocator.system.host import process_name
from allocator.tools.app import plain

MOST_SPANS, MOST_BLOCKS, MOST_TICKETS = 20_000, 5_000, 1_000
"""More make no better picture, and a page that takes longer than a second to draw."""


def portrait(found: Survey) -> dict[str, Any]:
    """Everything that is shown. `left_out` counts what there is beyond the largest and the oldest."""
    stats, clients, runs = found.stats(), _clients(found), found.runs()
    spans = sorted((run for run in runs if run.committed_bytes or run.used_bytes), key=lambda run: -run.committed_bytes)
    blocks, tickets, names = found.shared(), found.tickets(), found.names()
    field = found.ledger.records.field
    kept = [{**plain(block), "span": field(block.record, Record.SPAN)} for block in blocks[:MOST_BLOCKS]]
    served = found.ledger.header[Header.SERVED_NS]
    return {
        "name": found.name,
        "time": time.time(),
        "upkeep_seconds": (time.monotonic_ns() - served) / 1e9 if served else None,
        "stats": plain(stats),
        "size_classes": plain(found.size_classes()),
        "clients": clients,
        "spans": plain(sorted(spans[:MOST_SPANS], key=lambda run: run.start)),
        "tensors": kept,
        "tickets": plain(tickets[:MOST_TICKETS]),
        "names": plain(names),
        "left_out": {
            "spans": max(len(spans) - MOST_SPANS, 0),
            "tensors": max(len(blocks) - MOST_BLOCKS, 0),
            "tickets": max(len(tickets) - MOST_TICKETS, 0),
        },
    }


def _clients(found: Survey) -> list[dict[str, Any]]:
    """Those who keep most memory from being used first."""
    clients = found.clients().clients
    kept = {pid: nbytes for nbytes, pid, _ in top_holders(found, len(clients))}
    rows = [
        {**plain(client), "name": process_name(client.pid, client.started), "kept_bytes": kept.get(client.pid, 0)}
        for client in clients
    ]
    return sorted(rows, key=lambda row: -row["kept_bytes"])
