"""`shmtensor map`: the heap as a picture, each span as wide as the memory it has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from allocator.survey import Run, Shared, Survey, survey
from allocator.tools.app import USAGE, fail, pool_argument, size

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINES = 24
COLOURS = {"used": "#2b6cb0", "in flight": "#d69e2e", "orphan": "#805ad5", "warm": "#a0aec0", "free": "#e2e8f0"}


@click.command("map")
@pool_argument
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="A .png, .svg or .html file."
)
def map_command(pool: str, output: Path) -> None:
    """Draw the heap: every span that has memory, in the order of addresses, as wide as that is.

    Used, in flight (a whole block that only messages keep), used by what dead processes left and others hold, warm
    (has memory, free within a used span), free (has memory, in nobody's use).
    """
    if output.suffix not in (".png", ".svg", ".html"):
        fail(f"{output} ends with none of .png, .svg and .html, so nobody knows what to draw", USAGE)
    try:
        import matplotlib as mpl
    except ImportError:
        fail("the map needs matplotlib: pip install 'shmtensor[plot]'", USAGE)
    mpl.use("Agg")
    figure = draw(survey(pool))
    if output.suffix == ".html":
        output.write_text(page(pool, figure), encoding="utf-8")
    else:
        figure.savefig(output)
    click.echo(str(output))


def pieces(found: Survey) -> list[tuple[int, str]]:
    """(bytes, what for) of the committed memory, in the order of addresses."""
    flying = {block.start for block in found.shared() if _only_messages_keep(block)}
    return [piece for run in found.runs() for piece in _pieces_of(run, flying) if piece[0]]


def _only_messages_keep(block: Shared) -> bool:
    return bool(block.holders) and all(holder.kind == "ticket" for holder in block.holders)


def _pieces_of(run: Run, flying: set[int]) -> list[tuple[int, str]]:
    if run.state == "free":
        return [(run.committed_bytes, "free")]
    kind = "orphan" if run.state == "orphan" else "used"
    if run.slot_bytes == 0 and run.start in flying:
        kind = "in flight"
    used = min(run.used_bytes, run.committed_bytes)
    return [(used, kind), (run.committed_bytes - used, "warm")]


def draw(found: Survey) -> Figure:
    """The map: lines of memory, from the top left."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    parts = pieces(found)
    total = sum(nbytes for nbytes, _ in parts)
    line = max(-(-total // LINES), 1)
    figure = Figure(figsize=(12, 7))
    axes = figure.subplots()
    at = 0
    for nbytes, kind in parts:
        while nbytes:  # a piece may go on in the next line
            row, column = divmod(at, line)
            width = min(nbytes, line - column)
            axes.broken_barh([(column, width)], (-row, 0.85), color=COLOURS[kind], edgecolor="white", linewidth=0.3)
            at, nbytes = at + width, nbytes - width
    axes.set(xlim=(0, line), ylim=(1 - LINES, 1), xticks=[], yticks=[])
    axes.set_frame_on(False)
    stats = found.stats()
    axes.set_title(
        f"{found.name}: {size(stats.used_bytes)} used, {size(stats.committed_bytes)} committed, limit "
        f"{size(stats.limit_bytes)}; a line is {size(line)}",
        loc="left",
    )
    sums = {kind: sum(nbytes for nbytes, other in parts if other == kind) for kind in COLOURS}
    handles = [Patch(color=COLOURS[kind], label=f"{kind} {size(nbytes)}") for kind, nbytes in sums.items()]
    figure.legend(handles=handles, loc="lower left", ncols=len(handles), frameon=False)
    return figure


def page(pool: str, figure: Figure) -> str:
    """The map as one HTML file."""
    from io import StringIO

    picture = StringIO()
    figure.savefig(picture, format="svg")
    _, tag, drawing = picture.getvalue().partition("<svg")
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{pool}</title>'
    return f"{head}<body>{tag}{drawing}</body></html>\n"
