"""Claims: what a message holds on a storage's bytes, as host, pool, record, generation, ticket and serial."""

from __future__ import annotations

from shmtensor.errors import InvalidHeader
from shmtensor.storage import BlockHandle, Pool

__all__ = ["pool_of_claim"]


def pool_of_claim(host: str, pool: str, record: int, generation: int, ticket: int, serial: int) -> Pool:
    """The pool of a claim, which may come from a damaged or hostile message; attaches when it must.

    Raises `InvalidHeader` when the values can't be one, `ForeignHost` on another machine than the sender's, and
    `StaleHandle` when the pool is gone.
    """
    try:
        return BlockHandle(host, pool, record, generation, ticket, serial).find_pool()
    except ValueError as error:
        raise InvalidHeader(str(error)) from None
