"""How cost grows: with the processes that share at once, and with the tensors that live."""

from __future__ import annotations

import multiprocessing as mp
import os
import resource
from collections.abc import Sequence
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pickle import loads
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple

import shmtensor as st
from allocator.system.locks import Guarded
from benchmarks.link import CONTEXT, Link
from benchmarks.peers import Peer, Shmtensor

SMALL_BYTES = 1024  # what is shared here: the bytes themselves cost next to nothing
LIVE_BYTES = 64


# ---- processes


def churn(kind: type[Peer], orders: Connection) -> None:
    """The main of one of many: share with itself for as long as it is told, and say how often in a second it could."""
    peer = kind()
    peer.enter(0)
    away, back = mp.Pipe()
    for _ in range(20):  # imports what is imported late, and warms up
        share_with_itself(peer, away, back)
    orders.send("up")
    try:
        while True:
            seconds, count, start = orders.recv(), 0, perf_counter()
            while (now := perf_counter()) < start + seconds:
                for _ in range(10):
                    share_with_itself(peer, away, back)
                count += 10
            orders.send(count / (now - start))
    except EOFError:
        peer.close()


def share_with_itself(peer: Peer, away: Connection, back: Connection) -> None:
    """Make an array, send it, open it, look at it, and free it."""
    item = peer.make(SMALL_BYTES)
    array = peer.array(item)
    array[0] = 1
    peer.send(away, item)
    opened = peer.receive(back)
    assert peer.array(opened)[0] == 1
    peer.drop(opened, made=False)
    del opened, array
    peer.drop(item, made=True)


def throughput(kind: type[Peer], counts: Sequence[int], rounds: int, seconds: float) -> dict[int, float]:
    """Operations a second of so many processes together: the median of some rounds, which visit all counts in turn."""
    crowd = []
    for _ in range(max(counts)):
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=churn, args=(kind, theirs), daemon=True)
        process.start()
        theirs.close()
        crowd.append((ours, process))
    for orders, _ in crowd:
        orders.recv()
    found: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(rounds):
        for count in counts:
            for orders, _ in crowd[:count]:
                orders.send(seconds)
            found[count].append(sum(orders.recv() for orders, _ in crowd[:count]))
    for orders, process in crowd:
        orders.close()
        process.join(10)
    return {count: median(rates) for count, rates in found.items()}


def in_the_lock(count: int) -> tuple[float, float]:
    """Of so many tensors made, sent, opened and freed by one process: how often in each it was in the pool's lock, and
    microseconds that it spent there for each.
    """
    peer, (away, back), section = Shmtensor(), mp.Pipe(), Guarded.section
    for _ in range(200):  # warms up
        share_with_itself(peer, away, back)
    spent: list[int] = []

    def timed(self: Guarded, *args: Any) -> Any:
        start = perf_counter_ns()
        try:
            return section(self, *args)
        finally:
            spent.append(perf_counter_ns() - start)

    Guarded.section = timed  # type: ignore[method-assign, assignment]
    try:
        for _ in range(count):
            share_with_itself(peer, away, back)
    finally:
        Guarded.section = section  # type: ignore[method-assign]
    return len(spent) / count, sum(spent) / count / 1e3


# ---- views in one message


def views_together(counts: Sequence[int], rounds: int) -> dict[int, tuple[float, float]]:
    """Of so many rows of one tensor in one message: for each row microseconds to send and open it, and bytes."""
    tensor = st.empty((max(counts), 16))
    found = {}
    for count in counts:
        times = []
        for _ in range(rounds + 1):
            rows = [tensor[at] for at in range(count)]
            start = perf_counter_ns()
            message = bytes(ForkingPickler.dumps(rows))
            loads(message)
            times.append((perf_counter_ns() - start) / count / 1e3)
        found[count] = median(times[1:]), len(message) / count
    return found


# ---- living tensors


class Living(NamedTuple):
    """What it was like to have ever more of them."""

    us: dict[int, float]  # microseconds for each of the second half of so many
    descriptors: int  # of the producer, for shared memory
    mappings: int
    end: str  # why there were no more


def of_shared_memory(pid: int | str = "self") -> tuple[int, int]:
    """How many descriptors and mappings of shared memory a process has."""
    descriptors = 0
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            descriptors += os.readlink(f"/proc/{pid}/fd/{number}").startswith("/dev/shm/")
        except FileNotFoundError:  # that of the listing itself
            pass
    with open(f"/proc/{pid}/maps") as lines:
        return descriptors, sum("/dev/shm/" in line for line in lines)


def live(kind: type[Peer], marks: Sequence[int], seconds: float, answer: Connection) -> None:
    """The main of a process that keeps all it makes, and whose consumer does too; both on one CPU."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(limits[1], 20_000), limits[1]))
    link = Link(kind.for_many(), consumers=1)
    link.wait()
    kept: list[Any] = []
    us: dict[int, float] = {}
    end = ""
    link.begin("keep", marks[-1])
    try:
        add(link, kept, 1, perf_counter() + 60)  # the consumer imports what it imports late
        deadline = perf_counter() + seconds
        for before, mark in pairwise((0, *marks)):
            add(link, kept, max(before, mark // 2) - len(kept), deadline)
            start, count = perf_counter_ns(), mark - len(kept)
            add(link, kept, count, deadline)
            us[mark] = (perf_counter_ns() - start) / count / 1e3
    except TimeoutError:
        end = f"{len(kept):,} in {seconds:g} s"
    except Exception as error:  # noqa: BLE001  # whatever a library raises when it has run out of something
        end = f"{type(error).__name__} after {len(kept):,}"
    answer.send(Living(us, *of_shared_memory(), end))
    for item in kept:
        link.peer.drop(item, made=True)
    kept.clear()
    link.close()


def add(link: Link, kept: list[Any], count: int, deadline: float) -> None:
    """Make so many more, send each, and keep it. Raises `TimeoutError` past the deadline."""
    peer, pipe = link.peer, link.pipe
    for step in range(count):
        item = peer.make(LIVE_BYTES)
        peer.array(item).fill(step)
        peer.send(pipe, item)
        kept.append(item)
        link.answer(step)
        if not step % 100 and perf_counter() > deadline:
            raise TimeoutError


def living(kind: type[Peer], marks: Sequence[int], seconds: float) -> Living:
    """`live`, in a process of its own: it may run out of descriptors."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=live, args=(kind, marks, seconds, theirs))
    process.start()
    theirs.close()
    try:
        found: Living = ours.recv()
    except EOFError:
        found = Living({}, 0, 0, "died")
    process.join(60)
    process.kill()
    return found
