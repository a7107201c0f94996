"""Runs a scenario in a child again and again, cut short at one more place each time. What is left must be sound.

    python every_line.py {die,step,raise,starve} FIRST STEP

`die`: the child ends at once (`os._exit`) at the N-th line of the allocator, for N = FIRST, FIRST + STEP, ... until the
scenario survives. `step`: the same at the N-th bytecode of what writes shared tables. `raise`: KeyboardInterrupt is
raised at the N-th place where CPython lets a signal handler run: where a function begins or a loop goes on, and behind
each call, never between two plain stores; the child then has to go on working. `starve`: the same with MemoryError.
Forks of the child count along, so they are cut short at the N-th place too. After each child another process, this one,
reaps and checks. Prints how many children it took.
"""

from __future__ import annotations

import dis
import fcntl
import gc
import os
import sys
import threading
import traceback
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import allocator
from allocator import BlockHandle, Pool, PoolClosed
from allocator.core.format import PLAN

FILES = str(Path(allocator.__file__).parent)
WRITING = ("core/", "block.py", "commons.py", "exchange.py", "fork.py", "naming.py", "reaper.py")
WRITERS = tuple(f"{FILES}/{name}" for name in WRITING)
FINE, CUT_SHORT, WRONG = 0, 9, 1
KIB, MIB = 1 << 10, 1 << 20
TIMES_PER_PLACE = 6


# ---- where to cut


class Places:
    """Counts places down; one in a loop, or in a function called all the time, only so often."""

    def __init__(self, place: int) -> None:
        self.left = place
        self.times: dict[tuple[CodeType, int], int] = {}

    def is_here(self, code: CodeType, position: int) -> bool:
        times = self.times[code, position] = self.times.get((code, position), 0) + 1
        if times > TIMES_PER_PLACE:
            return False
        self.left -= 1
        return self.left == 0


class DieAt(Places):
    """Traces lines; ends the process at the one with this number."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(FILES):
            return None
        if event == "line" and self.is_here(frame.f_code, frame.f_lineno):
            os._exit(CUT_SHORT)
        return self


class DieAtStep(Places):
    """Traces bytecodes of what writes the shared tables: between the stores of one line too."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(WRITERS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and self.is_here(frame.f_code, frame.f_lasti):
            os._exit(CUT_SHORT)
        return self


class Interrupted(KeyboardInterrupt):
    """Ctrl-C."""


class Starved(MemoryError):
    """Python's own heap is full."""


