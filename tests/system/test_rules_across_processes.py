"""Every rule of the tensor semantics holds on both sides of a process boundary; the cases are in `rules`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from system.rules import RULES, Raises, agrees

if TYPE_CHECKING:
    from conftest import RunScript

SCRIPT = """
import sys, traceback
sys.path.insert(0, sys.argv[1])
from rules import RULES, agrees

def serve(inbox, outbox):
    try:
        answer(inbox, outbox)
    except Exception:
        outbox.put(traceback.format_exc())

def answer(inbox, outbox):
    for _ in range(2 * len(RULES)):
        rule, count = inbox.get()
        tensors = inbox.get() if count == 0 else [inbox.get() for _ in range(count)]
        case = RULES[rule]
        outbox.put(case.facts(*tensors))
        case.worker_writes(*tensors)
        outbox.put("written")
        assert inbox.get() == "written"
        outbox.put(case.worker_sees(*tensors))

def run(rule, case, together, inbox, outbox):
    '''The differences found: tensors sent one by one, or ``together`` in one message.'''
    tensors = case.make()
    inbox.put((rule, 0 if together else len(tensors)))
    for message in [tensors] if together else tensors:
        inbox.put(message)
    found = outbox.get()
    assert isinstance(found, dict), f"rule {rule}: {found}"
    wrong = [(name, found.get(name), case.expected.get(name)) for name in sorted({*found, *case.expected})
             if name not in found or name not in case.expected or not agrees(found[name], case.expected[name])]
    done = outbox.get()
    assert done == "written", f"rule {rule}: {done}"
    seen = case.parent_sees(*tensors)
    wrong += [] if seen == case.seen_by_parent else [("seen by the parent", seen, case.seen_by_parent)]
    case.parent_writes(*tensors)
    inbox.put("written")
    seen = outbox.get()
    return wrong + ([] if seen == case.seen_by_worker else [("seen by the worker", seen, case.seen_by_worker)])

if __name__ == "__main__":
    inbox, outbox = mp.Queue(), mp.Queue()
    worker = mp.Process(target=serve, args=(inbox, outbox), daemon=True)
    worker.start()
    for rule, case in RULES.items():
        for together in (True, False):
            for name, found, expected in run(rule, case, together, inbox, outbox):
                print(f"rule {rule}, {'together' if together else 'one by one'}, {name}: {found}, not {expected}")
    worker.join()
    print("ran", *RULES)
"""


def test_every_rule_has_a_case() -> None:
    assert sorted(RULES) == list(range(1, 16))


def test_an_error_agrees_only_by_class_and_message() -> None:
    found = (["LayoutError", "RuntimeError"], "dims 0 and 1: use reshape")
    assert agrees(found, Raises("RuntimeError", ("dims 0", "reshape")))
    assert not agrees(found, Raises("IndexError"))
    assert not agrees(found, Raises("LayoutError", ("dims 2",)))
    assert not agrees(([], "no error, but 3"), Raises("LayoutError"))


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_every_rule_holds_in_both_processes_and_writes_go_both_ways(run_script: RunScript, method: str) -> None:
    here = Path(__file__).parent
    expected = "ran " + " ".join(map(str, range(1, 16))) + "\n"
    assert run_script(SCRIPT, here, start_method=method) == expected
