"""docs/state-machine.md says what thunderagent.states says, in its diagram and in its table."""

import re
from pathlib import Path

from thunderagent.states import TRANSITIONS, Event, Status, Transition

PAGE = Path(__file__).parents[3] / "docs" / "state-machine.md"
GLOSSARY = PAGE.parent / "glossary.md"
TABLE = re.compile(r"<!-- transitions: .*? -->\n(.*)<!-- end of transitions -->", re.DOTALL)
HOUSE_WORDS = frozenset(
    {"task", "attempt", "claim", "lease", "owner", "lease token", "fence", "heartbeat", "commit", "release", "snooze"}
    | {"reap", "dead letter", "redrive", "sweep", "doorbell", "backlog", "poison task"}
)
ARROW = re.compile(r"^\s+(\S+) --> (\S+): (.+)$", re.MULTILINE)


def expected_table() -> str:
    rows = "".join(_row(transition) for transition in TRANSITIONS)
    return f"| event | from → to | the condition also shows | effect |\n|---|---|---|---|\n{rows}"


def _row(transition: Transition) -> str:
    source = "∅" if transition.source is None else transition.source.value
    proofs = "; ".join(proof.value for proof in transition.proofs)
    return f"| {transition.event.value} | {source} → {transition.target.value} | {proofs} | {transition.effect} |\n"


def test_the_table_is_the_transition_table() -> None:
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None, "the comments that mark the table are gone"
    assert found.group(1) == expected_table()


def test_the_diagram_draws_every_transition_and_no_other() -> None:
    drawn = {
        (event, source, target)
        for source, target, events in ARROW.findall(PAGE.read_text(encoding="utf-8"))
        for event in events.split(", ")
    }
    assert drawn == {
        (row.event.value, "[*]" if row.source is None else row.source.value, row.target.value) for row in TRANSITIONS
    }


def test_every_state_is_explained() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [status for status in Status if f"\n| {status.value} |" not in text] == []


def test_every_event_is_in_the_table() -> None:
    assert {row.event for row in TRANSITIONS} == set(Event)


def test_the_glossary_defines_each_word_once() -> None:
    words = re.findall(r"^\| ([a-z][a-z ]*) \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    terms = [word for word in words if word != "word"]
    assert sorted(terms) == sorted(set(terms))
    assert HOUSE_WORDS.issubset(terms)
