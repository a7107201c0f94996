"""Random work on one pool by several processes at once, and proof that nothing is wrong or left afterwards.

Each process allocates, shares, receives, verifies, resizes and drops tensors at random, each filled with one byte that
travels beside it: memory handed out twice is found. `chaos.py` kills them meanwhile.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import pickle
import random
import tempfile
import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from pathlib import Path

import shmtensor as st
from allocator import OutOfSharedMemory, Pool, StorageCapacityError

# How often each is done: a little more comes than goes, so that the pool is full now and then.
OPERATIONS = {"allocate": 4, "share": 3, "receive": 4, "verify": 3, "resize": 2, "drop": 5}


class Worker:
    """The tensors of one process, each with the byte that fills it. Messages are files, which no dead process locks."""

    def __init__(self, seed: str, pool: Pool, mail: Path) -> None:
        self.rng, self.pool, self.mail = random.Random(seed), pool, mail
        self.held: list[tuple[st.Tensor, int]] = []

    def allocate(self) -> None:
        size, byte = int(2 ** self.rng.uniform(0, 22)), self.rng.randrange(256)  # 1 byte to 4 MiB
        tensor = st.empty((size,), dtype="uint8", pool=self.pool, capacity=self.rng.choice((size, 2 * size)))
        self.held.append((tensor.fill_(byte), byte))

    def share(self) -> None:
        draft = self.mail / f"{os.getpid()}.draft"
        draft.write_bytes(pickle.dumps(self.rng.choice(self.held)))
        draft.rename(draft.with_suffix(f".{time.monotonic_ns()}.message"))

    def receive(self) -> None:
        mine = self.mail / f"{os.getpid()}.mine"
        try:
            self.rng.choice(list(self.mail.glob("*.message"))).rename(mine)
        except (IndexError, FileNotFoundError):  # there is none, or another was quicker
            return self.allocate()
        self.held.append(pickle.loads(mine.read_bytes()))
        return self.verify(-1)

    def verify(self, index: int | None = None) -> None:
        tensor, byte = self.rng.choice(self.held) if index is None else self.held[index]
        if not (tensor.numpy() == byte).all():
            raise SystemExit(f"{tensor.numel()} bytes of {byte} were overwritten")

    def resize(self) -> None:  # it only grows, since others may read it
        storage = self.rng.choice(self.held)[0].untyped_storage()
        storage.resize_(self.rng.randint(storage.nbytes(), 2 * storage.nbytes()))

    def drop(self) -> None:
        del self.held[self.rng.randrange(len(self.held))]


def work(seed: str, operations: int, pool: Pool, mail: Path) -> None:
    worker = Worker(seed, pool, mail)
    for name in worker.rng.choices(list(OPERATIONS), list(OPERATIONS.values()), k=operations):
        try:
            getattr(worker, name if worker.held or name == "receive" else "allocate")()
        except OutOfSharedMemory:
            worker.held = worker.held[::2]
        except StorageCapacityError:
            pass  # it was sent, so it can't move


def nothing_is_left(pool: Pool) -> str:
    """What the pool says when all is over; ends the program if something is wrong."""
    pool.reap()
    pool.discard_tickets(older_than=0)  # what was never received
    pool.check()
    end = pool.stats()
    print(f"final use {end.used_bytes} bytes, {end.records} records, {end.tickets} messages in flight")
    if end.used_bytes or end.records or end.tickets:
        raise SystemExit("something was left")
    pool.allocate(end.free_bytes).release()  # refused, had all the work left the free memory in pieces
    pool.check()
    return f"no fragmentation: one block of all {end.free_bytes >> 20} free MiB fits; check() passed"


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--workers", type=int, default=4, help="processes that use the pool")
    parser.add_argument("--operations", type=int, default=4000, help="how many each of them does")
    parser.add_argument("--limit-mib", type=int, default=128, help="size of the pool in MiB")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--start-method", choices=mp.get_all_start_methods(), default="spawn", help="of the workers")
    options = parser.parse_args()
    context, started, peak = mp.get_context(options.start_method), time.perf_counter(), 0
    with Pool.create(limit=options.limit_mib << 20) as pool, tempfile.TemporaryDirectory() as mail:
        seeds = [f"{options.seed}/{rank}" for rank in range(options.workers)]
        tasks = [(seed, options.operations, pool, Path(mail)) for seed in seeds]
        workers = [context.Process(target=work, args=task) for task in tasks]
        for worker in workers:
            worker.start()
        while alive := [worker for worker in workers if worker.is_alive()]:
            alive[0].join(0.02)
            peak = max(peak, pool.stats().used_bytes)
        if any(worker.exitcode for worker in workers):
            raise SystemExit("a worker failed")
        rate = len(workers) * options.operations / (time.perf_counter() - started)
        print(f"seed {options.seed}: {rate:,.0f} operations/s, peak use {peak >> 20} MiB")
        print(nothing_is_left(pool))


if __name__ == "__main__":
    main()
