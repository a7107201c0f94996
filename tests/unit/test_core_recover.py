from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from allocator.core import recover
from allocator.core.format import NOBODY, Client, Header, Name, Record, Reference, Span
from allocator.core.ledger import Ledger
from allocator.errors import CorruptPool

KIB = 1 << 10


class Scene:
    """A ledger with a bit of everything, the clients a, b (alive) and one dead; `sweep` would free four records."""

    def __init__(self, ledger: Ledger, people: Any) -> None:
        self.ledger, self.people = ledger, people
        self.a, self.b = people.join(), people.join()
        dead = people.join()
        self.free = [people.span(self.a, 20, 0, nbytes) for nbytes in (64 * KIB, 128 * KIB)]
        self.whole = people.span(self.a)
        self.slots = people.span(self.a, 18, slot_class=1)
        self.orphan = people.span(dead, 18, slot_class=1)
        for span in self.free:
            ledger.spans.free(span)
        self.kept, self.kept_row = people.publish(self.a, self.slots, 8192)
        self.records = [people.publish(self.a, self.whole), people.publish(self.a, self.slots)]
        for offset in (0, 4096):
            record, _ = people.publish(dead, self.orphan, offset)
            self.records.append((record, people.hold(self.b, record)))
        ledger.reap(dead, 1)
        assert ledger.sweep() == 0
        recover.check(ledger)

    def drop_all(self) -> None:
        for owner, (_, row) in zip((self.a, self.a, self.b, self.b), self.records, strict=True):
            self.people.drop(owner, row)


def sweep(scene: Scene) -> Callable[[], Any]:
    scene.drop_all()
    return scene.ledger.sweep


def sweep_loose(scene: Scene) -> Callable[[], Any]:
    scene.drop_all()
    scene.ledger.references.loosen()
    return scene.ledger.sweep


def allocate_used(scene: Scene) -> Callable[[], Any]:
    return lambda: scene.ledger.spans.allocate(20, 0, scene.b)


def allocate_new(scene: Scene) -> Callable[[], Any]:
    return lambda: scene.ledger.spans.allocate(17, 3, scene.b)


def free(scene: Scene) -> Callable[[], Any]:
    row = scene.people.span(scene.b)
    return lambda: scene.ledger.spans.free(row)


def reserve_memory(scene: Scene) -> Callable[[], Any]:
    row = scene.people.span(scene.b)

    def commit() -> None:
        scene.ledger.spans.raise_reserved(row, 512 * KIB)
        scene.ledger.spans.raise_committed(row, 512 * KIB)

    return commit


def purge(scene: Scene) -> Callable[[], Any]:
    def run() -> None:
        for planned in scene.ledger.spans.plan_purges(1 << 62):
            scene.ledger.spans.begin_purge(planned)
            scene.ledger.spans.settle(planned)

    return run


def reserve_rows(scene: Scene) -> Callable[[], Any]:
    def run() -> None:
        scene.ledger.records.reserve(scene.b, 3)
        scene.ledger.references.reserve(scene.b, 3, scene.ledger.take_serials(3))

    return run


def take(scene: Scene) -> Callable[[], Any]:
    return lambda: scene.ledger.references.take(scene.b, scene.kept)


def expire(scene: Scene) -> Callable[[], Any]:
    scene.people.send(scene.a, scene.kept)
    return lambda: scene.ledger.references.expire(without_sender_before_ns=0, before_ns=1)


def discard(scene: Scene) -> Callable[[], Any]:
    row, _ = scene.people.send(scene.a, scene.kept)
    return lambda: scene.ledger.references.discard(row)


def claim(scene: Scene) -> Callable[[], Any]:
    return lambda: scene.ledger.clients.claim(Client.LIVE, 1, 1, 1)


def publish(scene: Scene) -> Callable[[], Any]:
    return lambda: scene.ledger.publish(b"new", b"note", scene.kept, 1, 1)


def replace_name(scene: Scene) -> Callable[[], Any]:
    record, row = scene.records[0]
    scene.ledger.publish(b"name", b"old", record, 1, 1)
    scene.people.drop(scene.a, row)
    return lambda: scene.ledger.publish(b"name", b"new", scene.kept, 1, 1)


