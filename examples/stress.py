"""Random work on one pool by several processes at once, and proof that nothing is wrong or left afterwards.

Each process allocates, fills, shares, receives, verifies, resizes and drops tensors at random, from a seed. A
tensor is filled with one byte that travels beside it: memory handed out twice is found when it is verified.
"""

from __future__ import annotations

import multiprocessing as mp
import random
import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections import Counter
from typing import Any

import shmtensor as st
from allocator import OutOfSharedMemory, Pool, StorageCapacityError

# How often each is done: a little more comes than goes, so that the pool is full now and then.
OPERATIONS = {"allocate": 4, "share": 3, "receive": 4, "verify": 3, "resize": 2, "drop": 5}
PATIENCE_SECONDS = 60.0


class Worker:
    """The tensors of one process, each with the byte that fills it, and how many may still send some."""

    def __init__(self, rank: int, seed: int, pool: Pool, inboxes: list[Any]) -> None:
        self.rng = random.Random(f"{seed}/{rank}")
        self.pool, self.inboxes, self.inbox, self.senders = pool, inboxes, inboxes[rank], len(inboxes)
        self.held: list[tuple[st.Tensor, int]] = []

    def allocate(self) -> None:
        size, byte = int(2 ** self.rng.uniform(0, 22)), self.rng.randrange(256)  # 1 byte to 4 MiB
        tensor = st.empty((size,), dtype="uint8", pool=self.pool, capacity=self.rng.choice((size, 2 * size)))
        self.held.append((tensor.fill_(byte), byte))

    def share(self) -> None:
        self.rng.choice(self.inboxes).put(self.rng.choice(self.held))

    def receive(self) -> None:
        if (message := self.inbox.get(timeout=PATIENCE_SECONDS)) is None:
            self.senders -= 1
            return
        self.held.append(message)
        self.verify(-1)

    def verify(self, index: int | None = None) -> None:
        tensor, byte = self.rng.choice(self.held) if index is None else self.held[index]
        if not (tensor.numpy() == byte).all():
            raise SystemExit(f"{tensor.numel()} bytes of {byte} were overwritten")

    def resize(self) -> None:  # it only grows, since others may read it
        storage = self.rng.choice(self.held)[0].untyped_storage()
        storage.resize_(self.rng.randint(storage.nbytes(), 2 * storage.nbytes()))

    def drop(self) -> None:
        del self.held[self.rng.randrange(len(self.held))]


def work(rank: int, seed: int, operations: int, pool_name: str, inboxes: list[Any], results: Any) -> None:
    """Do so many operations, read what others still send, report how often each was done and the rate."""
    worker = Worker(rank, seed, Pool.attach(pool_name), inboxes)
    done, started = Counter[str](), time.perf_counter()
    for name in worker.rng.choices(list(OPERATIONS), list(OPERATIONS.values()), k=operations):
        action = "allocate" if not worker.held or (name == "receive" and worker.inbox.empty()) else name
        try:
            getattr(worker, action)()
            done[action] += 1
        except OutOfSharedMemory:
            done["full"] += 1
            worker.held = worker.held[::2]
        except StorageCapacityError:  # it was sent, so it can't move
            done["at capacity"] += 1
    for inbox in inboxes:
        inbox.put(None)
    while worker.senders:
        worker.receive()
    results.put((done, done.total() / (time.perf_counter() - started)))


def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=ArgumentDefaultsHelpFormatter)
    parser.add_argument("--workers", type=int, default=4, help="processes that use the pool")
    parser.add_argument("--operations", type=int, default=4000, help="how many each of them does")
    parser.add_argument("--limit-mib", type=int, default=128, help="size of the pool in MiB")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices")
    parser.add_argument("--start-method", choices=mp.get_all_start_methods(), default="spawn", help="of the workers")
    options = parser.parse_args()
    context = mp.get_context(options.start_method)
    pool = Pool.create(limit=options.limit_mib << 20)
    results, inboxes = context.Queue(), [context.Queue() for _ in range(options.workers)]
    task = (options.seed, options.operations, pool.name, inboxes, results)
    workers = [context.Process(target=work, args=(rank, *task)) for rank in range(options.workers)]
    for worker in workers:
        worker.start()
    samples = [pool.stats()]
    while alive := [worker for worker in workers if worker.is_alive()]:
        alive[0].join(0.02)
        samples.append(pool.stats())
    if any(worker.exitcode for worker in workers):
        raise SystemExit("a worker failed")
    done, rates = zip(*(results.get(timeout=PATIENCE_SECONDS) for _ in workers), strict=True)
    print(f"seed {options.seed}: {sum(rates):,.0f} operations/s, {dict(sum(done, Counter[str]()))}")
    peak = max(samples, key=lambda stats: stats.used_bytes)
    print(f"peak use {peak.used_bytes >> 20} MiB, with {peak.committed_bytes >> 20} MiB committed")
    pool.reap()
    pool.check()
    end = pool.stats()
    print(f"final use {end.used_bytes} bytes, {end.records} records, {end.tickets} messages in flight")
    if end.used_bytes or end.records or end.tickets:
        raise SystemExit("something was left")
    pool.allocate(end.free_bytes).release()  # refused, had all the work left the free memory in pieces
    pool.check()
    pool.close()
    print(f"no fragmentation: one block of all {end.free_bytes >> 20} free MiB fits; check() passed")


if __name__ == "__main__":
    main()
