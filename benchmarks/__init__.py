"""How long shared-array work takes, here and with what one would otherwise use: one command, all tables and pictures.

    python -m benchmarks                        # in the checkout; prints, in a quarter of an hour
    python -m benchmarks --write                # puts what it found into README.md and docs/ too; needs matplotlib
    python -m benchmarks --pin --only send      # some works only, both ends on one CPU: steadier for small work

Needs NumPy; other libraries take part where they are installed. `works` has what is timed and the table's rows,
`growth` how cost grows, `solo` what concerns this project alone, `goals` what it should be. To add a library, write a
`Peer` as those in `peers` or `optional`, and list it there or in `__main__.PEERS`.
"""

from __future__ import annotations
