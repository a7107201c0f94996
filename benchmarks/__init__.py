"""How long shared-array work takes, here and with what one would otherwise use: one command, one table.

    python -m benchmarks                        # in the checkout; about a minute
    python -m benchmarks --pin --only send      # both ends on one CPU: steadier for small work

Needs NumPy; tqdm, if there, shows progress on a terminal. `works` has what is timed, and the rows. To add a library,
write a `Peer` as those in `peers`, and list it in `__main__.PEERS`.
"""

from __future__ import annotations
