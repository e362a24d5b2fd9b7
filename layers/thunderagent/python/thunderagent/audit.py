"""The auditor: looks for what must never be. Whole on demand, and a little each minute in the reaper.

A first look suspects; a second one, some time later and read consistently, finds. What the protocol passes through on
its way (a lease between its closing and the reset of its tasks, a parent whose end is just being told) is no finding,
nor is what somebody mended meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunderagent.audit_rules import (
    ALL_OWNED,
    EDGES_MATCH,
    NONE_LOST,
    OWN_LIFE,
    REAPER_PERIOD_SECONDS,
    RUNNING_IS_LEASED,
    SLOTS_LAPSE,
    Finding,
    is_task,
    item_findings,
    patience_seconds,
)
from thunderagent.codec import Item
from thunderagent.conditions import put_body
from thunderagent.schema import BLOCKED_LOOK_SECONDS, edge_id, lease_id
from thunderagent.states import Status, is_terminal
from thunderagent.store import Store
from thunderagent.telemetry import Observer

STATE_ID = "control#audit"
PAGE_ITEMS = 200  # a minute, in the reaper: a page is at most 1 MiB, 128 read units
EDGES_BUDGET = 2_000  # read a minute, in the reaper
SUSPECTS_KEPT = 100
SETTLE_SECONDS = 15.0  # between the two looks of a whole audit
SLOT_SECONDS = 86_400  # no claim is planned that far ahead
WHOLE_PAGE_ITEMS = 1_000


@dataclass
class _Budget:
    """What may still be read for cross-checks. None: as much as it takes."""

    keys: int | None = None

    @property
    def is_spent(self) -> bool:
        return self.keys is not None and self.keys <= 0

    def spend(self, keys: int) -> None:
        if self.keys is not None:
            self.keys -= keys


@dataclass
class Audit:
    """What was looked at, and what is wrong."""

    items: int = 0
    findings: list[Finding] = field(default_factory=list)


def audit(
    store: Store,
    *,
    grace_seconds: float = 5,
    settle_seconds: float = SETTLE_SECONDS,
    submitted: Iterable[str] = (),
    archived: Iterable[str] = (),
    progress: Callable[[int], None] = lambda items: None,
) -> Audit:
    """Look at every item of the table (a scan: half a read unit per 4 KiB). Raises a StoreError.

    Of the task ids in `submitted`, each must be stored or in `archived`. Tasks may be in flight meanwhile.
    """
    rules = Rules(store, grace_seconds=grace_seconds)
    result = Audit()
    suspected: set[Finding] = set()
    for page in _pages(store):
        result.items += len(page)
        suspected |= set(rules.look(page))
        progress(result.items)
    suspected |= set(_lost(store, submitted, archived))
    if suspected:
        store.clock.sleep(settle_seconds)
        result.findings = sorted(suspected & set(_second_look(store, rules, suspected, submitted, archived)))
    return result


def _pages(store: Store) -> Iterator[list[Item]]:
    start: Mapping[str, Any] | None = None
    while True:
        items, start = store.scan(limit=WHOLE_PAGE_ITEMS, start=start)
        yield items
        if start is None:
            return


def _second_look(
    store: Store, rules: Rules, suspected: set[Finding], submitted: Iterable[str], archived: Iterable[str]
) -> Iterator[Finding]:
    items = store.get_items(sorted({finding.item_id for finding in suspected}), consistent=True)
    yield from rules.look(items.values())
    yield from _lost(store, submitted, archived)


def _lost(store: Store, submitted: Iterable[str], archived: Iterable[str]) -> Iterator[Finding]:
    """Invariant 1, as far as somebody knows what was submitted."""
    wanted = sorted(set(submitted) - set(archived))
    stored = store.get_items(wanted, consistent=True) if wanted else {}
    for task_id in wanted:
        if task_id not in stored:
            yield Finding(NONE_LOST, task_id, "submitted, and neither stored nor archived")


class Rules:
    """Every rule about one item, those included that take looks at others."""

    def __init__(self, store: Store, *, grace_seconds: float) -> None:
        self._store = store
        self._grace_seconds = grace_seconds

    def look(self, items: Iterable[Item], budget: _Budget | None = None) -> Iterator[Finding]:
        """What is wrong with these. Stops looking at further ones once the budget is spent."""
        for item in items:
            yield from self.look_at(item, budget or _Budget())

    def look_at(self, item: Item, budget: _Budget) -> Iterator[Finding]:
        now = self._store.clock.now()
        yield from item_findings(item, now=now, grace_seconds=self._grace_seconds)
        item_id = str(item["taskId"])
        if is_task(item):
            if item["status"] == Status.RUNNING:
                yield from self._running(item_id, item, now)
            elif item["status"] == Status.PENDING and item.get("blockedCount"):
                yield from self._blocked(item_id, item, budget)
        elif item_id.startswith("slot#"):
            yield from self._slot(item_id, item, now)
        elif "#" in item_id and not item_id.startswith("lease#"):
            yield from self._side_item(item_id, item)

    # ---- 2 and 9: leases ---------------------------------------------------------------------------------------------

    def _running(self, item_id: str, item: Item, now: float) -> Iterator[Finding]:
        token, lock_time = item.get("leaseToken"), item.get("lockTime")
        if token is None or not isinstance(lock_time, int | float):
            return  # told already
        if lock_time + patience_seconds(self._grace_seconds) >= now or self._is_listed(item_id, str(token), now):
            return
        if self._is_unchanged(item, "status", "leaseToken"):  # it may have ended, and its lease with it
            yield Finding(RUNNING_IS_LEASED, item_id, "RUNNING, and no open lease lists it")

    def _is_listed(self, item_id: str, token: str, now: float) -> bool:
        """A lease just closed counts: its tasks are being reset."""
        lease = self._store.get_item(lease_id(token), consistent=True)
        if lease is None or item_id not in lease.get("taskIds", ()):
            return False
        closed = lease.get("closed")
        return not closed or float(closed) + 2 * REAPER_PERIOD_SECONDS >= now

    def _slot(self, item_id: str, item: Item, now: float) -> Iterator[Finding]:
        """A slot lapses with its holder's end. One that can never lapse is held for ever."""
        if float(item.get("claimBy", 0)) > now + SLOT_SECONDS:
            yield Finding(SLOTS_LAPSE, item_id, "a slot for a claim that is nowhere near")
            return
        holder = self._store.get_item(str(item.get("holder", "?")), consistent=True)
        if holder is None or not is_task(holder) or holder["status"] != Status.RUNNING:
            return
        if holder.get("leaseToken") == item.get("leaseToken") and any(
            self._running(str(holder["taskId"]), holder, now)
        ):
            yield Finding(SLOTS_LAPSE, item_id, "a slot held past the lease it was taken for")

    # ---- 8: edges ----------------------------------------------------------------------------------------------------

    def _blocked(self, item_id: str, item: Item, budget: _Budget) -> Iterator[Finding]:
        """Edges and count change in one transaction: what is read between two equal looks at the child agrees."""
        parents = self._parents_of(item)
        if parents is None:
            yield Finding(EDGES_MATCH, item_id, "the list of its parents is gone")
            return
        linked = parents[: len(parents) - int(item.get("unlinked", 0))]
        budget.spend(2 * len(linked))
        edges = self._store.get_items([edge_id(parent, item_id) for parent in linked], consistent=True)
        awaited = [parent for parent in linked if edge_id(parent, item_id) in edges]
        ended = self._long_ended(awaited)
        if not self._is_unchanged(item, "status", "blockedCount", "unlinked"):
            return
        if len(awaited) + int(item.get("unlinked", 0)) != item["blockedCount"]:
            yield Finding(EDGES_MATCH, item_id, f"it has {len(awaited)} edges and waits for {item['blockedCount']}")
        elif ended:
            yield Finding(EDGES_MATCH, item_id, f"it waits for {ended[0]}, which has ended or is gone")

    def _parents_of(self, item: Item) -> list[str] | None:
        if "dependsOn" in item or "dependsOnRef" not in item:
            return list(item.get("dependsOn", ()))
        found = self._store.get_item(str(item["dependsOnRef"]), consistent=True)
        return None if found is None else list(found.get("ids", ()))

    def _long_ended(self, parents: Sequence[str]) -> list[str]:
        """Parents that ended before the slowest repair look must have told the child, and those that are gone."""
        latest = self._store.clock.now() - BLOCKED_LOOK_SECONDS[1] - 2 * REAPER_PERIOD_SECONDS
        found = self._store.get_items(parents, consistent=True)
        return [
            parent
            for parent in parents
            if parent not in found
            or (is_terminal(found[parent].get("status")) and float(found[parent].get("finishedAt", 0)) < latest)
        ]

    # ---- 10: side items ----------------------------------------------------------------------------------------------

    def _side_item(self, item_id: str, item: Item) -> Iterator[Finding]:
        kind, _, rest = item_id.partition("#")
        if "expiresAt" in item or item_id.startswith(OWN_LIFE):
            return
        owner = str(item.get("holder", "?")) if kind == "unique" else rest.split("#")[0]
        if self._store.get_item(owner, consistent=True) is None and self._is_unchanged(item, "holder"):
            yield Finding(ALL_OWNED, item_id, f"a {kind} item without an owner or a time to live")

    def _is_unchanged(self, item: Item, *names: str) -> bool:
        """Whether what was read is still so, after the other reads that make it look wrong."""
        now = self._store.get_item(str(item["taskId"]), consistent=True)
        return now is not None and all(now.get(name) == item.get(name) for name in names)


