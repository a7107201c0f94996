"""Importing shmtensor costs little more than importing NumPy, and does nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("cupy", "ml_dtypes", "psutil", "torch", "sklearn", "PIL")
# Of NumPy's own import time. Both need NumPy; the rest is ours.
MOST_TIMES_NUMPY = 1.3
REPEATS = 9

TIMER = "import time; started = time.process_time(); import {module}; print(time.process_time() - started)"


def run_python(code: str) -> str:
    """The stdout of a fresh interpreter, without a pool of its parent's, that runs this code, silent on stderr."""
    env = {name: value for name, value in os.environ.items() if name != "SHMTENSOR_POOL"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
def test_importing_shmtensor_costs_little_more_than_numpy() -> None:
    # Side by side and the best of each: other programs only ever make an import slower.
    pairs = [[float(run_python(TIMER.format(module=m))) for m in ("numpy", "shmtensor")] for _ in range(REPEATS)]
    numpy, shmtensor = (min(times) for times in zip(*pairs, strict=True))
    assert shmtensor <= MOST_TIMES_NUMPY * numpy, f"{shmtensor / numpy:.2f} times NumPy's {numpy:.3f} s"


@pytest.mark.report("R142")
def test_importing_shmtensor_imports_nothing_heavy() -> None:
    code = f"import sys, shmtensor; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert run_python(code).strip() == "[]"


def test_importing_allocator_imports_no_tensors_and_nothing_heavy() -> None:
    code = f"import sys, allocator; print([m for m in {(*HEAVY, 'shmtensor')!r} if m in sys.modules])"
    assert run_python(code).strip() == "[]"


@pytest.mark.report("R131")
def test_importing_makes_no_pool_and_starts_no_thread() -> None:
    code = """
import os, threading
before = dict(os.environ), len(os.listdir("/proc/self/fd"))
import shmtensor, allocator
after = dict(os.environ), len(os.listdir("/proc/self/fd"))
with open("/proc/self/maps") as maps:
    mapped = [line for line in maps if "shmt" in line and "/dev/shm" in line]
print(mapped, after[0] == before[0], after[1] - before[1], threading.active_count())
"""
    assert run_python(code).strip() == "[] True 0 1"


def test_every_public_name_is_there_and_has_a_docstring() -> None:
    code = """
import shmtensor, allocator
for module in (shmtensor, allocator):
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing) and not (getattr(thing, "__doc__", None) or "").strip():
            print(module.__name__, name)
"""
    assert run_python(code).strip() == ""
