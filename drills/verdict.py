"""Judging what a fault has cost: was anything lost, committed twice, or done twice without need?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TERMINAL = frozenset({"SUCCESS", "FAILED", "DONE"})


@dataclass(frozen=True)
class Verdict:
    """The figures of one scenario. `problems` is empty exactly if nothing happened that must not."""

    tasks: int
    succeeded: int
    failed: int
    retried: int
    duplicates: int
    problems: tuple[str, ...]

    @classmethod
    def of(
        cls,
        submitted: Mapping[str, str],
        items: Mapping[str, Mapping[str, Any]],
        counters: Mapping[str, Mapping[str, Any]],
        *,
        to_fail: Sequence[str] = (),
    ) -> Verdict:
        """`submitted` says of each task's id which counter it adds to, or the empty string; `counters` what they hold:
        `count` of runs, and `commits`, added in the transaction of the commit. Those `to_fail` are to end FAILED.

        A run is forced when the attempt before it was charged: its worker was lost, or it said that it failed.
        """
        problems: list[str] = []
        duplicates = 0
        for task_id, key in submitted.items():
            item = items.get(task_id)
            if item is None:
                problems.append(f"{task_id} is lost")
                continue
            expected = "FAILED" if task_id in to_fail else "SUCCESS"
            if item["status"] != expected:
                problems.append(f"{task_id} is {item['status']} instead of {expected}")
            if key and item["status"] == "SUCCESS":
                held = counters.get(key, {})
                runs, commits, forced = int(held.get("count", 0)), int(held.get("commits", 0)), int(item["retryCount"])
                duplicates += max(0, runs - 1)
                problems += _miscounted(task_id, runs=runs, commits=commits, forced=forced)
        found = list(items.values())
        return cls(
            tasks=len(submitted),
            succeeded=sum(item["status"] == "SUCCESS" for item in found),
            failed=sum(item["status"] == "FAILED" for item in found),
            retried=sum(int(item["retryCount"]) > 0 for item in found),
            duplicates=duplicates,
            problems=tuple(problems),
        )


def _miscounted(task_id: str, *, runs: int, commits: int, forced: int) -> list[str]:
    problems = []
    if commits != 1:
        problems.append(f"{task_id} is SUCCESS and was committed {commits} times")
    if not 1 <= runs <= 1 + forced:
        problems.append(f"{task_id} ran {runs} times, and {forced} repetitions were forced")
    return problems


def unfinished(submitted: Mapping[str, str], items: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The tasks that have not ended yet, or are not there."""
    return [task_id for task_id in submitted if items.get(task_id, {}).get("status") not in TERMINAL]
