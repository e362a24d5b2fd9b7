"""Rules of schedules, token buckets and limits: what shows in their own items, and in the claims they allow."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

from thunderagent.codec import Item
from thunderagent.schema import SCHEDULED_PREFIX, bucket_id, schedule_id
from thunderagent.timetable import firings

LIMITED_QUEUE, LIMIT = "limited", 3
KEY_TAG, KEY_LIMIT = "who", 2  # of the same queue
PACED_QUEUE, RATE, BURST = "paced", 0.5, 3
NEARLY = 1e-3

Violate = Callable[[str], None]


class ScheduleRules:
    """A schedule only moves on, and each of its times made its task: the latest one, or all if it catches up all."""

    def __init__(self, *, exists: Callable[[str], bool], violate: Violate) -> None:
        self._exists = exists
        self._violate = violate

    def on_change(self, item_id: str, old: Item | None, new: Item | None) -> None:
        if old is None or new is None or old["version"] != new["version"]:
            return
        if new["dueAt"] <= old["dueAt"]:
            self._violate(f"{item_id}: its next time went from {old['dueAt']} to {new['dueAt']}")
        if new.get("last") == old.get("last"):
            self._violate(f"{item_id}: moved on from {old['dueAt']} without a task")
        due = [float(new.get("last", 0))]
        if new["catchUp"] == "all":
            due = []
            for instant in firings(new["cron"], new["timezone"], after=old["dueAt"] - 1):
                if instant >= new["dueAt"]:
                    break
                due.append(instant)
        for instant in due:
            task_id = f"{SCHEDULED_PREFIX}{item_id.removeprefix(schedule_id(''))}.{int(instant)}"
            if not self._exists(task_id):
                self._violate(f"{item_id}: its time {instant} is past, and {task_id} was never made")


class BucketRules:
    """Tokens come with time, and no claim goes without one."""

    def __init__(self, *, violate: Violate) -> None:
        self._violate = violate
        self._taken = 0.0
        self._claims = 0
        self._first: float | None = None
        self._last = -math.inf

    def on_change(self, item_id: str, old: Item | None, new: Item | None, *, wild: bool) -> None:
        if item_id != bucket_id(PACED_QUEUE, "") or new is None:
            return
        stamp = float(new["stamp"])
        self._first = stamp if self._first is None else self._first
        grown = float(BURST)
        if old is not None:
            grown = min(BURST, old["tokens"] + max(0.0, stamp - old["stamp"]) * RATE)
        self._last = max(self._last, stamp)
        taken = grown - new["tokens"]
        self._taken += taken
        if taken < 1 - NEARLY:
            self._violate(f"{item_id}: {taken:.3f} tokens were taken, one at least is meant")
        most = BURST + RATE * (self._last - self._first) + NEARLY * self._taken
        if self._taken > most and not wild:
            self._violate(f"{item_id}: {self._taken:.3f} tokens were taken, there were {most:.3f}")

    def on_claim(self, task_id: str, queue: str) -> None:
        if queue != PACED_QUEUE:
            return
        self._claims += 1
        if self._claims > self._taken + NEARLY * self._claims:
            self._violate(f"{task_id}: claim {self._claims} of queue {queue}, {self._taken:.3f} tokens were taken")


class LimitRules:
    """How many run at once, of the limited queue and of each key in it."""

    def __init__(self, *, violate: Violate) -> None:
        self._violate = violate
        self._running: defaultdict[str, set[str]] = defaultdict(set)  # by key; "" is the whole queue
        self._latecomers: set[str] = set()  # claimed by a request that was under way for very long: no slot waits so

    def on_claim(self, task_id: str, *, late: bool) -> None:
        (self._latecomers.add if late else self._latecomers.discard)(task_id)

    def came_late(self, task_id: str) -> bool:
        return task_id in self._latecomers

    def on_change(self, task_id: str, old: Item | None, new: Item | None, *, wild: bool) -> None:
        item = new or old or {}
        if item.get("queue") != LIMITED_QUEUE:
            return
        runs = new is not None and new["status"] == "RUNNING"
        key = item.get("tags", {}).get(KEY_TAG)
        for name in ("", key) if key is not None else ("",):
            (self._running[name].add if runs else self._running[name].discard)(task_id)
        if not runs or wild:
            return
        for name, most in (("", LIMIT), (key, KEY_LIMIT)):
            count = len(self._running[name] - self._latecomers) if name is not None else 0
            if count > most:
                told = f"of key {name} " if name else ""
                self._violate(f"queue {LIMITED_QUEUE}: {count} tasks {told}run, at most {most} may")


def limits_of_queues() -> dict[str, dict[str, object]]:
    """What operators have set, as stored."""
    keys = {"tag": KEY_TAG, "maxConcurrency": KEY_LIMIT}
    return {
        LIMITED_QUEUE: {"maxConcurrency": LIMIT, "perKey": keys},
        PACED_QUEUE: {"ratePerSecond": RATE, "burst": BURST},
    }
