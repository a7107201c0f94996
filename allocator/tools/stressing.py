"""`shmtensor stress`: random work by many processes on a pool of its own, some killed meanwhile, and a verdict.

Each block is filled with one byte, which travels in its first word: memory handed out twice, or lost, is found.
"""

from __future__ import annotations

import multiprocessing as mp
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from allocator.block import Block
from allocator.errors import CorruptPool, NameNotFound, OutOfSharedMemory
from allocator.pool import Pool
from allocator.tools.app import WRONG, Size, json_option, show_json, size

NAMES = 32
MOST_HELD = 64
FOUND_WRONG = 9
OPERATIONS = {"allocate": 5, "publish": 4, "lookup": 5, "verify": 3, "send": 3, "drop": 5}


class Worker:
    """The blocks of one process. What it publishes the others look up, whether it lives or not."""

    def __init__(self, pool: Pool, seed: str) -> None:
        self.pool, self.rng = pool, random.Random(seed)
        self.held: list[Block] = []

    def work(self) -> None:
        """Until killed."""
        while True:
            self.step()

    def step(self) -> None:
        """One operation."""
        act = self.rng.choices(list(OPERATIONS), list(OPERATIONS.values()))[0]
        try:
            getattr(self, act if self.held or act == "lookup" else "allocate")()
        except OutOfSharedMemory:
            self.held = self.held[::2]
        except NameNotFound:
            self.allocate()

    def allocate(self) -> None:
        """A block of 8 bytes to 4 MiB, filled."""
        block = self.pool.allocate(int(2 ** self.rng.uniform(3, 22)))
        block.memoryview()[:] = bytes([self.rng.randrange(256)]) * block.nbytes
        self.held.append(block)
        if len(self.held) > MOST_HELD:
            self.drop()

    def publish(self) -> None:
        """One of ours, in place of what has the name."""
        self.pool.publish(f"block {self.rng.randrange(NAMES)}", self.rng.choice(self.held))

    def lookup(self) -> None:
        """One that somebody published."""
        self.held.append(self.pool.lookup(f"block {self.rng.randrange(NAMES)}"))
        self.verify()

    def send(self) -> None:
        """A message to ourselves, opened or discarded."""
        handle = self.rng.choice(self.held).share()
        if self.rng.random() < 0.5:
            self.held.append(handle.open())
        else:
            handle.discard()

    def verify(self) -> None:
        """The newest is filled with one byte."""
        view = self.held[-1].memoryview()
        if bytes(view) != bytes(view[:1]) * len(view):
            sys.exit(FOUND_WRONG)

    def drop(self) -> None:
        """One of ours."""
        del self.held[self.rng.randrange(len(self.held))]


def work(pool: Pool, seed: str) -> None:
    """The program of one process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(pool, seed).work()


@click.command("stress")
@click.option("--workers", default=4, show_default=True, help="Processes at a time.")
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--kill", default=2.0, show_default=True, help="How many to kill a second; each is replaced.")
@click.option("--limit", type=Size(), default="128MiB", show_default=True, help="Of the pool.")
@click.option("--seed", type=int, help="Of the random choices; a new one each time unless given.")
@json_option
def stress_command(workers: int, seconds: float, kill: float, limit: int, seed: int | None, as_json: bool) -> None:
    """Let processes allocate, publish, look up, send and drop at random in a pool of its own, and kill some meanwhile.

    Ends with a verdict, and with status 1 if anything was wrong: a byte that changed, tables that contradict each
    other, memory or messages that are left when all is over.
    """
    seed = random.randrange(1 << 30) if seed is None else seed
    with Pool.create(limit=limit, ticket_grace=0) as pool:
        kills, wrong = _storm(pool, workers, seconds, kill, seed, quiet=as_json)
        wrong += _left(pool)
    verdict = {"seed": seed, "workers": workers, "seconds": seconds, "kills": kills, "wrong": wrong}
    if as_json:
        show_json(verdict)
    else:
        found = "; ".join(wrong) or "nothing wrong, nothing left"
        click.echo(f"seed {seed}: {workers} workers, {kills} killed, a pool of {size(limit)}: {found}")
    sys.exit(WRONG if wrong else 0)


def _storm(pool: Pool, workers: int, seconds: float, kill: float, seed: int, quiet: bool) -> tuple[int, list[str]]:
    """How many were killed in the storm, and what was wrong."""
    context, rng = mp.get_context("fork"), random.Random(seed)
    wrong: list[str] = []
    started: list[Any] = []

    def start() -> Any:
        process = context.Process(target=work, args=(pool, f"{seed}/{len(started)}"))
        process.start()
        started.append(process)
        return process

    alive = [start() for _ in range(workers)]
    pause = 1 / kill if kill > 0 else seconds
    try:
        with _progress(seconds, quiet) as until:
            while not wrong and until(min(pause, seconds) * rng.uniform(0.5, 1.5)):
                victim = rng.randrange(workers)
                if kill > 0:
                    alive[victim].kill()
                    alive[victim].join()
                    alive[victim] = start()
                wrong += _look(pool)
    finally:
        for process in alive:
            process.kill()
        for process in started:
            process.join()
    codes = [process.exitcode for process in started]
    wrong += ["a process found another byte than it had written"] * codes.count(FOUND_WRONG)
    others = sorted({code for code in codes if code not in (-signal.SIGKILL, FOUND_WRONG)})
    wrong += [f"a process ended with status {code}" for code in others]
    return len(started) - workers, wrong


@contextmanager
def _progress(seconds: float, quiet: bool) -> Iterator[Any]:
    """Gives what waits some seconds more and says whether time is left; with a bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    started = time.monotonic()
    with Progress(console=Console(stderr=True), disable=quiet or not sys.stderr.isatty(), transient=True) as bar:
        task = bar.add_task("stress", total=seconds)

        def until(pause: float) -> bool:
            time.sleep(max(min(pause, started + seconds - time.monotonic()), 0))
            bar.update(task, completed=time.monotonic() - started)
            return time.monotonic() - started < seconds

        yield until


def _look(pool: Pool) -> list[str]:
    try:
        pool.check()
    except CorruptPool as error:
        return [str(error)]
    return []


def _left(pool: Pool) -> list[str]:
    """When all are dead: nothing may be left but names, and behind them nothing."""
    pool.reap()
    for name in pool.names():
        pool.unpublish(name)
    pool.discard_tickets(older_than=0)
    wrong, stats = _look(pool), pool.stats()
    if stats.used_bytes or stats.records or stats.tickets:
        wrong.append(f"left: {stats.used_bytes} bytes, {stats.records} records, {stats.tickets} messages")
    return wrong
