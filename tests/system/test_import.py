"""Importing shmtensor costs little more than importing NumPy, and does nothing else."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

HEAVY = ("cupy", "ml_dtypes", "psutil", "torch", "sklearn", "PIL")
# What making a tensor needs of the standard library that NumPy hasn't imported: small modules, most of them in C.
BESIDE_NUMPY = {"__future__", "copy", "errno", "fcntl", "gc", "mmap", "select", "zlib"}
# Of NumPy's own import time, which varies by a fifth from run to run. Both need NumPy; the rest is ours.
MOST_TIMES_NUMPY = 1.5
REPEATS = 9

TIMER = "import time; started = time.process_time(); {imports}; print(time.process_time() - started)"


def run_python(code: str, **variables: str) -> str:
    """The stdout of a fresh interpreter, without a pool of its parent's, that runs this code, silent on stderr."""
    env = {name: value for name, value in os.environ.items() if name != "SHMTENSOR_POOL"} | variables
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
def test_importing_shmtensor_costs_little_more_than_numpy(tmp_path: Path) -> None:
    # A name, since the package alone imports nothing yet; and once before, which compiles it.
    timers = [TIMER.format(imports=imports) for imports in ("import numpy", "from shmtensor import zeros")]
    compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    run_python(timers[1], **compiled)
    # Side by side and the best of each: other programs only ever make an import slower.
    pairs = [[float(run_python(timer, **compiled)) for timer in timers] for _ in range(REPEATS)]
    numpy, shmtensor = (min(times) for times in zip(*pairs, strict=True))
    assert shmtensor <= MOST_TIMES_NUMPY * numpy, f"{shmtensor / numpy:.2f} times NumPy's {numpy:.3f} s"


def test_making_a_tensor_imports_little_beside_numpy() -> None:
    code = """
import sys, numpy
before = set(sys.modules)
from shmtensor import zeros
print({name for name in set(sys.modules) - before if not name.startswith(("allocator", "shmtensor"))})
"""
    assert ast.literal_eval(run_python(code)) <= BESIDE_NUMPY


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


def test_nothing_is_imported_inside_the_critical_section(run_script: RunScript) -> None:
    """An import takes long, and fails where descriptors have run out or another user can't read the folder."""
    run_script(
        """
        import gc, os, pickle, sys
        import shmtensor as st
        from allocator.core.format import Header
        from allocator.system import locks

        class Watch:
            def find_spec(self, name, path=None, target=None):
                if locks.is_inside():
                    found.append(name)

        found = []
        sys.meta_path.insert(0, Watch())
        pool = st.Pool.create(limit=16 << 20)
        small, large = st.ones((100,), pool=pool), st.empty((1 << 18,), pool=pool, capacity=8 << 20)
        received = pickle.loads(pickle.dumps(small))
        message = pickle.dumps(large)
        large.untyped_storage().resize_(2 << 20)
        large.untyped_storage().holders()
        st.publish("name", small)
        kept = [st.lookup("name", pool=pool), pool.names(), pool.tickets(), pool.stats(), pool.size_classes()]
        many = [pickle.loads(pickle.dumps(st.ones((i,), pool=pool))) for i in range(200)]
        try:
            pool.allocate(1 << 30)
        except st.OutOfSharedMemory:
            pass
        else:
            raise AssertionError
        for status in (0, 9):
            child = os.fork()
            if not child:
                got = pickle.loads(message)
                del small, large, many[50:]
                st.ones((1000,), pool=pool).header()
                assert not found, found
                os._exit(0) if not status else os.kill(os.getpid(), status)
            assert os.waitpid(child, 0)[1] == status
        del many, received, kept
        st.unpublish("name", pool=pool)
        pool.reap()
        pool.discard_tickets(older_than=0)
        pool.commons.header[Header.DIRTY] = 1  # as a death leaves it: the next one rebuilds
        pool.check()
        pool.purge()
        pool.close()
        del small, large
        gc.collect()
        assert pool.is_lost and not found, found
        """
    )
