"""Opens damaged headers, one field or one bit off, made up, old, and of other pools and hosts.

    python headers.py FIRST COUNT

For each number from FIRST on, something that travels (a `TensorHeader`, a `BlockHandle`, or the pickle of one or of a
tensor) is changed in one place and opened. What comes out is an error that says so, or the storage that was sent and
nothing outside of it: around it lie storages with other bytes, as well known to the tables. Prints how often each came
out.
"""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
import resource
import sys
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any

import shmtensor as st
from allocator import Block, BlockHandle
from shmtensor.storage import Pool

OURS, THEIRS = 7, 99
NBYTES = 96
REFUSALS = (st.InvalidHeader, st.StaleHandle, st.ForeignHost)
INTS = [0, 1, 2, 3, 7, 12, 16, 24, 63, 64, 95, 96, 97, 255, 2**31, 2**32, 2**62, 2**63, 2**64 - 1, 2**64, 2**70, -1, -8]
THINGS = [None, True, 1.0, 2.5, "", "7", b"7", [], [1], (), (1,), {}, float("nan")]
NAMES = ["", ".", "../../etc/passwd", "x" * 15, "a\0b", "00000000", "object", "float99", "float64", "U3", "bool"]
PRIVATE_BYTES = 1 << 30  # damaged pickles ask for a memo of gigabytes: MemoryError rather than that