# ---- a little each minute -------------------------------------------------------------------------------------------


class Auditor:
    """The incremental audit: each step looks again at what was suspect, then at the next page of the table.

    Two at once are harmless: both look, and the later one's place counts.
    """

    def __init__(self, store: Store, *, grace_seconds: float, observer: Observer) -> None:
        self._store = store
        self._rules = Rules(store, grace_seconds=grace_seconds)
        self._observer = observer

    def step(self) -> list[Finding]:
        """One step. Returns what is wrong now, out of what was suspect before. Raises a StoreError."""
        state = self._store.get_item(STATE_ID) or {}
        suspected = {_finding_of(entry): bool(entry.get("told")) for entry in state.get("suspects", ())}
        found = self._look_again(set(suspected))
        for finding in found:
            if not suspected[finding]:
                self._observer.log("audit.violation", level="ERROR", **finding.as_fields())
        self._observer.measure("AuditViolations", len(found))
        cursor, new = self._next_page(state.get("cursor"))
        told = dict.fromkeys(found, True)
        kept = told | {finding: False for finding in new if finding not in told}
        self._store.apply(put_body({"taskId": STATE_ID, "cursor": cursor, "suspects": _entries(kept)}))
        return found

    def _look_again(self, suspected: set[Finding]) -> list[Finding]:
        if not suspected:
            return []
        items = self._store.get_items(sorted({finding.item_id for finding in suspected}), consistent=True)
        return sorted(suspected & set(self._rules.look(items.values())))

    def _next_page(self, cursor: Any) -> tuple[str | None, list[Finding]]:
        """The next items and what is suspect there; None as the place means: from the start."""
        start = {"taskId": {"S": cursor}} if isinstance(cursor, str) else None
        items, following = self._store.scan(limit=PAGE_ITEMS, start=start)
        budget = _Budget(EDGES_BUDGET)
        suspected: list[Finding] = []
        for item in items:
            suspected += self._rules.look_at(item, budget)
            if budget.is_spent:
                return str(item["taskId"]), suspected
        return (str(items[-1]["taskId"]) if items and following is not None else None), suspected


def _entries(suspects: Mapping[Finding, bool]) -> list[dict[str, Any]]:
    kept = list(suspects.items())[:SUSPECTS_KEPT]
    return [
        {
            "invariant": each.invariant,
            "itemId": each.item_id,
            "problem": each.problem,
            **({"told": True} if told else {}),
        }
        for each, told in kept
    ]


def _finding_of(entry: Mapping[str, Any]) -> Finding:
    return Finding(int(entry["invariant"]), str(entry["itemId"]), str(entry["problem"]))
