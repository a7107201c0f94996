from __future__ import annotations

import threading

import pytest

from allocator.system.locks import MUTEX, try_under_mutex


def owned_by_nobody() -> bool:
    """Asked from another thread, since this one may enter again."""
    free: list[bool] = []

    def ask() -> None:
        if MUTEX.acquire(blocking=False):
            MUTEX.release()
            free.append(True)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return bool(free)


def test_a_body_runs_under_the_mutex_and_it_is_free_afterwards() -> None:
    seen: list[bool] = []
    assert try_under_mutex(lambda value: seen.append(value and not owned_by_nobody()), True)
    assert seen == [True]
    assert owned_by_nobody()


def test_a_body_that_raises_leaves_the_mutex_free() -> None:
    with pytest.raises(KeyboardInterrupt):
        try_under_mutex(interrupt)
    assert owned_by_nobody()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_body_is_not_run_while_another_thread_has_the_mutex() -> None:
    has_it, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with MUTEX:
            has_it.set()
            may_go.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    has_it.wait(10)
    try:
        assert not try_under_mutex(pytest.fail)
    finally:
        may_go.set()
        thread.join()
    assert owned_by_nobody()


def test_the_thread_that_has_the_mutex_may_try_too() -> None:
    with MUTEX:
        assert try_under_mutex(lambda: None)
        assert not owned_by_nobody()
    assert owned_by_nobody()
