"""The premises of single writes, looked at on the change each made: a write that was allowed too much shows at once,
before anything comes of it."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.kernel import Process
from thunderagent.codec import Item
from thunderagent.parents import DEPENDENCY_FAILED, Verdict, verdict_of
from thunderagent.states import TERMINAL


class PremiseRules:
    """`item` reads what is stored now, `violate` ends the run."""

    def __init__(self, *, item: Callable[[str], Item | None], violate: Callable[[str], None]) -> None:
        self._item = item
        self._violate = violate

    # ---- tasks -------------------------------------------------------------------------------------------------------

    def on_task(self, task_id: str, old: Item | None, new: Item | None) -> None:
        if old is None:
            return
        if new is None:
            if old["status"] not in TERMINAL:
                self._violate(f"{task_id}: deleted while it was {old['status']}")
            return
        if new.get("cancelRequested") and not old.get("cancelRequested") and new["status"] != "RUNNING":
            self._violate(f"{task_id}: a cancel is requested, and it is {new['status']}")
        match old["status"], new["status"]:
            case "RUNNING", "RUNNING" if new["dueAt"] != old["dueAt"]:
                self._violate(f"{task_id}: put off to {new['dueAt']} while it was RUNNING")
            case "PENDING", "RUNNING":
                self._claimed(task_id, old, new)
            case "PENDING", "FAILED":
                self._failed_for_a_parent(task_id, old, new)
            case (("PENDING" | "RUNNING" | "SUCCESS"), "DONE"):
                self._done(task_id, old, new)

    def _claimed(self, task_id: str, old: Item, new: Item) -> None:
        """By the poller's own clock, as the claim tells it."""
        if new["startedAt"] < old["dueAt"]:
            self._violate(f"{task_id}: claimed at {new['startedAt']}, due at {old['dueAt']}")
        if "deadline" in old and new["startedAt"] >= old["deadline"]:
            self._violate(f"{task_id}: claimed at {new['startedAt']}, after its deadline {old['deadline']}")

    def _failed_for_a_parent(self, task_id: str, old: Item, new: Item) -> None:
        if new["error"].get("reason") != DEPENDENCY_FAILED:
            return
        if not old.get("blockedCount"):
            self._violate(f"{task_id}: failed for a parent, and it waited for none")
        if all(verdict_of(self._item(parent)) is not Verdict.DEAD for parent in old.get("dependsOn", ())):
            self._violate(f"{task_id}: failed for a parent, and none of its parents is dead")

    def _done(self, task_id: str, old: Item, new: Item) -> None:
        fits = {
            ("SUCCESS", "acknowledged"): True,
            ("RUNNING", "skipped"): True,
            ("RUNNING", "cancelled"): bool(old.get("cancelRequested")),
            ("PENDING", "cancelled"): True,
            ("PENDING", "expired"): "deadline" in old and old["deadline"] < new["finishedAt"],
        }
        if not fits.get((str(old["status"]), str(new.get("outcome"))), False):
            self._violate(f"{task_id}: {old['status']} became DONE as {new.get('outcome')}")

    # ---- leases and slots --------------------------------------------------------------------------------------------

    def on_lease(
        self, token: str, old: Item, new: Item | None, *, doer: Process | None, holder: Process | None
    ) -> None:
        if new is not None:
            if new["lockTime"] < old["lockTime"]:
                self._violate(f"lease {token}: its end went back from {old['lockTime']} to {new['lockTime']}")
            return
        if doer is None:
            self._violate(f"lease {token}: deleted by nobody")
        elif old.get("closed") and doer.name.startswith("executor"):
            self._violate(f"lease {token}: closed, and deleted by {doer.name}")
        elif old.get("begun") and not old.get("closed") and holder is not doer:
            self._violate(f"lease {token}: begun, and deleted by {doer.name}, which does not hold it")

    def on_slot(self, item_id: str, old: Item, *, came_late: bool) -> None:
        """It has another holder now, or is gone. No slot waits for a claim that was under way for very long."""
        if came_late:
            return
        task = self._item(str(old["holder"])) or {}
        if task.get("status") == "RUNNING" and task.get("leaseToken") == old["leaseToken"]:
            self._violate(f"{item_id}: given away, and {old['holder']} runs in it")
