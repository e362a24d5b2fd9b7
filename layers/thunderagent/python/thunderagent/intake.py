"""From a request's JSON to submissions: one task, or a batch whose entries are judged each on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from thunderagent import jsontext
from thunderagent.errors import InvalidInput, RequestError, ThunderAgentError, Unprocessable
from thunderagent.jsontext import Draft, Steps, path_of
from thunderagent.submit import Submission, Submitted
from thunderagent.validation import check, parse_time, schema_named

ENTRY_DEPTH: Final = jsontext.MAX_DEPTH + 1  # a payload, and the entry around it


def submission_of(body: Any, *, schema: str = "TaskToSubmit", steps: Steps = ()) -> Submission:
    """A validated submission. Raises InvalidInput with the path of the offending value, below `steps`."""
    check(body, schema_named(schema), steps)
    unique = body.get("unique")
    run_at = body.get("runAt")
    return Submission(
        type=body["type"],
        payload=jsontext.dumps(body.get("payload"), root=path_of("", (*steps, "payload"))),
        queue=body.get("queue"),
        priority=body.get("priority"),
        delay_seconds=body.get("delaySeconds"),
        run_at=None if run_at is None else parse_time(run_at),
        max_retry_number=body.get("maxRetryNumber"),
        timeout_seconds=body.get("timeoutSeconds"),
        start_within_seconds=body.get("startWithinSeconds"),
        depends_on=tuple(dict.fromkeys(body.get("dependsOn", ()))),
        unique_seconds=None if unique is None else unique.get("windowSeconds", 0),
        tags=body.get("tags", {}),
        task_id=body.get("taskId"),
    )


# ---- a batch --------------------------------------------------------------------------------------------------------

Outcome = Submitted | ThunderAgentError


@dataclass(frozen=True)
class Entry:
    """One entry of a batch that can be tried: its place, what was sent, and what it asks for."""

    index: int
    body: Mapping[str, Any]
    submission: Submission

    @property
    def refs_needed(self) -> tuple[str, ...]:
        return tuple(parent[1:] for parent in self.submission.depends_on if parent.startswith("@"))


SubmitEntry = Callable[[Entry], Submitted]
MapEntries = Callable[[Callable[[Entry], Outcome], Sequence[Entry]], list[Outcome]]


def submit_batch(draft: Draft, submit: SubmitEntry, each: MapEntries) -> list[Outcome]:
    """What became of each entry, in order: the task, or the error that kept it out (its path names the entry).

    Entries that name others wait for these; one whose parent was refused is refused. `each` tries entries that do not
    wait for one another, perhaps at once. Raises InvalidInput when the batch itself is none.
    """
    bodies = _entries_of(draft)
    entries = [_judged(draft, index, body) for index, body in enumerate(bodies)]
    outcomes: dict[int, Outcome] = {
        index: entry for index, entry in enumerate(entries) if isinstance(entry, ThunderAgentError)
    }
    places = _places_of_refs(bodies, outcomes)

    def attempt(entry: Entry) -> Outcome:
        try:
            return submit(_with_ids(entry, places, outcomes))
        except ThunderAgentError as error:
            return _within(error, entry.index)

    while waiting := [entry for entry in entries if isinstance(entry, Entry) and entry.index not in outcomes]:
        ready = [entry for entry in waiting if not _waits(entry, places, outcomes)]
        tried = each(attempt, ready) if ready else [_cycle(entry) for entry in waiting]
        outcomes |= {entry.index: outcome for entry, outcome in zip(ready or waiting, tried, strict=True)}
    return [outcomes[index] for index in range(len(bodies))]


def _entries_of(draft: Draft) -> list[Any]:
    value = draft.value
    envelope = {**value, "tasks": []} if isinstance(value, dict) and isinstance(value.get("tasks"), list) else value
    draft.check(envelope, root="")
    check(value, schema_named("BatchToSubmit"))
    entries: list[Any] = value["tasks"]
    return entries


def _judged(draft: Draft, index: int, body: Any) -> Entry | InvalidInput:
    steps: Steps = ("tasks", index)
    try:
        draft.check(body, root=path_of("", steps), max_depth=ENTRY_DEPTH)
        return Entry(index, body, submission_of(body, schema="BatchEntry", steps=steps))
    except InvalidInput as error:
        return error


def _places_of_refs(bodies: Sequence[Any], outcomes: dict[int, Outcome]) -> dict[str, int]:
    """Which entry has which ref; a later entry with the same one is refused."""
    places: dict[str, int] = {}
    for index, body in enumerate(bodies):
        ref = body.get("ref") if isinstance(body, dict) else None
        if not isinstance(ref, str):
            continue
        if places.setdefault(ref, index) != index:
            path = f"tasks[{index}].ref"
            outcomes.setdefault(index, InvalidInput(f"{path}: tasks[{places[ref]}] has this ref already", path=path))
    return places


def _waits(entry: Entry, places: Mapping[str, int], outcomes: Mapping[int, Outcome]) -> bool:
    return any(ref in places and places[ref] not in outcomes for ref in entry.refs_needed)


def _with_ids(entry: Entry, places: Mapping[str, int], outcomes: Mapping[int, Outcome]) -> Entry:
    """The entry with its parents' ids in place of their refs. Raises Unprocessable when one has none."""
    ids = []
    for parent in entry.submission.depends_on:
        outcome = outcomes.get(places.get(parent[1:], -1)) if parent.startswith("@") else None
        if parent.startswith("@") and not isinstance(outcome, Submitted):
            problem = "was refused" if outcome is not None else "is the ref of no entry"
            raise Unprocessable(f"{parent} {problem}", path="dependsOn", code="unknown_dependency")
        ids.append(outcome.task.task_id if isinstance(outcome, Submitted) else parent)
    return replace(entry, submission=replace(entry.submission, depends_on=tuple(ids)))


def _cycle(entry: Entry) -> Outcome:
    error = Unprocessable("it depends on itself, by way of others", path="dependsOn", code="dependency_cycle")
    return _within(error, entry.index)


def _within(error: ThunderAgentError, index: int) -> ThunderAgentError:
    """The error of one submit, its path told from the batch's root."""
    if isinstance(error, RequestError):
        inner = error.path or ""
        error.path = path_of("", ("tasks", index)) + (f".{inner}" if inner and inner[0] != "[" else inner)
        error.message = f"{error.path}: {error.message.removeprefix(f'{inner}: ')}"
    return error
