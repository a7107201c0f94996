"""Every snippet in the tables of docs/semantics.md does what its row says."""

from __future__ import annotations

import builtins
import copy
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmtensor as st

PAGE = Path(__file__).resolve().parents[2] / "docs" / "semantics.md"
WORDS = {"view", "copy", "view if possible"}


def rows_under(heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its two first lines."""
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def snippets(cell: str) -> list[str]:
    return re.findall(r"`(.+?)`", cell)


SHARING = [
    (snippet, word == "copy" or column == 3)
    for _, word, *cells in rows_under("View or copy")
    for column, cell in enumerate(cells, start=2)
    for snippet in snippets(cell)
]
DIFFERENCES = [
    (library, snippet)
    for _, *cells, _ in rows_under("Where this differs, and why")
    for library, cell in zip(("here", "numpy", "torch"), cells, strict=True)
    for snippet in snippets(cell)
]


def scope() -> dict[str, Any]:
    """The names that the page introduces, new ones each time."""
    names = {"st": st, "np": np, "copy": copy, "pickle": pickle}
    names |= {"t": st.arange(12).view(3, 4), "a": np.arange(12).reshape(3, 4)}
    return names | {"z": st.zeros(2, 2, dtype="complex64")}


def arrays_of(result: Any) -> list[Any]:
    """The memory of a result as arrays: of each of its parts when it has several."""
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in arrays_of(part)]
    if isinstance(result, st.TypedStorage):
        return [np.frombuffer(result.untyped().memoryview(), result.dtype)]
    return [np.asarray(result)]


@pytest.mark.parametrize(("snippet", "copies"), SHARING, ids=[snippet for snippet, _ in SHARING])
def test_a_snippet_gives_a_view_or_a_copy_as_its_row_says(snippet: str, copies: bool) -> None:
    names = scope()
    sources = [np.asarray(names[name]) for name in "taz"]
    sources[2] = sources[2].view("float32")
    made = arrays_of(eval(snippet, names))
    assert made
    for array in made:
        assert array.size
        assert any(np.shares_memory(array, source) for source in sources) != copies


def test_each_row_has_a_word_that_the_page_explains_and_snippets_that_show_it() -> None:
    rows = rows_under("View or copy")
    for _, word, examples, copying in rows:
        assert word in WORDS, word
        assert snippets(examples), examples
        assert bool(snippets(copying)) == (word == "view if possible"), copying
    assert {word for _, word, *_ in rows} == WORDS
    assert len(SHARING) > 100


def outcome(expression: str, names: dict[str, Any]) -> Any:
    try:
        return eval(expression, names)
    except Exception as error:
        return error


@pytest.mark.parametrize(("library", "snippet"), DIFFERENCES, ids=[" ".join(pair) for pair in DIFFERENCES])
def test_a_difference_is_as_the_page_says(library: str, snippet: str) -> None:
    names = scope()
    if library == "torch":
        torch = pytest.importorskip("torch", reason="torch is optional")
        names |= {"torch": torch, "x": torch.arange(12).view(3, 4)}
    expression, separator, expected = snippet.partition(" → ")
    assert separator, f"no outcome in {snippet!r}"
    found = outcome(expression, names)
    if isinstance(found, Exception):
        assert expected in [each.__name__ for each in type(found).__mro__], found
    else:
        assert found == eval(expected, names)


def test_each_difference_has_something_here_something_elsewhere_and_a_reason() -> None:
    for what, here, numpy, torch, why in rows_under("Where this differs, and why"):
        assert what
        assert len(snippets(here)) == 1, here
        assert snippets(numpy) or snippets(torch), what
        assert why
    assert {library for library, _ in DIFFERENCES} == {"here", "numpy", "torch"}


def test_the_page_is_short_and_names_what_exists() -> None:
    text = PAGE.read_text()
    assert len(text.splitlines()) <= 150
    for path in re.findall(r"`((?:tests|docs)/[\w/]+\.\w+)`", text):
        assert (PAGE.parents[1] / path).exists(), path
    for error in set(re.findall(r"`(\w+Error)`", text)):
        assert hasattr(st, error) or hasattr(builtins, error), error
