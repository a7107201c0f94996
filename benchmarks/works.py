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
        seen = link.take_ack()
        answered = perf_counter_ns()
        del array
        peer.drop(item, made=True)
        del item
        samples.append(float(perf_counter_ns() - start if whole else answered - filled))
        link.check(seen, value)
    return samples


def again(link: Link, nbytes: int, count: int, *, whole_bytes: int = 0) -> list[float]:
    """Send the same array over and over; or, of one of `whole_bytes`, another part of `nbytes` each time."""
    peer, pipe, samples = link.peer, link.pipe, []
    link.begin("ends", count)
    item = peer.make(whole_bytes or nbytes)
    for step in range(count):
        value, start = next(link.values), step * nbytes % (whole_bytes or nbytes)
        part = peer.part(item, start, nbytes) if whole_bytes else item
        peer.array(part).fill(value)
        del part
        begun = perf_counter_ns()
        peer.send(pipe, peer.part(item, start, nbytes) if whole_bytes else item)
        seen = link.take_ack()
        samples.append(float(perf_counter_ns() - begun))
        link.check(seen, value)
    peer.drop(item, made=True)
    return samples


def pipeline(link: Link, nbytes: int, count: int, *, consumers: int) -> list[float]:
    """One sample, the time per batch: the producer fills while consumers, in turn, add up."""
    peer, in_flight = link.peer, deque[tuple[int, int, Any]]()
    for number in range(consumers):
        link.begin("everything", count // consumers, number)
    start = perf_counter_ns()
    for step in range(count + WINDOW):
        if step >= WINDOW:
            value, to, item = in_flight.popleft()
            link.answer(value, to)
            if peer.keeps_until_ack:
                peer.drop(item, made=True)
        if step < count:
            to = step % consumers
            value, item = next(link.values), peer.make(nbytes, to)
            peer.array(item).fill(value)
            peer.send(link.pipes[to], item)
            in_flight.append((value, to, item if peer.keeps_until_ack else None))
        item = None  # a batch that its message keeps must not live on here
    return [(perf_counter_ns() - start) / count]


class Row(NamedTuple):
    """A row of the table: a work, on arrays of `nbytes`, so many times in each round."""

    name: str
    work: Work
    nbytes: int
    times: int
    pinned: bool = False  # producer and consumer on one CPU: steadier where the work is small
    again: bool = False  # only for peers that can send an object twice

    @property
    def size(self) -> str:
        """The size of its arrays."""
        if self.nbytes < KIB:
            return f"{self.nbytes} B"
        return f"{self.nbytes // MIB} MiB" if self.nbytes >= MIB else f"{self.nbytes // KIB} KiB"


ALLOCATE, FILL = "allocate + free, us", "allocate + fill + free, us"
SEND, SEND_PINNED = "send + first look + ack, us", "the same on one CPU, us"
AGAIN, ROW, TRIP = "the same array again, one CPU, us", "a row of 64 MiB, one CPU, us", "make + fill + send + ack, us"
PIPELINES = {1: "pipeline, 1 consumer, GB/s", 2: "pipeline, 2 consumers, GB/s"}


def _rows() -> list[Row]:
    def rows(name: str, work: Work, times: dict[int, int], **options: bool) -> list[Row]:
        return [Row(name, work, nbytes, count, **options) for nbytes, count in times.items()]

    small, large = {KIB: 300}, {16 * MIB: 8}
    return [
        *rows(ALLOCATE, partial(allocate, fill=False), {64: 300, 4 * KIB: 300, 256 * KIB: 100, 16 * MIB: 40}),
        *rows(FILL, partial(allocate, fill=True), {4 * KIB: 300, MIB: 40, **large}),
        *rows(SEND, partial(exchange, whole=False), {**small, MIB: 40, **large}),
        *rows(SEND_PINNED, partial(exchange, whole=False), small, pinned=True),
        *rows(AGAIN, again, {MIB: 200}, pinned=True, again=True),
        *rows(ROW, partial(again, whole_bytes=64 * MIB), {64 * KIB: 200}, pinned=True, again=True),
        *rows(TRIP, partial(exchange, whole=True), {KIB: 300, 64 * KIB: 200, MIB: 40, **large, 256 * MIB: 2}),
        *[row for k, name in PIPELINES.items() for row in rows(name, partial(pipeline, consumers=k), {8 * MIB: 24})],
    ]


ROWS = _rows()


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
