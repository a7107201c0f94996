"""A consumer process for one peer, and the producer's end of the pipe to it.

The producer announces how many messages come and how to look at them. Each gets an ack of two numbers, which must
be what the producer filled the array with: a library that is fast and wrong ends the run.
"""

from __future__ import annotations

import itertools
import multiprocessing as mp
import struct
from multiprocessing.connection import Connection
from typing import Literal

from benchmarks.peers import Array, Peer

CONTEXT = mp.get_context("spawn")  # a consumer inherits nothing
ACK = struct.Struct("2d")


def look(array: Array, everything: bool) -> tuple[float, float]:
    """The first and the last element; or the mean, which is exact as all are equal and their number a power of 2."""
    return float(array[0]), float(array.mean() if everything else array[-1])


def consume(peer: Peer, pipe: Connection) -> None:
    """The consumer's main, until the producer closes the pipe. What is called an echo is sent back as it came."""
    try:
        while True:
            how, count = pipe.recv()
            for _ in range(count):
                pipe.send_bytes(pipe.recv_bytes() if how == "echo" else receive_one(peer, pipe, how == "everything"))
    except (EOFError, ConnectionError):
        pass


def receive_one(peer: Peer, pipe: Connection, everything: bool) -> bytes:
    """Receive an array, look at it, let go of it."""
    item = peer.receive(pipe)
    array = peer.array(item)
    seen = look(array, everything)
    del array
    peer.drop(item, made=False)
    return ACK.pack(*seen)


class Link:
    """The way from here to the consumer of one peer."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.values = itertools.count(1)  # no two arrays hold the same: old bytes can't pass for new ones
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=consume, args=(peer, theirs), daemon=True)
        self.process.start()
        theirs.close()  # so that a consumer that fails is an EOFError here

    def begin(self, how: Literal["ends", "everything", "echo"], count: int) -> None:
        """Announce `count` messages, and how to look at them."""
        self.pipe.send((how, count))

    def check(self, ack: bytes, value: int) -> None:
        """Raises `AssertionError` unless the consumer read `value`."""
        if (seen := ACK.unpack(ack)) != (value, value):
            raise AssertionError(f"{self.peer.name}: wrote {value}, the consumer read {seen}")

    def close(self) -> None:
        """End the consumer, then the peer."""
        self.pipe.close()
        self.process.join(10)  # seconds; a daemon that hangs dies with us
        self.peer.close()
