"""What is timed: functions that do one work some times over a link and give nanoseconds, and the table's rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter_ns
from timeit import repeat
from typing import Any, NamedTuple

import numpy as np

from benchmarks.link import Link

Work = Callable[[Link, int, int], list[float]]
KIB, MIB = 1 << 10, 1 << 20
WINDOW = 8  # batches in flight in the pipeline, like the bound of a queue


def allocate(link: Link, nbytes: int, count: int, *, fill: bool) -> list[float]:
    """Make and free, and between the two write every byte or none."""
    peer, samples = link.peer, []
    for value in range(count):
        start = perf_counter_ns()
        item = peer.make(nbytes)
        array = peer.array(item)
        if fill:
            array.fill(value)
        del array
        peer.drop(item, made=True)
        del item
        samples.append(float(perf_counter_ns() - start))
    return samples


def exchange(link: Link, nbytes: int, count: int, *, whole: bool) -> list[float]:
    """From the call of send until the ack; or the whole of it, so that nothing can hide in what is not timed."""
    peer, pipe, samples = link.peer, link.pipe, []
    link.begin("ends", count)
    for _ in range(count):
        value = next(link.values)
        start = perf_counter_ns()
        item = peer.make(nbytes)
        array = peer.array(item)
        array.fill(value)
        filled = perf_counter_ns()
        peer.send(pipe, item)
        ack = pipe.recv_bytes()
        answered = perf_counter_ns()
        del array
        peer.drop(item, made=True)
        del item
        samples.append(float(perf_counter_ns() - start if whole else answered - filled))
        link.check(ack, value)
    return samples


def pipeline(link: Link, nbytes: int, count: int) -> list[float]:
    """One sample, the time per batch: the producer fills while the consumer adds up."""
    peer, in_flight = link.peer, deque[tuple[int, Any]]()
    link.begin("everything", count)
    start = perf_counter_ns()
    for step in range(count + WINDOW):
        if step >= WINDOW:
            value, item = in_flight.popleft()
            link.check(link.pipe.recv_bytes(), value)
            if peer.keeps_until_ack:
                peer.drop(item, made=True)
        if step < count:
            value, item = next(link.values), peer.make(nbytes)
            peer.array(item).fill(value)
            peer.send(link.pipe, item)
            in_flight.append((value, item if peer.keeps_until_ack else None))
        item = None  # a batch that its message keeps must not live on here
    return [(perf_counter_ns() - start) / count]


class Row(NamedTuple):
    """A row of the table: a work, on arrays of `nbytes`, so many times in each round."""

    name: str
    work: Work
    nbytes: int
    times: int


PIPELINE = "pipeline, GB/s"
WORKS: dict[str, tuple[Work, dict[int, int]]] = {
    "allocate + free, us": (partial(allocate, fill=False), {4 * KIB: 300, MIB: 100, 16 * MIB: 50}),
    "allocate + fill + free, us": (partial(allocate, fill=True), {4 * KIB: 300, MIB: 40, 16 * MIB: 8}),
    "send + first look + ack, us": (partial(exchange, whole=False), {KIB: 300, MIB: 40, 16 * MIB: 8}),
    "all of these in one, us": (partial(exchange, whole=True), {KIB: 300, MIB: 40, 16 * MIB: 8}),
    PIPELINE: (pipeline, {8 * MIB: 3 * WINDOW}),
}
ROWS = [Row(name, work, nbytes, times) for name, (work, sizes) in WORKS.items() for nbytes, times in sizes.items()]


def physical_limits(floor: Link, nbytes: int = 64 * MIB, trips: int = 500) -> str:
    """One line of what the machine can do: nobody's library is faster. `nbytes` is more than its caches hold."""

    def trip() -> None:
        floor.pipe.send_bytes(b"1")
        floor.pipe.recv_bytes()

    def seconds(work: Callable[[], object], times: int) -> float:
        return median(repeat(work, number=1, repeat=times)[1:])  # the first warms up

    floor.begin("echo", trips)
    item, private = floor.peer.make(nbytes), np.zeros(nbytes, np.uint8)
    trip_us = seconds(trip, trips) * 1e6
    copy = nbytes / 1e9 / seconds(partial(np.copyto, private, private.copy()), 8)
    fill = nbytes / 1e9 / seconds(partial(floor.peer.array(item).fill, 1), 8)
    floor.peer.drop(item, made=True)
    return f"pipe round trip of one byte {trip_us:.3g} us, np.copyto {copy:.3g} GB/s, warm fill {fill:.3g} GB/s"
