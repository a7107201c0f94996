"""Machines that are not like the developer's: no /dev/shm, other users."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from allocator import Pool

if TYPE_CHECKING:
    from conftest import RunSmall


@pytest.mark.report("R128")
def test_all_of_a_pools_files_are_its_users_alone(pool: Pool) -> None:
    mask = os.umask(0)
    try:
        with Pool.create(limit=1 << 20) as made:
            for name in (pool.name, made.name):
                files = [Path("/dev/shm", each) for each in os.listdir("/dev/shm") if f"-{name}." in each]
                assert len(files) == 3
                for file in files:
                    assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
                    assert file.stat().st_uid == os.getuid()
    finally:
        os.umask(mask)


@pytest.mark.report("R131")
def test_without_a_dev_shm_to_write_to_importing_works_and_a_pool_says_what_is_missing(run_small: RunSmall) -> None:
    code = """
    import shmtensor as st, allocator
    import numpy as np

    assert st.float32 == np.float32
    try:
        st.zeros((3,))
    except OSError as error:
        assert "/dev/shm" in str(error), error
        print("ok")
    """
    assert run_small(code, "ro") == "ok\n"
