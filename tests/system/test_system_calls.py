"""What the kernel sees of the hot paths: system calls, which strace counts where it may, and page faults."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

TIMES = 128  # twice as many rows as are reserved at a time
ROUNDS = 6
# Each part does its work so many times, and begins with a mark in the trace: a call of access() that fails.
WORK = """
import gc, os, pickle, sys
from multiprocessing.reduction import ForkingPickler
import shmtensor as st

TIMES, ROUNDS = map(int, sys.argv[1:])
gc.disable()
known = st.empty((8, 256))

def mark(name):
    os.access(f"/mark/{name}", os.F_OK)

def send(tensor):
    return bytes(ForkingPickler.dumps(tensor))

for _ in range(ROUNDS):
    mark("allocate")
    tensors = [st.empty((256,)) for _ in range(TIMES)]
    mark("share")
    messages = [send(tensor) for tensor in tensors]
    mark("free what is shared")
    tensors.clear()
    mark("open")
    tensors = [pickle.loads(message) for message in messages]
    mark("look")
    for tensor in tensors:
        tensor.numpy()
    mark("drop")
    del tensor
    tensors.clear()
    mark("share again")
    messages = [send(known) for _ in range(TIMES)]
    mark("share a row")
    messages = [send(known[1]) for _ in range(TIMES)]
    mark("open what is open")
    tensors = [pickle.loads(message) for message in messages]
    tensors.clear()
    mark("allocate and free")
    for _ in range(TIMES):
        st.empty((256,)).numpy()
    mark("allocate and free 16 MiB")
    for _ in range(TIMES):
        st.empty((4 << 20,)).numpy()
    mark("end")
"""
SECTION = 4
"""System calls of a critical section: lock, two questions of the fence, unlock."""
# Critical sections of each part. Sharing for the first time takes two rows of the reference table, otherwise one.
SECTIONS = {
    "allocate": 0,
    "share": 2 * TIMES // 64,
    "free what is shared": 0,
    "open": TIMES // 64,
    "look": 0,
    "drop": 0,
    "share again": TIMES // 64,
    "share a row": TIMES // 64,
    "open what is open": TIMES // 64,
    "allocate and free": 1,  # once, for the slots that other parts had sent
    "allocate and free 16 MiB": 2 * TIMES,
}


def traced(path: Path) -> dict[str, list[Counter[str]]]:
    """The system calls of each part in each round, by name."""
    parts: dict[str, list[Counter[str]]] = {}
    calls: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        if mark := re.search(r'access.*"/mark/([^"]*)"', line):
            calls = Counter()
            parts.setdefault(mark[1], []).append(calls)
        elif call := re.match(r"\w+(?=\()", line):
            calls[call[0]] += 1
    return parts


def why_not_strace(folder: Path) -> str:
    """Why strace can't be asked here, or nothing."""
    if shutil.which("strace") is None:
        return "strace is not installed; tests/unit/test_counts.py counts what it can without"
    command = ["strace", "-o", str(folder / "probe"), "true"]
    probe = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    return f"strace may not trace here: {probe.stderr.strip()}" if probe.returncode else ""


def test_the_hot_paths_make_no_more_system_calls_than_they_did(run_command: Any, tmp_path: Path) -> None:
    if reason := why_not_strace(tmp_path):
        pytest.skip(reason)
    program, trace = tmp_path / "work.py", tmp_path / "trace"
    program.write_text(WORK)
    command = ["strace", "-o", str(trace), sys.executable, str(program), str(TIMES), str(ROUNDS)]
    run_command(command, cwd=tmp_path, timeout=60)
    parts = traced(trace)
    assert set(parts) == {*SECTIONS, "end"}
    for name, sections in SECTIONS.items():
        # The first rounds stock up, and now and then the interpreter asks for memory: the best round is ours.
        calls = min(parts[name], key=Counter.total)
        assert calls.total() <= SECTION * sections, f"{name}: {dict(calls)} for {sections} critical sections"


def test_a_steady_pipeline_has_no_page_faults_on_either_side(run_script: Any) -> None:
    code = """
import resource
import shmtensor as st

SHAPE, BATCHES, WINDOWS, IN_FLIGHT = (2 << 20,), 8, 8, 3  # 8 MiB

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def consume(batches, acks):
    while True:
        before = faults()
        for _ in range(BATCHES):
            batch = batches.recv()
            if batch is None:
                return
            total = float(batch.numpy().sum())
            del batch
            acks.send(total)
        acks.send(faults() - before)

def main():
    batches_in, batches_out = mp.Pipe(False)
    acks_in, acks_out = mp.Pipe(False)
    worker = mp.Process(target=consume, args=(batches_in, acks_out))
    worker.start()
    windows = []
    for _ in range(WINDOWS):
        before = faults()
        for value in range(BATCHES + IN_FLIGHT):
            if value < BATCHES:
                batch = st.empty(SHAPE)
                batch.numpy().fill(value)
                batches_out.send(batch)
                del batch
            if value >= IN_FLIGHT:
                assert acks_in.recv() == (value - IN_FLIGHT) * SHAPE[0]
        windows.append((faults() - before, acks_in.recv()))
    batches_out.send(None)
    worker.join()
    print(*(min(side) for side in zip(*windows)), min(windows[0]) > 0)

if __name__ == "__main__":
    st.default_pool()
    main()
"""
    # Of each side the best window: a busy machine, and the interpreter, may add some to any. Those of the first show
    # that they are counted.
    assert run_script(code).split() == ["0", "0", "True"]
