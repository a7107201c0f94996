"""Deaths, interrupts, scribbles and damaged headers everywhere: `every_line.py`, `comings.py`, `scribbles.py` and
`headers.py` say what runs and what must hold.

All places, which takes some minutes each: `python tests/crash/every_line.py die 1 1`, `... step 1 1`, `... raise 1 1`.
200,000 damaged headers, which take one: `python tests/crash/headers.py 0 200000`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Primes that divide no loop's length: over a few changes of the code every place is met.
SAMPLED = {"die": 41, "step": 601, "raise": 71, "starve": 101, "create": 53, "attach": 41, "visit": 23}
# From a place drawn anew each time, so that a few runs meet all of them.
DENSELY_SAMPLED = {"die": 31, "step": 293, "raise": 61, "starve": 71, "create": 19, "attach": 11, "visit": 7}


def run(run_command: Callable[..., str], mode: str, first: int, step: int, timeout: float) -> int:
    """How many children it took until the scenario survived."""
    program = "comings.py" if mode in ("create", "attach", "visit") else "every_line.py"
    return int(run_command([sys.executable, program, mode, str(first), str(step)], cwd=HERE, timeout=timeout))


@pytest.mark.report("R071")
@pytest.mark.parametrize("mode", SAMPLED)
def test_a_process_cut_short_at_any_of_many_places_leaves_a_sound_pool(
    run_command: Callable[..., str], mode: str
) -> None:
    assert run(run_command, mode, 1, SAMPLED[mode], timeout=100) > 20, "the trace saw little"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", DENSELY_SAMPLED)
def test_a_process_cut_short_anywhere_loses_nothing_of_others_and_leaves_nothing(
    run_command: Callable[..., str], mode: str
) -> None:
    step = DENSELY_SAMPLED[mode]
    first = random.randint(1, step)
    assert run(run_command, mode, first, step, timeout=500) > 40, (mode, first, step)


def scribble(run_command: Callable[..., str], first_seed: int, count: int, timeout: float) -> int:
    """How many of the seeds made an operation fail."""
    return int(run_command([sys.executable, "scribbles.py", str(first_seed), str(count)], cwd=HERE, timeout=timeout))


def test_scribbled_tables_are_refused_and_never_crash(run_command: Callable[..., str]) -> None:
    assert scribble(run_command, 0, 12, timeout=100) > 0
    for seed in (13937, 57490):  # a purge of what is no page, a living process in a free slot
        assert scribble(run_command, seed, 1, timeout=50) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_scribbled_tables_are_refused_and_never_crash(run_command: Callable[..., str]) -> None:
    seed = random.randrange(1 << 30)
    assert scribble(run_command, seed, 20, timeout=500) > 0, f"seeds from {seed} on"


@pytest.mark.report("R102", "R134")
def test_damaged_headers_open_what_was_sent_or_nothing(run_command: Callable[..., str]) -> None:
    first = random.randrange(1 << 30)
    text = run_command([sys.executable, "headers.py", str(first), "6000"], cwd=HERE, timeout=100)
    for outcome in ("InvalidHeader", "StaleHandle", "ForeignHost", "the block", "the tensor, or a view of its storage"):
        assert f" {outcome}\n" in text, (first, text)
