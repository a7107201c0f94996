"""Cuts creating a pool, attaching to one and upkeep from outside short, at one more line each time. What is left must
be sound, or swept.

    python comings.py {create,attach,visit} FIRST STEP

The child is a process that doesn't know any pool yet. It makes or finds one, uses it a little and leaves; it ends at
once (`os._exit`) at the N-th line of the allocator, for N = FIRST, FIRST + STEP, ... until it survives. Prints how many
children it took.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing import Pipe, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from every_line import CUT_SHORT, FINE, MIB, WRONG, DieAt

import allocator
from allocator import Pool, visiting
from allocator.system.host import SHM_FOLDER

CONTENT = b"kept" * 1000


def forked(body: Callable[[], None]) -> int:
    """The pid of a child that runs this and ends without any hook."""
    pid = os.fork()
    if pid == 0:
        status = WRONG
        try:
            body()
            status = FINE
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def use(pool: Pool) -> None:
    """A little of everything that needs a place in it."""
    block = pool.allocate(5000)
    handle = block.share()
    del block
    handle.open().release()
    pool.close()


def cut_short(place: int, come: Callable[[], Pool]) -> int:
    """The status of a child that comes to a pool, uses it and dies at that place."""

    def body() -> None:
        sys.settrace(DieAt(place))
        use(come())
        sys.settrace(None)

    return os.waitstatus_to_exitcode(os.waitpid(forked(body), 0)[1])


class Host:
    """A process of its own with a pool and a block in it, so that this one never attaches."""

    def __init__(self) -> None:
        self.link, theirs = Pipe()
        self.pid = forked(lambda: self.serve(theirs))
        self.name: str = self.link.recv()

    def serve(self, link: Connection) -> None:
        with Pool.create(limit=64 * MIB) as pool:
            block = pool.allocate(len(CONTENT))
            block.memoryview()[:] = CONTENT
            link.send(pool.name)
            while link.recv():
                link.send(self.look(pool, block))

    def look(self, pool: Pool, block: allocator.Block) -> str:
        """What is wrong, else nothing."""
        try:
            pool.check()
            pool.reap()
            pool.check()
            pool.discard_tickets(older_than=0)
            pool.purge()
            stats = pool.stats()
            assert (stats.clients, stats.records, stats.holds, stats.tickets) == (1, 0, 0, 0), stats
            assert stats.orphan_spans == 0, stats
            assert bytes(block.memoryview()) == CONTENT
            return ""
        except BaseException:
            return traceback.format_exc()

    def wrong(self) -> str:
        self.link.send(True)
        answer: str = self.link.recv()
        return answer

    def end(self) -> None:
        self.link.send(False)
        os.waitpid(self.pid, 0)


def attach(place: int, host: Host) -> tuple[int, str]:
    return cut_short(place, lambda: Pool.attach(host.name)), host.wrong()


def visit(place: int, host: Host) -> tuple[int, str]:
    """Reap and purge without a place, beside a client that died with something in its hands."""

    def leave_something() -> None:
        pool = Pool.attach(host.name)
        pool.publish("left", pool.allocate(900_000))
        pool.allocate(700_000).share()
        pool.unpublish("left")

    def body() -> None:
        sys.settrace(DieAt(place))
        visiting.reap(host.name)
        visiting.purge(host.name)
        sys.settrace(None)

    os.waitpid(forked(leave_something), 0)
    return os.waitstatus_to_exitcode(os.waitpid(forked(body), 0)[1]), host.wrong()


def create(place: int, _: Any = None) -> tuple[int, str]:
    name = f"made{os.getpid()}"
    status = cut_short(place, lambda: Pool.create(name, limit=64 * MIB, ticket_grace=0))
    if status == CUT_SHORT:
        os.waitpid(forked(lambda: Pool.create(limit=MIB).close()), 0)  # sweeps
    left = [entry for entry in os.listdir(SHM_FOLDER) if f"-{name}." in entry]
    return status, f"left: {left}" if left else ""


def start_silent_tracker() -> None:
    """Before 3.13 it reports a process that died while making a segment, between registering it and taking it out."""
    said = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    resource_tracker.ensure_running()
    os.dup2(said, 2)
    os.close(said)
    os.close(nowhere)


def main(act: str, first: int, step: int) -> None:
    start_silent_tracker()
    host = None if act == "create" else Host()
    place, runs, failed = first, 0, 0
    while True:
        status, wrong = {"create": create, "attach": attach, "visit": visit}[act](place, host)
        runs += 1
        if status not in (FINE, CUT_SHORT) or wrong:
            print(f"place {place}: the child ended with {status}; {wrong}", file=sys.stderr)
            failed += 1
        if status == FINE or failed > 10:
            break
        place += step
    if host is not None:
        host.end()
    print(runs)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
