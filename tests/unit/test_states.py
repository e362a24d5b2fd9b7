"""The transition table as such: what ARCHITECTURE §2 says of all exits and ends."""

from __future__ import annotations

import pytest

from thunderagent.states import (
    LEASED,
    LISTED,
    TERMINAL,
    TRANSITIONS,
    Event,
    Proof,
    Status,
    Transition,
    allows,
    transitions_for,
)

EXITS = [row for row in TRANSITIONS if row.source is Status.RUNNING and row.target is not Status.RUNNING]


def name(row: Transition) -> str:
    return f"{row.event}-{row.source}-{row.target}"


def test_every_event_has_its_rows_and_no_row_is_there_twice() -> None:
    assert {row.event for row in TRANSITIONS} == set(Event)
    keys = [(row.event, row.source) for row in TRANSITIONS]
    assert len(keys) == len(set(keys))


def test_a_task_is_made_once_and_nothing_leaves_done() -> None:
    assert [row.event for row in TRANSITIONS if row.source is None] == [Event.SUBMIT]
    assert [row for row in TRANSITIONS if row.source is Status.DONE] == []


def test_only_these_leave_a_terminal_state() -> None:
    leaving = {row.event for row in TRANSITIONS if row.source in TERMINAL and row.target is not row.source}
    assert leaving == {Event.REDRIVE, Event.ACKNOWLEDGE}


@pytest.mark.parametrize("row", EXITS, ids=name)
def test_every_exit_from_running_is_fenced(row: Transition) -> None:
    if row.event is Event.PARK:
        assert Proof.UNCHANGED in row.proofs
    else:
        assert {Proof.TOKEN, Proof.TOKEN_AS_SEEN, Proof.LAPSED} & set(row.proofs)


@pytest.mark.parametrize("row", EXITS, ids=name)
def test_an_acknowledged_cancel_closes_every_exit_but_its_own(row: Transition) -> None:
    if row.event is Event.CANCEL_END:
        assert Proof.CANCEL_REQUESTED in row.proofs
    elif row.event is not Event.PARK:  # updatedAt as seen is newer after a cancel
        assert Proof.NOT_CANCELLED in row.proofs


@pytest.mark.parametrize("row", [row for row in EXITS if row.target is Status.PENDING], ids=name)
def test_an_exit_to_pending_gives_the_lease_up_and_is_news_to_the_index(row: Transition) -> None:
    assert row.removes >= LEASED
    assert row.sets >= {"dueAt", "dispatchKey", "exitedBy"}


@pytest.mark.parametrize("row", [row for row in EXITS if row.target in TERMINAL], ids=name)
def test_a_terminal_write_keeps_the_token_that_tells_whose_it_was(row: Transition) -> None:
    assert "leaseToken" not in row.removes | row.may_remove
    assert row.removes >= {"lockTime", "owner"}
    assert row.sets >= {"finishedAt", "expiresAt"}


@pytest.mark.parametrize("row", TRANSITIONS, ids=name)
def test_only_ends_set_a_time_to_live_and_only_a_redrive_takes_it_off(row: Transition) -> None:
    ends = row.target in TERMINAL and row.source not in TERMINAL
    assert ("expiresAt" in row.sets) == ends
    assert ("expiresAt" in row.removes) == (row.event is Event.REDRIVE)


@pytest.mark.parametrize("row", TRANSITIONS, ids=name)
def test_failures_are_always_listed(row: Transition) -> None:
    if row.target is Status.FAILED and row.source is not Status.FAILED:
        assert row.sets >= LISTED


@pytest.mark.parametrize("row", TRANSITIONS, ids=name)
def test_what_is_set_is_not_also_removed(row: Transition) -> None:
    assert not row.sets & (row.removes | row.may_remove)
    assert not row.may_set & row.removes


def test_the_fence_rises_at_claim_and_redrive_alone() -> None:
    assert {row.event for row in TRANSITIONS if "fence" in row.sets | row.may_set} == {Event.CLAIM, Event.REDRIVE}


def test_the_table_answers_what_may_happen() -> None:
    assert allows(Event.COMMIT, Status.RUNNING)
    assert not allows(Event.COMMIT, Status.PENDING)
    assert len(transitions_for(Event.PARK)) == 2