def unpublish(scene: Scene) -> Callable[[], Any]:
    record, row = scene.records[0]
    scene.ledger.publish(b"name", b"", record, 1, 1)
    scene.people.drop(scene.a, row)
    return lambda: scene.ledger.unpublish(b"name")


def rebuild_after_a_cut_replacement(scene: Scene) -> Callable[[], Any]:
    names = scene.ledger.names
    for note in (b"old", b"new"):
        row = names.fill(b"name", note, scene.kept, scene.ledger.take_serials(1), 1, 1)
        assert row is not None
        names.name(row)
    return lambda: recover.rebuild(scene.ledger)


def rebuild(scene: Scene) -> Callable[[], Any]:
    return lambda: recover.rebuild(scene.ledger)


def rebuild_after_a_cut_sweep(scene: Scene) -> Callable[[], Any]:
    scene.drop_all()
    scene.ledger.spans.free(scene.whole)  # its record lives on: this is where the sweep died
    return lambda: recover.rebuild(scene.ledger)


ACTIONS = [
    sweep, sweep_loose, allocate_used, allocate_new, free, reserve_memory, purge, reserve_rows, take, expire, discard,
    claim, publish, replace_name, unpublish, rebuild, rebuild_after_a_cut_sweep, rebuild_after_a_cut_replacement,
]  # fmt: skip


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_rebuild_repairs_what_a_death_at_any_line_left(
    action: Callable[[Scene], Callable[[], Any]], make_ledger: Any, people_of: Any, dies_at_line: Any, in_section: Any
) -> None:
    line, died = 0, True
    while died:
        line += 1
        ledger: Ledger = make_ledger()
        scene = Scene(ledger, people_of(ledger))
        body = action(scene)
        died = dies_at_line(lambda ledger=ledger, body=body: in_section(ledger, body), line)
        assert ledger.dirty == died
        if died:
            recover.rebuild(ledger)
        recover.check(ledger)
        ledger.sweep()
        recover.check(ledger)
        assert scene.people.record_state(scene.kept) == Record.LIVE
        finish(scene)
        assert ledger.used_bytes() == 0, f"line {line}"
        assert all(ledger.spans.state(row) == Span.FREE for row in range(ledger.spans.count())), f"line {line}"
    assert line > 1, "the trace saw nothing"


def finish(scene: Scene) -> None:
    """Everybody dies and no name stands: nothing may be left."""
    ledger = scene.ledger
    for row in ledger.names.rows().tolist():
        assert ledger.unpublish(ledger.names.text(row))
    for word in list(ledger.clients.attached()):
        ledger.reap(word, 5)
        recover.check(ledger)
    ledger.references.expire(without_sender_before_ns=5, before_ns=0)
    ledger.sweep()
    recover.check(ledger)


def test_a_name_is_the_old_or_the_new_one_at_whatever_line_its_replacement_is_cut(
    make_ledger: Any, people_of: Any, dies_at_line: Any, in_section: Any
) -> None:
    line, died, notes = 0, True, []
    while died:
        line += 1
        ledger: Ledger = make_ledger()
        body = replace_name(Scene(ledger, people_of(ledger)))
        died = dies_at_line(lambda ledger=ledger, body=body: in_section(ledger, body), line)
        if died:
            recover.rebuild(ledger)
        ledger.sweep()
        recover.check(ledger)
        row = ledger.names.find(b"name")
        assert row is not None, f"line {line}"
        notes.append(ledger.names.note(row))
    assert notes == sorted(notes, reverse=True), "old, and from one line on new"
    assert set(notes) == {b"old", b"new"}


def test_rebuild_changes_nothing_where_nothing_is_broken(make_ledger, people_of) -> None:
    ledger = make_ledger()
    scene = Scene(ledger, people_of(ledger))
    ledger.header[Header.LOOSE] = 1
    before = bytes(ledger.header), ledger.spans.table.grid.copy(), ledger.records.table.grid.copy()
    for row in scene.free:  # the order of a stack is derived: by row
        assert ledger.spans.state(row) == Span.FREE
    recover.rebuild(ledger)
    assert bytes(ledger.header) == before[0]
    assert (ledger.spans.table.grid == before[1]).all()
    assert (ledger.records.table.grid == before[2]).all()


