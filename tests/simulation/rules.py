"""What must hold after every single change of the table, at every start of a handler, and at the end of a run.

ARCHITECTURE §8 as far as one change can show it (`audit_rules`), and what only an observer that sees everything can
tell: who really started, who was really told, whose lease was really alive.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.kernel import Kernel, Process
from tests.simulation.premise_rules import PremiseRules
from tests.simulation.side_rules import BucketRules, LimitRules, ScheduleRules
from tests.simulation.weather import GRACE_SECONDS, LEASE_SECONDS, REAPER_SECONDS
from thunderagent.audit_rules import change_findings, is_task, item_findings
from thunderagent.claims import CLAIM_UNTIL
from thunderagent.codec import Item, from_attribute, from_item
from thunderagent.parents import Verdict, verdict_of
from thunderagent.schema import SCHEDULED_PREFIX, edge_id
from thunderagent.slots import REQUEST_SECONDS
from thunderagent.states import TERMINAL
from thunderagent.testing.dynamodb_expressions import Raw

if TYPE_CHECKING:
    from tests.simulation.table import SimulatedTable
    from tests.simulation.weather import Weather

ALIVE_SECONDS = LEASE_SECONDS + 2 * GRACE_SECONDS  # a holder no fault has met for so long has renewed in time
LATEST_CLAIM_SECONDS = CLAIM_UNTIL * LEASE_SECONDS + REQUEST_SECONDS - GRACE_SECONDS
PATIENCE_SECONDS = GRACE_SECONDS + 3 * REAPER_SECONDS
CALM_SECONDS = 2 * LEASE_SECONDS + PATIENCE_SECONDS
Key = tuple[str, str]  # task id, lease token
_UNKNOWN: tuple[Raw, Item] = ({}, {})


@dataclass
class Watch:
    """Waits until others have changed an item so often."""

    process: Process
    left: int
    then: Callable[[], None]


class Rules:
    """Follows every change. Breaks the run through `kernel.violate`."""

    def __init__(self, kernel: Kernel, table: SimulatedTable, weather: Callable[[], Weather]) -> None:
        self._kernel = kernel
        self._table = table
        self._weather = weather
        self.doer: Process | None = None
        self.nothing_may_repeat = False  # no fault, and no handler that ends its process
        self.accepted: dict[str, str] = {}  # task id -> type
        self.erased: set[str] = set()  # asked to be
        self.surely_erased: set[str] = set()
        self.cancelled_at: dict[str, float] = {}
        self.archived: set[str] = set()
        self.told: set[tuple[str, int]] = set()
        self.recorded_at: dict[Key, float] = {}
        self.started: Counter[Key] = Counter()
        self.starts_in_life: Counter[tuple[str, int]] = Counter()
        self.free_in_life: Counter[tuple[str, int]] = Counter()
        self.life: Counter[str] = Counter()  # of a task: how often it was redriven
        self._life_under: dict[Key, int] = {}
        self.done_by_fence: dict[tuple[str, int], str] = {}
        self.active: dict[str, Process] = {}  # lease token -> who runs its batch now
        self.watches: defaultdict[str, list[Watch]] = defaultdict(list)
        self.starts = self.repeats = self.unexplained = self.double_commits = 0
        self.asked_repeats: Counter[tuple[str, int]] = Counter()
        self.worked: dict[str, int] = {}  # task id -> how often its whole work was done
        self._holder: dict[str, Process] = {}
        self._last_run: dict[tuple[str, int], tuple[Process, float]] = {}  # of a life: who started it last, and when
        self._claims: set[Key] = set()
        self._opened_at: dict[str, float] = {}
        self._gone_leases: set[str] = set()
        self._running_at_close: dict[str, set[str]] = {}
        self._successes: Counter[str] = Counter()
        self._redrives: Counter[tuple[str, str]] = Counter()
        self._redriven: set[str] = set()
        self._open_unique: defaultdict[str, set[str]] = defaultdict(set)
        self._satisfied: set[str] = set()  # what ended well once has, whatever became of it since
        self._to_check: set[str] = set()
        self._known: dict[str, tuple[Raw, Item]] = {}  # what was read of an item last
        self._schedules = ScheduleRules(exists=lambda each: each in self.accepted, violate=self._violate)
        self._buckets = BucketRules(violate=self._violate)
        self._limits = LimitRules(violate=self._violate)
        self._premises = PremiseRules(item=self._item, violate=self._violate)

    # ---- changes -----------------------------------------------------------------------------------------------------

    def on_change(self, item_id: str, old_raw: Raw | None, new_raw: Raw | None) -> None:
        if item_id in self.watches:
            self._look_out(item_id)
        old = self._read(item_id, old_raw) if old_raw is not None else None
        new = self._read(item_id, new_raw) if new_raw is not None else None
        if "#" not in item_id:
            self._task_changed(item_id, old, new)
        elif item_id.startswith("lease#"):
            self._lease_changed(item_id.removeprefix("lease#"), old, new)
        elif item_id.startswith(("slot#", "edge#", "unique#", "result#", "schedule#", "bucket#")):
            self._note(f"{item_id} {'gone' if new is None else 'is written'}")
            if item_id.startswith("slot#"):
                if old is not None and not self._weather().skew_is_wild:
                    self._premises.on_slot(item_id, old, came_late=self._limits.came_late(str(old["holder"])))
            elif item_id.startswith("schedule#"):
                self._schedules.on_change(item_id, old, new)
            elif item_id.startswith("bucket#"):
                self._buckets.on_change(item_id, old, new, wild=self._weather().skew_is_wild)

    def _look_out(self, item_id: str) -> None:
        for watch in list(self.watches[item_id]):
            if watch.process is self.doer:
                continue
            watch.left -= 1
            if watch.left <= 0:
                self.watches[item_id].remove(watch)
                watch.then()

    def _note(self, text: str) -> None:
        self._kernel.note(f"{self.doer.name if self.doer else '-'}: {text}")

    def _violate(self, problem: str) -> None:
        self._kernel.violate(problem)

    def _task_changed(self, task_id: str, old: Item | None, new: Item | None) -> None:
        self._note(_told_change(task_id, old, new))
        self._premises.on_task(task_id, old, new)
        if new is None:
            self._limits.on_change(task_id, old, new, wild=False)
            self._successes.pop(task_id, None)
            self.cancelled_at.pop(task_id, None)  # a submit that arrives again now is of another task
            self._open_unique[str((old or {}).get("unique"))].discard(task_id)
            return
        for finding in [*change_findings(old, new), *item_findings(new, now=0, grace_seconds=0)]:
            self._violate(f"{task_id}: {finding.problem} (invariant {finding.invariant})")
        before, after = str((old or {}).get("status")), str(new["status"])
        if old is None:
            self._born(task_id, new)
        elif before != after:
            self._moved(task_id, old, new, before, after)
        elif after == "RUNNING":
            self._written_by_holder(task_id, str(new["leaseToken"]))
        if verdict_of(new) is Verdict.SATISFIED:
            self._satisfied.add(task_id)
        if after in TERMINAL and before not in TERMINAL:
            self._open_unique[str(new.get("unique"))].discard(task_id)
        if after == "SUCCESS" and before != "SUCCESS":
            self._successes[task_id] += 1
            if self._successes[task_id] > 1:
                self.double_commits += 1
                self._violate(f"{task_id}: a second SUCCESS")
        self._check_cancel(task_id, old, new)
        self._limits.on_change(task_id, old, new, wild=self._weather().skew_is_wild)

    def _born(self, task_id: str, new: Item) -> None:
        if task_id.startswith(SCHEDULED_PREFIX):
            self.accepted[task_id] = str(new["type"])
        if "unique" not in new or new["status"] in TERMINAL:
            return
        others = self._open_unique[new["unique"]] - self._redriven
        if others:
            self._violate(f"{task_id}: equal unique work is open already: {sorted(others)}")
        self._open_unique[new["unique"]].add(task_id)

    def _moved(self, task_id: str, old: Item, new: Item, before: str, after: str) -> None:
        if (before, after) == ("PENDING", "RUNNING"):
            self._claimed(task_id, old, new)
        elif before == "RUNNING":
            self._left_running(task_id, old, new, after)
        elif before == "FAILED":
            self._redriven_now(task_id, new)

    def _claimed(self, task_id: str, old: Item, new: Item) -> None:
        key = (task_id, str(new["leaseToken"]))
        if key in self._claims:
            self._violate(f"{task_id}: claimed twice under one token")
        self._claims.add(key)
        late = self._kernel.now > self._opened_at.get(key[1], 0) + LATEST_CLAIM_SECONDS
        self._limits.on_claim(task_id, late=late)
        self._buckets.on_claim(task_id, str(new["queue"]))
        if new["fence"] != old.get("fence", 0) + 1:
            self._violate(f"{task_id}: claimed, and its fence did not rise by one")
        if old.get("blockedCount"):
            self._violate(f"{task_id}: claimed while blocked")

    def _written_by_holder(self, task_id: str, token: str) -> None:
        """Steps, progress and the like: of executors only the holder's."""
        doer = self.doer
        if doer is not None and doer.name.startswith("executor") and self._holder.get(token) is not doer:
            self._violate(f"{task_id}: written by {doer.name}, which does not hold {token}")

    def _left_running(self, task_id: str, old: Item, new: Item, after: str) -> None:
        token = str(old.get("leaseToken"))
        exit_token, _, exit_word = str(new.get("exitedBy", "")).rpartition(":") if after == "PENDING" else ("", "", "")
        if exit_word and exit_token != token:
            self._violate(f"{task_id}: handed back by the holder of {exit_token} while it was under {token}")
        lost = after == "FAILED" and (new.get("error") or {}).get("reason") == "worker_lost"
        recorded = (task_id, token) in self.recorded_at
        doer = self.doer
        if doer is not None and doer.name.startswith("executor") and self._holder.get(token) is not doer:
            self._violate(f"{task_id}: ended by {doer.name}, which does not hold {token}")
        if exit_word in {"retry", "snooze"}:
            self.asked_repeats[self.life_under(task_id, token)] += 1
        if exit_word == "reap" or lost:
            charged = lost or new["retryCount"] > old["retryCount"]
            if charged and not recorded:
                self._violate(f"{task_id}: charged for a start under {token} that was never recorded")
            if recorded and not charged:
                self._violate(f"{task_id}: its start under {token} was not charged")
            lease = self._item(f"lease#{token}")
            if lease is not None and "closed" not in lease:
                self._violate(f"{task_id}: taken back under {token}, whose lease is open")
        if exit_word == "release" and self.doer is not None and not self.doer.name.startswith("executor"):
            lease = self._item(f"lease#{token}")
            if lease is not None and "closed" not in lease:
                self._violate(f"{task_id}: released by its poller before the lease {token} was gone")
            if recorded:
                self._violate(f"{task_id}: released by its poller, and it has started under {token}")
        if after == "PENDING" and new["retryCount"] == old["retryCount"] and self.started[(task_id, token)]:
            self.free_in_life[(task_id, self.life[task_id])] += 1
        if after == "SUCCESS":
            told = self.done_by_fence.get((task_id, new["fence"]))
            if told is None:
                self._violate(f"{task_id}: SUCCESS of attempt {new['fence']}, whose handler has not said so")

    def _redriven_now(self, task_id: str, new: Item) -> None:
        entry = str(new["redriveIds"][-1])
        self.life[task_id] += 1
        self._redriven.add(task_id)
        self._redrives[(task_id, entry.partition(":")[2])] += 1
        if self._redrives[(task_id, entry.partition(":")[2])] > 1:
            self._violate(f"{task_id}: one redrive ({entry}) took effect twice")

    def _check_cancel(self, task_id: str, old: Item | None, new: Item) -> None:
        requested = old is not None and old.get("cancelRequested") and old["status"] == "RUNNING"
        if (requested or task_id in self.cancelled_at) and not (
            (new["status"] == "DONE" and new.get("outcome") == "cancelled")
            or (new["status"] == "RUNNING" and new.get("cancelRequested"))
        ):
            self._violate(f"{task_id}: {new['status']} after a cancel")

    # ---- leases ------------------------------------------------------------------------------------------------------

    def _lease_changed(self, token: str, old: Item | None, new: Item | None) -> None:
        self._note(_told_lease(token, old, new))
        if old is not None:
            self._premises.on_lease(token, old, new, doer=self.doer, holder=self._holder.get(token))
        if new is None:
            self._lease_gone(token, old or {})
            return
        if old is None:
            self._opened_at[token] = self._kernel.now
            if token in self._gone_leases:
                self._violate(f"lease {token}: comes back after its end")
            return
        if old.get("closed") and not new.get("closed"):
            self._violate(f"lease {token}: open again")
        if new.get("begun") != old.get("begun"):
            if old.get("begun"):
                self._violate(f"lease {token}: begun twice")
            if new.get("closed"):
                self._violate(f"lease {token}: begun when it was closed")
            if self.doer is not None:
                self._holder[token] = self.doer
        added = set(new.get("started", ())) - set(old.get("started", ()))
        if set(old.get("started", ())) - set(new.get("started", ())):
            self._violate(f"lease {token}: a recorded start is gone")
        for task_id in sorted(added):
            self._recorded(task_id, token, new)
        if new.get("closed") and not old.get("closed"):
            self._lease_closed(token, new)

    def _recorded(self, task_id: str, token: str, lease: Item) -> None:
        self.recorded_at[(task_id, token)] = self._kernel.now
        self._life_under[(task_id, token)] = self.life[task_id]
        item = self._item(task_id)
        if lease.get("closed"):
            self._violate(f"{task_id}: its start is recorded in the closed lease {token}")
        if item is None or item.get("status") != "RUNNING" or item.get("leaseToken") != token:
            self._violate(f"{task_id}: its start is recorded under {token}, which does not hold it")

    def _lease_closed(self, token: str, new: Item) -> None:
        doer = self.doer
        judged_at = self._kernel.now + (max(doer.offset, doer.offset_before) if doer is not None else 0)
        if new["lockTime"] + GRACE_SECONDS > judged_at:
            self._violate(f"lease {token}: closed before its end")
        self._running_at_close[token] = {each for each in new.get("taskIds", ()) if self._is_held(each, token)}
        holder = self.active.get(token)
        if holder is None or holder.is_dead or self._weather().skew_is_wild:
            return
        if holder.touched_at < self._kernel.now - ALIVE_SECONDS and self._holder.get(token) is holder:
            self._violate(f"lease {token}: closed, and its holder {holder.name} is alive and well")

    def _lease_gone(self, token: str, old: Item) -> None:
        self._gone_leases.add(token)
        if old.get("closed"):
            left = sorted(each for each in self._running_at_close.get(token, ()) if self._is_held(each, token))
            if left:
                self._violate(f"lease {token}: deleted before {left} were taken back")
        elif old.get("begun"):
            left = sorted(each for each in old.get("started", ()) if self._is_held(each, token))
            if left:
                self._violate(f"lease {token}: settled, and {left} still run under it")

    def _is_held(self, task_id: str, token: str) -> bool:
        item = self._item(task_id)
        return item is not None and item.get("status") == "RUNNING" and item.get("leaseToken") == token

    def _item(self, item_id: str) -> Item | None:
        raw = self._table.stored.get(item_id)
        return None if raw is None else self._read(item_id, raw)

    def _read(self, item_id: str, raw: Raw) -> Item:
        """As plain values. What a write leaves as it is stays the same object, and is not read again."""
        known_raw, known = self._known.get(item_id, _UNKNOWN)
        if raw is known_raw:
            return known
        item = {
            name: known[name] if known_raw.get(name) is attribute else from_attribute(attribute)
            for name, attribute in raw.items()
        }
        self._known[item_id] = (raw, item)
        return item

    # ---- handlers ----------------------------------------------------------------------------------------------------

    def handler_starts(self, task_id: str, token: str, fence: int, item: Item) -> None:
        key = (task_id, token)
        self.starts += 1
        self.started[key] += 1
        life = self.life_under(task_id, token)
        self.starts_in_life[life] += 1
        process = self._kernel.current.process
        self._kernel.note(f"{process.name}: HANDLER of {task_id} starts, attempt {fence} under {token}")
        if process.is_dead:
            return
        if key not in self.recorded_at:
            self._violate(f"{task_id}: started under {token} without a record")
        if self.started[key] > 1:
            self._violate(f"{task_id}: started twice under {token}")
        if task_id in self.cancelled_at and self.recorded_at.get(key, 0) > self.cancelled_at[task_id]:
            self._violate(f"{task_id}: started after its cancel was answered")
        if self.starts_in_life[life] > item["maxRetryNumber"] + 1 + self.free_in_life[life]:
            self._violate(f"{task_id}: {self.starts_in_life[life]} starts, {item['maxRetryNumber']} retries allowed")
        for parent in item.get("dependsOn", ()):
            if parent not in self._satisfied:
                self._violate(f"{task_id}: started before its parent {parent} succeeded")
        if self.starts_in_life[life] - 1 > self.asked_repeats[life]:
            self.repeats += 1
            self.asked_repeats[life] = self.starts_in_life[life] - 1
            if self.nothing_may_repeat or not self._is_explained(life):
                self.unexplained += 1
                self._violate(f"{task_id}: started again, and no fault made it necessary")
        self._last_run[life] = (process, self._kernel.now)

    def life_under(self, task_id: str, token: str) -> tuple[str, int]:
        """The life in which a start was recorded: a holder that froze may come to it when the task has had its redrive,
        whose budget it is not on."""
        return task_id, self._life_under.get((task_id, token), self.life[task_id])

    def _is_explained(self, life: tuple[str, int]) -> bool:
        """Whether the start before met a fault: its process is gone, or something reached it since its lease was last
        surely renewed, or clocks tell anything."""
        before, at = self._last_run.get(life, (None, 0.0))
        if before is None or before.is_dead or self._weather().skew_is_wild:
            return True
        return before.touched_at >= at - ALIVE_SECONDS

    def handler_says(self, task_id: str, fence: int, word: str, *, done: bool = False) -> None:
        self._kernel.note(f"{self._kernel.current.process.name}: handler of {task_id} says {word}, attempt {fence}")
        if done:
            self.done_by_fence[(task_id, fence)] = word
            self.worked[task_id] = self.worked.get(task_id, 0) + 1

    # ---- the users' own items ----------------------------------------------------------------------------------------

    def on_ledger(self, task_id: str, old: Raw | None, new: Raw | None) -> None:
        count = from_item(new or {}).get("n", 0)
        self._note(f"ledger of {task_id}: {count}")
        if count != 1:
            self.double_commits += 1
            self._violate(f"{task_id}: its commit_with was written {count} times")
        self._to_check.add(task_id)

    def after_step(self) -> None:
        if not self._to_check:
            return
        for task_id in self._to_check:
            item = self._item(task_id) or {}
            if item.get("status") not in {"SUCCESS", "DONE"}:
                self._violate(f"{task_id}: its commit_with was written, and it is {item.get('status')}")
        self._to_check.clear()

    # ---- what is known from answers ----------------------------------------------------------------------------------

    def cancel_answered(self, task_id: str) -> None:
        self.cancelled_at.setdefault(task_id, self._kernel.now)
        item = self._item(task_id)
        if item is not None:
            self._check_cancel(task_id, None, item)

    # ---- now and then, and at the end --------------------------------------------------------------------------------

    def tasks(self) -> Iterator[tuple[str, Item]]:
        for item_id, raw in self._table.stored.items():
            if "#" not in item_id:
                item = self._read(item_id, raw)
                if is_task(item):
                    yield item_id, item

    def look(self, *, calm_seconds: float = 0) -> None:
        """Invariants 1 and 8 over the whole table; 2 and 3 once it has been calm for so long that reapers have come."""
        if calm_seconds > CALM_SECONDS:
            self._look_at_leases()
        for task_id in self.accepted:
            if task_id not in self._table.stored and task_id not in self.erased | self.archived:
                self._violate(f"{task_id}: accepted, and gone (invariant 1)")
        for task_id, raw in self._table.stored.items():
            if "#" not in task_id and "blockedCount" in raw and raw["status"]["S"] == "PENDING":
                item = self._read(task_id, raw)
                if not item["blockedCount"]:
                    continue
                parents = item.get("dependsOn", ())
                edges = [each for each in parents if edge_id(each, task_id) in self._table.stored]
                if len(edges) + item.get("unlinked", 0) != item["blockedCount"]:
                    self._violate(f"{task_id}: {len(edges)} edges, blockedCount {item['blockedCount']} (invariant 8)")

    def _look_at_leases(self) -> None:
        now = self._kernel.now
        for item_id, raw in self._table.stored.items():
            if item_id.startswith("lease#") and float(raw["lockTime"]["N"]) < now - PATIENCE_SECONDS:
                self._violate(f"{item_id}: no reaper has taken it (invariant 3)")
            elif "#" not in item_id and raw["status"]["S"] == "RUNNING":
                lease = self._table.stored.get(f"lease#{raw['leaseToken']['S']}")
                listed = lease is not None and {"S": item_id} in lease["taskIds"]["L"]
                if not listed and float(raw["lockTime"]["N"]) < now - PATIENCE_SECONDS:
                    self._violate(f"{item_id}: RUNNING, and no lease lists it (invariant 2)")

    def unfinished(self) -> list[str]:
        """Why the run is not at rest: empty when it is."""
        left = []
        for item_id, raw in self._table.stored.items():
            if item_id.startswith("lease#"):
                left.append(item_id)
            elif "#" not in item_id and (status := raw["status"]["S"]) not in TERMINAL:
                left.append(f"{item_id} is {status}")
        return sorted(left)


def _told_change(task_id: str, old: Item | None, new: Item | None) -> str:
    if new is None:
        return f"{task_id} is gone"
    before = "new" if old is None else old["status"]
    more = "".join(
        f" {name}={new[name]}" for name in ("fence", "retryCount", "outcome", "exitedBy", "leaseToken") if name in new
    )
    waits = f" dueAt={new['dueAt'] - 1_800_000_000:.3f}" if "dueAt" in new and new["status"] == "PENDING" else ""
    blocked = f" blocked={new['blockedCount']}" if new.get("blockedCount") else ""
    asked = " cancelRequested" if new.get("cancelRequested") else ""
    return f"{task_id} {before} -> {new['status']}{more}{waits}{blocked}{asked}"


def _told_lease(token: str, old: Item | None, new: Item | None) -> str:
    if new is None:
        return f"lease {token} is gone"
    if old is None:
        return f"lease {token} opened for {new.get('taskIds')}"
    changed = [name for name in new if new.get(name) != old.get(name)]
    shown = [f"{name}={sorted(new[name]) if isinstance(new[name], frozenset) else new[name]}" for name in changed]
    return f"lease {token} {' '.join(shown)}"
