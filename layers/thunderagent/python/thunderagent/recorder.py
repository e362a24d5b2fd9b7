"""The recorder: what the table's stream tells, made known and kept. Ends become events, removed tasks become archive.

Everything here may happen again: a batch is delivered at least once. One bad record is given up alone, with its key. A
store that fails holds the whole batch back, for as long as the batch is young: then Lambda delivers it again. One that
is older than our patience is given up record by record, so that no stream stands still for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from thunderagent.archive import ArchiveObject, line_of, objects_of, references_of
from thunderagent.audit_rules import change_findings
from thunderagent.codec import Item
from thunderagent.completion import Unsent
from thunderagent.errors import StoreError, ThunderAgentError
from thunderagent.failures import Failures
from thunderagent.leftovers import Leftovers
from thunderagent.store import Store
from thunderagent.stream import BadRecord, Change
from thunderagent.telemetry import Observer

BODIES_AT_ONCE = 25  # changes whose side items are in memory together: at most 350 KiB each
PUT_ATTEMPTS = 3
PUT_BACKOFF_SECONDS = (0.2, 1.0)


class RecordingDelayed(ThunderAgentError):
    """Something the recorder needs does not answer: the batch is to be delivered again."""


class Publishes(Protocol):
    def wants(self, change: Change) -> bool: ...
    def publish(self, changes: Sequence[Change]) -> list[Unsent]: ...


class Objects(Protocol):
    def put(self, key: str, data: bytes) -> None: ...


@dataclass
class Recorded:
    """What became of one batch."""

    events: int = 0
    archived: int = 0
    erased: int = 0
    bad: list[tuple[Any, str, str]] = field(default_factory=list)
    delayed: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, int]:
        counts = {"events": self.events, "archived": self.archived, "erased": self.erased, "givenUp": len(self.bad)}
        return {name: count for name, count in counts.items() if count}


class Recorder:
    """Records batches of the stream. `patience_seconds` is how old a batch may be to be held back."""

    def __init__(
        self,
        store: Store,
        *,
        objects: Objects | None,
        completions: Publishes | None,
        leftovers: Leftovers,
        failures: Failures,
        patience_seconds: float,
        observer: Observer,
    ) -> None:
        self._store = store
        self._objects = objects
        self._completions = completions
        self._leftovers = leftovers
        self._failures = failures
        self._patience_seconds = patience_seconds
        self._observer = observer

    def record(self, event: Mapping[str, Any]) -> Recorded:
        """Record one batch. Raises RecordingDelayed when it must come again (what was done then is done twice)."""
        recorded = Recorded()
        records = event.get("Records")
        changes = self._readable(records if isinstance(records, list) else [], recorded)
        self._audit(changes)
        self._publish([change for change in changes if change.is_end], recorded)
        removals = [change for change in changes if change.is_removal]
        archived, bodies = self._archive(removals, event.get("shardId"), recorded)
        self._clear(archived, bodies, recorded)
        if recorded.delayed:  # who is to be given up will be found again, and is not to be told of twice
            raise RecordingDelayed(f"to be delivered again: {', '.join(recorded.delayed)}")
        for record, stage, error in recorded.bad:
            self._failures.keep(record, stage=stage, error=error)
        return recorded

    # ---- reading -----------------------------------------------------------------------------------------------------

    def _readable(self, records: Sequence[Any], recorded: Recorded) -> list[Change]:
        changes = []
        for record in records:
            try:
                changes.append(Change.from_record(record))
            except BadRecord as bad:
                recorded.bad.append((record, "read", bad.problem))
        return changes

    def _audit(self, changes: Sequence[Change]) -> None:
        """What only the two images side by side can show."""
        for change in changes:
            for finding in change_findings(change.old, change.new):
                self._observer.measure("AuditViolations")
                self._observer.log("audit.violation", level="ERROR", **finding.as_fields())

    # ---- events ------------------------------------------------------------------------------------------------------

    def _publish(self, ends: Sequence[Change], recorded: Recorded) -> None:
        if self._completions is None:
            return
        wanted = [change for change in ends if self._completions.wants(change)]
        unsent = self._completions.publish(wanted) if wanted else []
        recorded.events = len(wanted) - len(unsent)
        passing = [each for each in unsent if each.passing]
        if passing and self._is_young([each.change for each in passing]):
            recorded.delayed.append(f"events: {passing[0].code}")
            unsent = [each for each in unsent if not each.passing]
        for each in unsent:
            recorded.bad.append((each.change.record, "event", each.code))

    # ---- archive -----------------------------------------------------------------------------------------------------

    def _archive(
        self, removals: Sequence[Change], shard: Any, recorded: Recorded
    ) -> tuple[list[Change], dict[str, Item]]:
        """Keep every removed task that can be made a line. Returns those kept, and their side items without texts."""
        lines: list[tuple[Change, str]] = []
        seen: dict[str, Item] = {}
        for start in range(0, len(removals), BODIES_AT_ONCE):
            few = removals[start : start + BODIES_AT_ONCE]
            bodies = self._bodies(few, recorded)
            if bodies is None:
                return [], {}
            for change in few:
                line = self._line(change, bodies, recorded)
                if line is not None:
                    lines.append((change, line))
            seen |= {name: _without_body(body) for name, body in bodies.items()}
        objects = objects_of(lines, shard=shard if isinstance(shard, str) else None)
        kept = [change for archived in objects if self._put(archived, recorded) for change in archived.changes]
        return kept, seen

    def _bodies(self, changes: Sequence[Change], recorded: Recorded) -> dict[str, Item] | None:
        """The side items of these changes. None when they cannot be read now, and the batch is held back."""
        wanted = [reference for change in changes for reference in references_of(change)]
        if not wanted:
            return {}
        try:
            return self._store.get_items(wanted, consistent=True)
        except StoreError as error:
            if self._is_young(changes):
                recorded.delayed.append(f"bodies: {error.code}")
                return None
            self._observer.log("archive.without_bodies", level="ERROR", code=error.code, tasks=len(changes))
            return {}

    def _line(self, change: Change, bodies: Mapping[str, Item], recorded: Recorded) -> str | None:
        try:
            return line_of(change, bodies)
        except (ValueError, TypeError) as error:
            recorded.bad.append((change.record, "archive", f"{type(error).__name__}: not a line of JSON"))
            return None

    def _put(self, archived: ArchiveObject, recorded: Recorded) -> bool:
        error = self._try_put(archived)
        if error is None:
            by_ttl = sum(change.by_ttl for change in archived.changes)
            recorded.archived += by_ttl
            recorded.erased += len(archived.changes) - by_ttl
        elif self._is_young(archived.changes):
            recorded.delayed.append(f"archive: {error.code}")
        else:
            recorded.bad += [(change.record, "archive", error.code) for change in archived.changes]
        return error is None

    def _try_put(self, archived: ArchiveObject) -> StoreError | None:
        if self._objects is None:
            return StoreError("PutObject", "NoBucket", "no bucket is configured")
        last: StoreError | None = None
        for attempt in range(PUT_ATTEMPTS):
            if attempt:
                self._store.clock.sleep(self._store.randomness.uniform(*PUT_BACKOFF_SECONDS))
            try:
                self._objects.put(archived.key, archived.data)
            except StoreError as error:
                last = error
            else:
                return None
        return last

    # ---- what is left behind -----------------------------------------------------------------------------------------

    def _clear(self, removals: Sequence[Change], bodies: dict[str, Item], recorded: Recorded) -> None:
        """Only once the archive stands: what is to come again must find its bodies."""
        for change in () if recorded.delayed else removals:
            try:
                self._leftovers.clear(change, bodies)
            except StoreError as error:
                if self._is_young([change]):
                    recorded.delayed.append(f"leftovers: {error.code}")
                    return
                recorded.bad.append((change.record, "leftovers", error.code))
            except (KeyError, ValueError, TypeError) as error:
                recorded.bad.append((change.record, "leftovers", f"{type(error).__name__}: not a task's form"))

    # ---- giving up ---------------------------------------------------------------------------------------------------

    def _is_young(self, changes: Sequence[Change]) -> bool:
        oldest = min(change.at for change in changes)
        return self._store.clock.now() - oldest < self._patience_seconds


def _without_body(body: Item) -> Item:
    return {name: value for name, value in body.items() if name != "body"}