def test_rebuild_refuses_a_record_in_a_span_that_does_not_exist(make_ledger, people_of) -> None:
    ledger = make_ledger()
    scene = Scene(ledger, people_of(ledger))
    ledger.records.words[scene.kept * Record.WIDTH + Record.SPAN] = 60
    with pytest.raises(CorruptPool, match="a live record lies in span 60"):
        recover.rebuild(ledger)


# ---- each equation, broken by hand


def in_no_state(scene: Scene) -> None:
    scene.ledger.spans.words[scene.whole * 8] = 9


def not_on_its_stack(scene: Scene) -> None:
    scene.ledger.header[Header.STACKS + 20] = 0


def on_its_stack_twice(scene: Scene) -> None:
    first, second = scene.free
    scene.ledger.spans.words[first * 8 + Span.NEXT] = second + 1
    scene.ledger.header[Header.STACKS + 20] = second + 1
    scene.ledger.spans.words[second * 8 + Span.NEXT] = first + 1


def on_a_stack_and_not_free(scene: Scene) -> None:
    scene.ledger.header[Header.STACKS + 18] = scene.slots + 1


def on_the_stack_of_another_order(scene: Scene) -> None:
    header = scene.ledger.header
    header[Header.STACKS + 17], header[Header.STACKS + 20] = header[Header.STACKS + 20], 0


def on_a_stack_that_leads_nowhere(scene: Scene) -> None:
    scene.ledger.header[Header.STACKS + 30] = 1 << 40


def spans_overlap(scene: Scene) -> None:
    scene.ledger.spans.words[scene.slots * 8 + Span.START] -= 65536


def bump_too_low(scene: Scene) -> None:
    scene.ledger.header[Header.BUMP] -= 65536


def span_beyond_the_count(scene: Scene) -> None:
    scene.ledger.spans.words[scene.ledger.spans.count() * 8] = Span.ALLOCATED | scene.a


def records_overlap(scene: Scene) -> None:
    words = scene.ledger.records.words
    words[scene.kept * 8 + Record.START] = words[scene.records[1][0] * 8 + Record.START] + 64


def record_outside_its_span(scene: Scene) -> None:
    scene.ledger.records.words[scene.kept * 8 + Record.NBYTES] = 1 << 20


def record_in_no_span(scene: Scene) -> None:
    scene.ledger.records.words[scene.kept * 8 + Record.SPAN] = 1 << 30


def record_in_a_free_span(scene: Scene) -> None:
    words, span = scene.ledger.records.words, scene.free[0]
    words[scene.kept * 8 + Record.SPAN] = span
    words[scene.kept * 8 + Record.START] = scene.ledger.spans.field(span, Span.START)


def record_without_a_name(scene: Scene) -> None:
    scene.ledger.references.words[scene.kept_row * 4] = Reference.FREE


def orphan_miscounted(scene: Scene) -> None:
    scene.ledger.spans.words[scene.orphan * 8 + Span.LIVE] += 1


def orphan_without_records(scene: Scene) -> None:
    span = scene.people.span(scene.b)
    scene.ledger.spans.orphan(span, 0)


def reserved_miscounted(scene: Scene) -> None:
    scene.ledger.header[Header.RESERVED] += 4096


def more_than_the_limit(scene: Scene) -> None:
    scene.ledger.header[Header.LIMIT] = 4096


def more_committed_than_reserved(scene: Scene) -> None:
    scene.ledger.spans.raise_committed(scene.whole, 1 << 20)


def span_of_nobody(scene: Scene) -> None:
    scene.ledger.spans.words[scene.whole * 8] = Span.ALLOCATED | NOBODY


def span_of_an_old_generation(scene: Scene) -> None:
    scene.ledger.spans.words[scene.whole * 8] = Span.ALLOCATED | scene.a + (1 << 16)


