"""Pools that write down where blocks are made and messages pickled."""

from __future__ import annotations

from typing import Any

from allocator.block import Block
from allocator.commons import Commons
from allocator.core.format import Record
from allocator.pool import Pool
from allocator.sites import Sites, calling_site


class TracedPool(Pool):
    """A pool in a process with SHMTENSOR_TRACE=1: it writes down where each block was made and each message pickled."""

    __slots__ = ("made", "sites")

    def __init__(self, commons: Commons) -> None:
        super().__init__(commons)
        self.sites = Sites(commons.host, commons.name)
        commons.section(self.sites.make)
        self.made: dict[int, str] = {}  # the sites of the blocks made here, by start
        self.send = self._send
        self.introduce = self._introduce

    def allocate(self, nbytes: int, *, capacity: int | None = None, timeout: float | None = None) -> Block:
        """As `Pool.allocate`."""
        block = super().allocate(nbytes, capacity=capacity, timeout=timeout)
        self.made[block.start] = calling_site()
        return block

    def _send(self, block: Block, keeper: Any) -> Any:
        is_new = block.me is None
        claim = self.exchange.send(block, keeper)
        _, _, record, generation, ticket, serial = claim
        if is_new:
            self._write_record(block, record, generation)
        self.sites.write_ticket(ticket, serial, calling_site())
        return claim

    def _introduce(self, block: Block, keeper: Any) -> None:
        is_new = block.me is None
        self.exchange.introduce(block, keeper)
        if is_new:
            generation = self.commons.ledger.records.field(block.record, Record.GENERATION)
            self._write_record(block, block.record, generation)

    def _write_record(self, block: Block, record: int, generation: int) -> None:
        self.sites.write_record(record, generation, self.made.get(block.start, ""))
