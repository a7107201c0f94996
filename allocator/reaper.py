"""Finds dead clients and takes back what they had.

A client is dead when the kernel dropped its liveness byte: not when its pid is gone (it may be reused), not when it
is slow.
"""

from __future__ import annotations

from allocator.core.format import SLOT_SHIFT, STATE_MASK, Client, Header, slot_of
from allocator.core.ledger import Ledger
from allocator.system.host import start_time
from allocator.system.locks import PoolLock
from allocator.system.memory import Segment


def reap(ledger: Ledger, lock: PoolLock, heap: Segment, me: int, now_ns: int) -> int:
    """Inside the critical section: take back what dead clients had; how many there were. `me` is the caller, who
    lives.
    """
    dead = [word for word in ledger.clients.attached() if not _is_alive(ledger, lock, me, word)]
    for word in dead:
        _settle_doubts(ledger, heap, word & ~STATE_MASK)
        ledger.reap(word, now_ns)
        ledger.header[Header.REAPED] += 1
    return len(dead)


def claim_place(
    ledger: Ledger, lock: PoolLock, heap: Segment, me: int, now_ns: int, *, state: int, pid: int, parent: int = 0
) -> int | None:
    """Inside the critical section: the word of a client slot that is the caller's to give, a dead client's if all are
    taken; None when all of them live.
    """
    started = start_time(pid) if pid else 0
    word = ledger.clients.claim(state, pid, started, now_ns, parent)
    if word is None and reap(ledger, lock, heap, me, now_ns):
        word = ledger.clients.claim(state, pid, started, now_ns, parent)
    return word


def _is_alive(ledger: Ledger, lock: PoolLock, me: int, word: int) -> bool:
    if word >> SLOT_SHIFT == me >> SLOT_SHIFT or lock.lives(slot_of(word)):
        return True
    if word & STATE_MASK != Client.PENDING:
        return False
    # A child between fork and its first lock has no byte yet. Its parent's pipe tells when that is over; only when the
    # parent is dead as well does a missing byte count, and a child that comes up after all finds itself fenced.
    parent = ledger.clients.field(slot_of(word), Client.PARENT)
    return ledger.clients.is_current(parent) and _is_alive(ledger, lock, me, parent)


def _settle_doubts(ledger: Ledger, heap: Segment, owner: int) -> None:
    """Purge what the dead client may have populated without saying so."""
    for purge in ledger.doubts_of(owner):
        heap.purge(purge.start, purge.nbytes)
        ledger.spans.settle(purge)