class Damage:
    """Changes one value in one place."""

    def __init__(self, number: int) -> None:
        self.rng = random.Random(number)
        self.bit = number  # every bit of every field in turn

    def value(self, value: Any) -> Any:
        """Something else, of the same type or not."""
        rng = self.rng
        if rng.random() < 0.1:
            return rng.choice(THINGS)
        if isinstance(value, int):
            return value ^ 1 << self.bit % 66 if rng.random() < 0.6 else rng.choice(INTS)
        if isinstance(value, str):
            return self.text(value)
        return self.sizes(value)

    def text(self, value: str) -> str:
        rng = self.rng
        at = rng.randrange(len(value))
        return rng.choice(
            [
                value[:at] + chr(ord(value[at]) ^ 1 << self.bit % 7) + value[at + 1 :],
                value[:at] + value[at + 1 :],
                value + value[at],
                rng.choice(NAMES),
            ]
        )

    def sizes(self, value: tuple[Any, ...]) -> Any:
        rng = self.rng
        at = rng.randrange(len(value))
        return rng.choice(
            [
                (*value[:at], self.value(value[at]), *value[at + 1 :]),
                value[:at] + value[at + 1 :],
                (*value, rng.choice(INTS)),
                value[::-1],
                rng.choice(INTS),
            ]
        )

    def fields(self, travels: Any) -> Any:
        """The same header or handle with one field changed, now and then two."""
        names = list(type(travels).__annotations__)
        chosen = {names[self.bit // 66 % len(names)]}
        if self.rng.random() < 0.2:
            chosen.add(self.rng.choice(names))
        values = {name: getattr(travels, name) for name in names}
        return type(travels)(**{name: self.value(old) if name in chosen else old for name, old in values.items()})

    def bits(self, message: bytes) -> bytes:
        """The same bytes, but for one bit."""
        damaged = bytearray(message)
        at = self.bit // 8 % len(damaged)
        damaged[at] ^= 1 << self.bit % 8
        return bytes(damaged)


class Target:
    """A storage among others, and what must hold when anything claims to be it."""

    def __init__(self) -> None:
        name = f"m{os.getpid()}"  # for two, one after the other
        old = Pool.create(name, limit=1 << 20)
        self.old = [st.full((NBYTES,), THEIRS, dtype="uint8", pool=old) for _ in range(8)][3].view(4, 24).header()
        old.close()
        self.pool = Pool.create(name, limit=1 << 20)
        self.other = Pool.create(limit=1 << 20)
        self.neighbours = [self.filled(THEIRS, pool) for pool in (self.other, self.pool) for _ in range(8)]
        self.tensor = self.filled(OURS, self.pool)
        self.neighbours += [self.filled(THEIRS, self.pool) for _ in range(8)]
        for tensor in (*self.neighbours, self.tensor):
            tensor.untyped_storage().seal() if tensor is not self.tensor else tensor.header().discard()
        self.view = self.tensor[24:].view(3, 24).t()

    def filled(self, value: int, pool: Pool) -> st.Tensor:
        return st.full((NBYTES,), value, dtype="uint8", pool=pool)

    def sent(self) -> list[Any]:
        """What may travel, anew: each has a ticket of its own."""
        handle = self.tensor.untyped_storage().block.share()
        return [self.view.header(), self.view, handle]

    def foreign(self, rng: random.Random) -> Any:
        """Headers that were right somewhere else, or once."""
        header = self.view.header()
        elsewhere = self.neighbours[0].view(4, 24).header()
        return rng.choice(
            [
                dataclasses.replace(header, host=f"{rng.getrandbits(32):08x}"),
                dataclasses.replace(header, pool=elsewhere.pool),
                dataclasses.replace(elsewhere, pool=header.pool),
                dataclasses.replace(header, generation=self.old.generation),
                dataclasses.replace(header, record=rng.randrange(40), ticket=rng.randrange(200)),
                self.old,
            ]
        )

    def check(self, found: Any) -> str:
        """Assert that it is the storage that was sent, or part of it; what to call that."""
        if isinstance(found, st.Tensor):
            assert found.untyped_storage() is self.tensor.untyped_storage(), found.untyped_storage()
            if found.numel() < 10_000:
                assert set(found.numpy().tobytes()) <= {OURS}, found
            return "the tensor, or a view of its storage"
        if isinstance(found, Block):
            assert set(found.memoryview()) == {OURS}, found
            return "the block"
        return "nothing, or something that is no tensor"


def attempt(act: Callable[[], Any], refusals: tuple[type[Exception], ...], target: Target) -> str:
    """What came out."""
    try:
        found = act()
    except refusals as error:
        return type(error).__name__
    return target.check(found)


def one(number: int, target: Target) -> str:
    """Damage something as this number says, and open it."""
    damage = Damage(number // 8)
    header, tensor, handle = target.sent()
    if number % 8 < 2:
        return attempt(damage.fields(header).open, REFUSALS, target)
    if number % 8 == 2:
        return attempt(target.foreign(damage.rng).open, REFUSALS, target)
    if number % 8 == 3:
        return attempt(damage.fields(handle).open, (*REFUSALS, ValueError), target)
    if number % 8 == 4:
        thrown = damage.fields(damage.rng.choice([header, handle]))
        return attempt(lambda: thrown.discard() and None, (*REFUSALS, ValueError), target)
    travels = [header, tensor, handle][number % 8 - 5]
    message = damage.bits(pickle.dumps(travels, damage.rng.randrange(2, 6)))
    target.tensor.fill_(OURS)  # a damaged message can hold SETITEM, and write into the tensor it opened before
    try:
        found = pickle.loads(message)
    except Exception as error:  # pickle's own are of every kind; a signal or a wrong byte is none
        return f"{type(error).__name__} of a pickle"
    if isinstance(found, st.TensorHeader | BlockHandle):
        return attempt(found.open, (*REFUSALS, ValueError), target)
    return target.check(found)


def hear(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """pickle itself complains of a bytearray that ends too early, since it still has it open."""
    if "deallocated bytearray object has exported buffers" not in str(error):
        sys.__excepthook__(kind, error, trace)


def main(first: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (PRIVATE_BYTES, PRIVATE_BYTES))
    sys.excepthook = hear
    target, outcomes = Target(), Counter[str]()
    for number in range(first, first + count):
        try:
            outcomes[one(number, target)] += 1
        except BaseException:
            print(f"number {number}", file=sys.stderr)
            raise
        if number % 500 == 0:
            target.pool.discard_tickets(0)
            target.pool.check()
            target.other.check()
    assert set(target.tensor.tolist()) == {OURS}
    assert all(set(tensor.tolist()) == {THEIRS} for tensor in target.neighbours)
    for what, times in outcomes.most_common():
        print(times, what)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