def spare_record_of_nobody(scene: Scene) -> None:
    (row,) = scene.ledger.records.reserve(scene.a, 1)
    scene.ledger.records.words[row * 8] = Record.RESERVED | NOBODY


def hold_of_a_free_slot(scene: Scene) -> None:
    scene.ledger.clients.free(scene.b >> 4 & 0xFFF)


def slot_with_a_wrong_name(scene: Scene) -> None:
    scene.ledger.clients.words[5 * Client.WIDTH] = Client.LIVE | 6 << 4 | 1 << 16


def name_in_no_state(scene: Scene) -> None:
    scene.ledger.publish(b"name", b"", scene.kept, 1, 1)
    scene.ledger.names.words[scene.ledger.names.rows()[0] * Name.WIDTH] = 2


def name_twice(scene: Scene) -> None:
    rebuild_after_a_cut_replacement(scene)


def name_of_no_record(scene: Scene) -> None:
    scene.ledger.publish(b"name", b"", 1 << 40, 1, 1)


def name_of_a_free_record(scene: Scene) -> None:
    scene.ledger.publish(b"name", b"", scene.kept + 20, 1, 1)


BROKEN: list[tuple[Callable[[Scene], None], int, str]] = [
    (in_no_state, 1, "is in no state"),
    (not_on_its_stack, 1, "2 spans are free, 0 are on stacks"),
    (on_its_stack_twice, 1, "twice"),
    (on_a_stack_and_not_free, 1, "and not free"),
    (on_the_stack_of_another_order, 1, "of order 20 is on stack 17"),
    (on_a_stack_that_leads_nowhere, 1, "doesn't exist"),
    (spans_overlap, 2, "don't tile"),
    (bump_too_low, 2, "bump pointer"),
    (span_beyond_the_count, 2, "beyond the count"),
    (records_overlap, 3, "overlap"),
    (record_outside_its_span, 3, "leaves the committed front"),
    (record_in_no_span, 3, "in no span"),
    (record_in_a_free_span, 3, "in a free span"),
    (record_without_a_name, 4, "nobody names"),
    (orphan_miscounted, 5, "counts 3 live records, there are 2"),
    (orphan_without_records, 5, "counts 0 live records"),
    (reserved_miscounted, 6, "the header says"),
    (more_than_the_limit, 6, "the limit is 4096"),
    (more_committed_than_reserved, 6, "more committed than reserved"),
    (span_of_nobody, 7, "a span names a client"),
    (span_of_an_old_generation, 7, "a span names a client"),
    (spare_record_of_nobody, 7, "a record names a client"),
    (hold_of_a_free_slot, 7, "a reference names a client"),
    (slot_with_a_wrong_name, 7, "client slot 5 is named 6"),
    (name_in_no_state, 8, "in no state"),
    (name_twice, 8, "one text"),
    (name_of_no_record, 8, "isn't live"),
    (name_of_a_free_record, 8, "isn't live"),
]


@pytest.mark.parametrize(("breaks", "equation", "says"), BROKEN, ids=[entry[0].__name__ for entry in BROKEN])
def test_check_names_the_equation_that_fails(
    ledger: Ledger, people, breaks: Callable[[Scene], None], equation: int, says: str
) -> None:
    scene = Scene(ledger, people)
    breaks(scene)
    with pytest.raises(CorruptPool, match=f"equation {equation} .*{says}"):
        recover.check(ledger)


def test_every_equation_of_the_format_is_broken_by_some_test() -> None:
    assert {equation for _, equation, _ in BROKEN} == set(range(1, 9))


def test_an_unnamed_record_is_no_error_while_the_next_sweep_knows_of_it(ledger: Ledger, people) -> None:
    scene = Scene(ledger, people)
    ledger.references.discard(scene.kept_row)
    recover.check(ledger)
    assert ledger.sweep() == 1
    assert ledger.header[Header.LOOSE] == 0
    recover.check(ledger)
    assert people.reference_state(scene.kept_row) == Reference.FREE
