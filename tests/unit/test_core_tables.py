from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allocator.core.format import plan_tables
from allocator.core.tables import Table, isin_state

CAPACITY = 6000


def make_table(rows: int, taken: list[int]) -> Table:
    """A table of which `rows` rows have memory; `taken` are in use, and everything beyond would look free."""
    plan = plan_tables(1, 1, CAPACITY, 1, 1)
    table = Table(memoryview(bytearray(plan.nbytes)), plan.records)
    table.header[plan.records.count_at] = rows
    table.grid[taken, 0] = 1
    return table


@settings(deadline=None)  # a loaded machine is not a failure
@given(
    rows=st.integers(0, CAPACITY),
    cursor=st.integers(0, CAPACITY),
    count=st.integers(0, CAPACITY),
    taken=st.integers(0, CAPACITY),
    seed=st.integers(0, 1 << 32),
)
def test_find_free_gives_each_free_row_at_most_once_and_as_many_as_there_are(
    rows: int, cursor: int, count: int, taken: int, seed: int
) -> None:
    in_use = np.random.default_rng(seed).permutation(rows)[:taken].tolist()
    table = make_table(rows, in_use)
    table.cursor = cursor
    found = table.find_free(count)
    assert len(set(found)) == len(found) == min(count, rows - len(in_use))
    assert not set(found) & set(in_use)
    assert all(0 <= row < rows for row in found)


def test_find_free_never_gives_a_row_twice_when_the_search_wraps_inside_a_window() -> None:
    table = make_table(100, [])
    table.cursor = 90
    assert table.find_free(100) == [*range(90, 100), *range(90)]


def test_find_free_wraps_once_around_a_table_larger_than_its_windows() -> None:
    table = make_table(5000, list(range(4999)))
    table.cursor = 1
    assert table.find_free(2) == [4999]


def test_find_free_goes_on_where_the_last_search_ended() -> None:
    table = make_table(100, [2])
    assert table.find_free(2) == [0, 1]
    assert table.find_free(2) == [3, 4]
    table.cursor = 100
    assert table.find_free(1) == [0]


def test_find_free_looks_at_nothing_that_has_no_memory() -> None:
    assert make_table(0, []).find_free(5) == []
    assert make_table(3, [0, 1, 2]).find_free(5) == []


def test_a_table_wants_growth_when_less_than_a_quarter_is_free() -> None:
    assert not make_table(100, list(range(75))).wants_growth()
    assert make_table(100, list(range(76))).wants_growth()
    assert not make_table(CAPACITY, list(range(CAPACITY))).wants_growth()  # as large as it gets


def test_isin_state_looks_at_the_low_four_bits_only() -> None:
    words = np.array([0, 1, 2, 3, 0x10 | 2, 0xF0 | 3, 1 << 63 | 2], np.uint64)
    assert isin_state(words, 2).tolist() == [False, False, True, False, True, False, True]
    assert isin_state(words, 2, 3).tolist() == [False, False, True, True, True, True, True]
