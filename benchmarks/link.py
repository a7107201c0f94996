"""The consumer processes of one peer, and the producer's ends of the pipes to them.

The producer announces how many messages come and how to look at them. Each gets an ack of two numbers, which must
be what the producer filled the array with: a library that is fast and wrong ends the run.
"""

from __future__ import annotations

import itertools
import multiprocessing as mp
import os
import struct
from collections.abc import Iterable
from multiprocessing.connection import Connection
from typing import Any, Literal

from benchmarks.looking import look
from benchmarks.optional import Calls, Tasks
from benchmarks.peers import Peer

CONTEXT = mp.get_context("spawn")  # a consumer inherits nothing
ACK = struct.Struct("2d")
CONSUMERS = 2
How = Literal["ends", "everything", "keep", "echo"]


def consume(peer: Peer, number: int, pipe: Connection) -> None:
    """The consumer's main, until the producer closes the pipe. What is called an echo is sent back as it came."""
    peer.enter(number)
    pipe.send_bytes(b"up")
    kept: list[Any] = []
    try:
        while True:
            how, count = pipe.recv()
            kept.clear()
            for _ in range(count):
                pipe.send_bytes(pipe.recv_bytes() if how == "echo" else receive_one(peer, pipe, how, kept))
    except (EOFError, ConnectionError):
        pass
    except Exception:
        if not kept:
            raise
        # Whoever has kept many may run out of something: to see when is the purpose. The producer reads EOFError.


def receive_one(peer: Peer, pipe: Connection, how: How, kept: list[Any]) -> bytes:
    """Receive an array, look at it, and let go of it or keep it until the next announcement."""
    item = peer.receive(pipe)
    array = peer.array(item)
    seen = look(array, how == "everything")
    del array
    if how == "keep":
        kept.append(item)
    else:
        peer.drop(item, made=False)
    return ACK.pack(*seen)


class Link:
    """The way from here to the consumers of one peer. Before it is used, `wait` until they are up."""

    def __init__(self, peer: Peer, consumers: int = CONSUMERS) -> None:
        self.peer = peer
        self.values = itertools.count(1)  # no two arrays hold the same: old bytes can't pass for new ones
        self.pipes: list[Any] = []
        self.processes: list[Any] = []
        for number in range(consumers):
            if isinstance(peer, Tasks):
                self.pipes.append(Calls(peer, number))
                continue
            ours, theirs = CONTEXT.Pipe()
            process = CONTEXT.Process(target=consume, args=(peer, number, theirs), daemon=True)
            process.start()
            theirs.close()  # so that a consumer that fails is an EOFError here
            self.pipes.append(ours)
            self.processes.append(process)

    @property
    def pipe(self) -> Any:
        """The way to the first consumer."""
        return self.pipes[0]

    def wait(self) -> None:
        """Wait until the consumers are up. A call of its own, so that those of many peers start at the same time."""
        for _, pipe in zip(self.processes, self.pipes, strict=False):
            pipe.recv_bytes()

    def pin(self, cpus: Iterable[int]) -> None:
        """Keep the consumers on these CPUs. Workers of other libraries stay where these want them."""
        for process in self.processes:
            os.sched_setaffinity(process.pid, cpus)

    def begin(self, how: How, count: int, to: int = 0) -> None:
        """Announce `count` messages to consumer `to`, and how to look at them."""
        pipe = self.pipes[to]
        if isinstance(pipe, Calls):
            pipe.everything = how == "everything"
        else:
            pipe.send((how, count))

    def answer(self, value: int, to: int = 0) -> None:
        """Wait for the consumer's next ack. Raises `AssertionError` unless it read `value`."""
        self.check(self.take_ack(to), value)

    def take_ack(self, to: int = 0) -> tuple[float, float]:
        """What the consumer saw, in its next ack."""
        pipe = self.pipes[to]
        seen: tuple[float, float] = pipe.recv() if isinstance(pipe, Calls) else ACK.unpack(pipe.recv_bytes())
        return seen

    def check(self, seen: tuple[float, float], value: int) -> None:
        """Raises `AssertionError` unless the consumer read `value`."""
        if seen != (value, value):
            raise AssertionError(f"{self.peer.name}: wrote {value}, the consumer read {seen}")

    def close(self) -> None:
        """End the consumers, then the peer."""
        for process, pipe in zip(self.processes, self.pipes, strict=False):
            pipe.close()
            process.join(10)  # seconds; a daemon that hangs dies with us
        self.peer.close()
