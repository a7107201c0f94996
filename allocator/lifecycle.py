"""The pools a process is attached to, and the hooks that follow them through fork and exit."""

from __future__ import annotations

import os
from gc import disable, enable, isenabled
from typing import TYPE_CHECKING

from allocator.config import EXIT_PRIORITY
from allocator.errors import AllocatorError
from allocator.fork import UNPREPARED, Parting, go_on_in_parent, hold_still, part, start_in_child
from allocator.leaving import leave, may_be_awaited, sweep_leftover
from allocator.system.locks import AWAKE, FORKING, MUTEX, outlive_daemons

if TYPE_CHECKING:
    from allocator.pool import Pool


class Registry:
    """The pools this process is attached to, by name; and the hooks that follow them through fork and exit."""

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}
        self.partings: list[tuple[Pool, Parting | str]] = []
        self.hooked = False
        self.collecting = False

    def add(self, pool: Pool) -> None:
        """Follow this pool. The hooks are set with the first one: importing does nothing."""
        if self.hooked and not AWAKE[0]:
            self.after_fork_in_child()  # of a fork without our hooks: the other pools are not ours
        AWAKE[0] = 1
        self.pools[pool.name] = pool
        if not self.hooked:
            from multiprocessing import util  # not with this file: who imports it may never use a pool

            self.hooked = True
            os.register_at_fork(
                before=self.before_fork,
                after_in_parent=self.after_fork_in_parent,
                after_in_child=self.after_fork_in_child,
            )
            os.register_at_fork(after_in_parent=FORKING.clear, after_in_child=FORKING.clear)
            # MUTEX is held around those three: `before` runs in reverse order. As functions of C, since in one of ours
            # a signal could come between taking the lock and `try`, or before its first line: locked for ever.
            os.register_at_fork(before=MUTEX.acquire, after_in_parent=MUTEX.release, after_in_child=MUTEX.release)
            # A Process's bootstrap wipes finalizers registered in the at-fork hook; these come after that.
            util.register_after_fork(self, Registry.hook_exit)
            self.hook_exit()

    def hook_exit(self) -> None:
        """Leave all pools when this process ends, after queues have pickled what they buffer."""
        from multiprocessing import util

        util.Finalize(None, self.leave_all, exitpriority=EXIT_PRIORITY)

    def leave_all(self) -> None:
        """The exit hook."""
        outlive_daemons()
        for pool in list(self.pools.values()):
            try:
                leave(pool.commons)
            except (AllocatorError, OSError):
                pass  # no place in it any more: nothing to leave
            commons = pool.commons
            if commons.closed_because is not None and commons.me is not None:
                # Its lock file was closed by other code. If nobody else has a place, its names are for us to take away.
                sweep_leftover(pool.host, pool.name, spare_awaited=may_be_awaited())

    def before_fork(self) -> None:
        """Under MUTEX until the fork is over, so no thread allocates, sends or receives between the records and the
        child. Until then the collector is off: users' finalizers would use the pools in the middle of it.
        """
        FORKING.append(True)
        self.collecting = isenabled()
        disable()
        # Fenced unless prepared: an exception here is printed, and the fork goes on.
        self.partings = [(pool, UNPREPARED) for pool in self.pools.values()]
        for pool, _ in self.partings:
            hold_still(pool)
        for i, (pool, _) in enumerate(self.partings):
            self.partings[i] = pool, part(pool)

    def after_fork_in_parent(self) -> None:
        """Also after a fork that failed: the child's slot is then given back like that of a child that died."""
        try:
            for pool, parting in self.partings:
                go_on_in_parent(pool, parting)
        finally:
            # No call of ours in here: at its first line an interrupt could come, and nothing of this would be done.
            if self.collecting:
                enable()
            self.collecting, self.partings = False, []

    def after_fork_in_child(self) -> None:
        """Take the places that the parent prepared."""
        try:
            prepared = {id(pool): parting for pool, parting in self.partings}
            for pool in list(self.pools.values()):  # all of them, also when `before_fork` was cut short
                start_in_child(pool, prepared.get(id(pool), UNPREPARED))
        finally:
            # No call of ours in here: at its first line an interrupt could come, and nothing of this would be done.
            AWAKE[0] = 1
            if self.collecting:
                enable()
            self.collecting, self.partings = False, []
        self.hook_exit()


REGISTRY = Registry()

attached = REGISTRY.pools
"""The pools this process is attached to, by name. For looking; it changes as pools come and go."""