def behind_calls(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions before which a signal handler may have run."""
    found, previous = set(), ""
    for instruction in dis.get_instructions(code):
        if previous in ("CALL", "CALL_FUNCTION_EX", "CALL_KW"):
            found.add(instruction.offset)
        if instruction.opname == "JUMP_BACKWARD":  # looks after it has jumped: never at the end of the loop
            found.add(instruction.argval)
        previous = instruction.opname
    return frozenset(found)


class RaiseAt(Places):
    """Traces the places where a signal handler may run; raises at the one with this number."""

    def __init__(self, place: int, error: type[BaseException] = Interrupted) -> None:
        super().__init__(place)
        self.error = error
        self.where = ""
        self.places: dict[CodeType, frozenset[int]] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(FILES):
            return None
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            if code not in self.places:
                self.places[code] = behind_calls(code)
            self.count(frame)
        elif event == "opcode" and frame.f_lasti in self.places[code]:
            self.count(frame)
        return self

    def count(self, frame: FrameType) -> None:
        if self.is_here(frame.f_code, frame.f_lasti):
            self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} ({frame.f_code.co_qualname})"
            raise self.error


TRACERS: dict[str, Any] = {"die": DieAt, "step": DieAtStep, "raise": RaiseAt, "starve": partial(RaiseAt, error=Starved)}


# ---- what is cut


def pattern(nbytes: int) -> bytes:
    return bytes(range(251)) * (nbytes // 251 + 1)


def scenario(pool: Pool, message: BlockHandle) -> int:
    """A bit of everything. The status that its forks ended with."""
    small = pool.allocate(100)
    small.memoryview()[:] = b"s" * 100
    large = pool.allocate(700 * KIB, capacity=2 * MIB)
    received = message.open()
    pool.publish("name", small)
    handle = small.share()
    mine = handle.open()
    assert bytes(mine.memoryview()) == b"s" * 100
    large.resize(1500 * KIB)
    large.resize(600 * KIB)
    many = [pool.allocate(nbytes) for nbytes in [MIB, *[512 * KIB] * 5]]
    many.clear()  # a whole span goes back, and of the three spans with two slots each all but one
    large.trim()
    travelling = large.share()
    again = travelling.open()
    again.resize(1600 * KIB)
    pool.publish("name", again)
    assert pool.lookup("name").nbytes == 1600 * KIB
    del mine, small
    other = received.share()
    unsent = pool.allocate(5000)
    unsent.memoryview()[:] = b"u" * 5000
    status = fork(pool, unsent)
    del received
    other.discard()
    throw_away(pool)
    large.release()
    pool.stats()
    blocks = [pool.allocate(200 * KIB) for _ in range(3)]
    handles = [block.share() for block in blocks[:2]]
    blocks[2].seal()
    assert bytes(unsent.memoryview()) == b"u" * 5000
    pool.unpublish("name")
    del blocks, again, unsent
    pool.purge()
    pool.reap()
    handles[0].open().release()
    pool.check()
    pool.close()
    return status


class Garbage:
    """A cycle with blocks in it, which its finalizer uses and sends."""

    def __init__(self, *blocks: allocator.Block) -> None:
        self.me, self.blocks = self, blocks

    def __del__(self) -> None:
        for block in self.blocks:
            if bytes(block.memoryview()) != b"g" * 6000:
                os._exit(WRONG)  # what is raised here would only be printed
            block.share().discard()


def throw_away(pool: Pool) -> None:
    """The collector finds one block that is older than its cycle and one that is younger, and a sent one."""
    blocks = [pool.allocate(6000) for _ in range(3)]
    for block in blocks:
        block.memoryview()[:] = b"g" * 6000
    blocks[0].share().discard()
    garbage = Garbage(*blocks)
    del blocks, block, garbage
    gc.collect()


def fork(pool: Pool, unsent: allocator.Block) -> int:
    """A child of the child uses what it inherited."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = FINE
    try:
        assert bytes(unsent.memoryview()) == b"u" * 5000
        handle = unsent.share()
        block = pool.allocate(3000)
        block.memoryview()[:] = b"x" * 3000
        del unsent, block
        assert bytes(handle.open().memoryview()) == b"u" * 5000
    except (Interrupted, Starved):
        status = CUT_SHORT
    except PoolClosed:  # the fork was interrupted: this process got no place
        pass
    except BaseException:
        traceback.print_exc()
        status = WRONG
    os._exit(status)


def goes_on_working(pool: Pool, failures: list[str]) -> None:
    """After an interrupt: the pool still serves this process, from any of its threads."""
    try:
        pool.check()
        blocks = [pool.allocate(nbytes) for nbytes in (100, 5000, 200 * KIB, 700 * KIB) for _ in range(6)]
        for i, block in enumerate(blocks):
            block.memoryview()[:] = bytes([i]) * block.nbytes
        for i, block in enumerate(blocks):
            assert bytes(block.memoryview()) == bytes([i]) * block.nbytes, f"{block} shares its bytes with another"
        again = blocks[0].share().open()
        assert bytes(again.memoryview()) == bytes(100)
        del blocks, block, again
        pool.check()
        pool.stats()
    except PoolClosed:
        if not pool.closed:
            failures.append(traceback.format_exc())
    except BaseException:
        failures.append(traceback.format_exc())


def child(pool: Pool, message: BlockHandle, mode: str, place: int) -> int:
    """One run; its exit status."""
    gc.disable()  # collects where the scenario says so, and not at another place each time
    sys.unraisablehook = lambda _: None  # what is raised in __del__ or in a hook of fork can only be printed
    tracer = TRACERS[mode](place)
    status = FINE
    sys._getframe().f_trace_opcodes = True  # else 3.12 reports no bytecode of any frame
    try:
        sys.settrace(tracer)
        try:
            status = scenario(pool, message)
        finally:
            sys.settrace(None)
    except (Interrupted, Starved):
        pass
    except BaseException:
        if not isinstance(tracer, RaiseAt) or tracer.left > 0:
            raise
        print(f"after an interrupt at {tracer.where}:", file=sys.stderr)
        raise
    if not isinstance(tracer, RaiseAt) or tracer.left > 0:
        return status
    failures: list[str] = []
    thread = threading.Thread(target=goes_on_working, args=(pool, failures), daemon=True)
    thread.start()
    thread.join(timeout=10)
    if thread.is_alive():
        failures.append("the pool hangs")
    for failure in failures:
        print(f"after an interrupt at {tracer.where}:\n{failure}", file=sys.stderr)
    return WRONG if failures else CUT_SHORT


# ---- what must hold afterwards


class Watcher:
    """The process that survives: it holds two blocks all the time, and looks at the pool after each child."""

    def __init__(self) -> None:
        self.pool = Pool.create(limit=64 * MIB)
        # Room for 16 clients instead of 1,023: every look for the dead would be a loop of so many traced lines.
        self.pool.commons.ledger.header[PLAN.clients.count_at] = 16
        self.held = [self.pool.allocate(nbytes) for nbytes in (100_000, 900_000)]
        self.contents = [pattern(block.nbytes)[: block.nbytes] for block in self.held]
        for block, content in zip(self.held, self.contents, strict=True):
            block.memoryview()[:] = content
        self.handles = [block.share() for block in self.held]  # so that a fork changes nothing of them
        self.used = self.settled()

    def settled(self) -> tuple[int, ...]:
        """What is in use once the dead are reaped and their messages discarded."""
        self.pool.reap()
        self.pool.check()
        for name in self.pool.names():
            assert self.pool.lookup(name).nbytes in (100, 1600 * KIB)
            self.pool.unpublish(name)
        self.pool.discard_tickets(older_than=0)
        self.pool.purge()
        now = self.pool.stats()
        self.pool.check()
        return now.used_bytes, now.records, now.holds, now.tickets, now.clients, now.orphan_spans

    def run(self, mode: str, place: int) -> int:
        """One child, from its birth until it and all of its children are gone; its exit status."""
        message = self.held[0].share()
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = WRONG
            try:
                # The kernel closes descriptors in ascending order: once this one is closed, the lock file is as well.
                last = fcntl.fcntl(write, fcntl.F_DUPFD, self.pool.commons.lock.descriptor + 1)
                os.close(write)
                os.set_inheritable(last, True)
                status = child(self.pool, message, mode, place)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)
        os.close(write)
        os.read(read, 1)
        os.close(read)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def look(self, place: str) -> None:
        """Assert that nothing is lost and nothing is left."""
        self.pool.check()  # first without a reap: whoever comes next repairs what a death left
        used = self.settled()
        assert used == self.used, f"{place}: {used}, before {self.used}"
        for block, content in zip(self.held, self.contents, strict=True):
            assert bytes(block.memoryview()) == content, f"{place}: the bytes of a held block changed"


def main(mode: str, first: int, step: int) -> None:
    watcher = Watcher()
    watcher.run(mode, 1 << 60)
    watcher.look("uninterrupted")
    place, runs, failed = first, 0, 0
    while True:
        status = watcher.run(mode, place)
        runs += 1
        if status not in (FINE, CUT_SHORT):
            print(f"place {place}: the child ended with {status}", file=sys.stderr)
            failed += 1
        try:
            watcher.look(f"{mode} at place {place}")
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            failed += 1
            watcher.used = watcher.settled()
        if status == FINE:
            break
        if failed > 10:
            sys.exit("too many failures")
        place += step
    watcher.pool.close()
    print(runs)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
