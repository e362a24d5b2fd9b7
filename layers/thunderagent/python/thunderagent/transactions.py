"""A commit together with the user's own conditional writes, in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thunderagent import expressions
from thunderagent.bodies import Bodies
from thunderagent.conditions import Write
from thunderagent.errors import InvalidInput, StoreError, ThunderAgentError
from thunderagent.jsontext import dumps
from thunderagent.model import Attempt
from thunderagent.running_task import RunningTask
from thunderagent.store import Written

ITEMS_MAX = 99  # DynamoDB takes 100, and the commit is the first
OPERATIONS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheck"}


class CommitRefused(ThunderAgentError):
    """Conditions of the user's own items did not hold, and nothing was written. `failed` are their indexes, with the
    item found there where the entry asked for it (ReturnValuesOnConditionCheckFailure)."""

    def __init__(self, failed: Mapping[int, Mapping[str, Any] | None]) -> None:
        super().__init__(f"the conditions of transact_items {sorted(failed)} did not hold; nothing was written")
        self.failed = dict(failed)


class Commits:
    """Makes transactions of a commit and other writes. The commit comes first: by it, a repeat knows its own."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies

    def commit(self, running: RunningTask, transact_items: Sequence[Mapping[str, Any]], result: Any) -> None:
        """See `Context.commit_with`. The request and its token are frozen before the first try."""
        others = [_write_of(index, entry) for index, entry in enumerate(transact_items)]
        if not 1 <= len(others) <= ITEMS_MAX:
            raise InvalidInput(f"commit_with takes 1 to {ITEMS_MAX} items, not {len(others)}")
        text = dumps(result, root="result")
        if not running.take_end():
            running.check()
        try:
            self._send(running, others, text)
        finally:
            if not (running.committed or running.commit_unknown):
                running.give_back_end()

    def _send(self, running: RunningTask, others: Sequence[Write], text: str) -> None:
        store, task = running.store, running.task
        now = store.clock.now()
        placed = running.persist(lambda: self._bodies.place_result(task, text))
        attempt = Attempt(task.attempt, running.started_at, now, "success")
        token = running.lease.token
        commit = expressions.commit(task, token, result=placed, attempt=attempt, layout=store.layout, now=now)
        writes, request_token = [commit, *others], store.randomness.token()
        try:
            answer = running.persist(lambda: store.transact(writes, request_token=request_token))
        except StoreError as error:
            running.commit_unknown = running.unanswered = error.applied is None
            raise
        if isinstance(answer, Written):
            running.committed = True
            return
        if answer[0] is not None:
            running.note(answer[0])
            running.check()
        raise CommitRefused({n: refused.item for n, refused in enumerate(answer[1:]) if refused is not None})


def _write_of(index: int, entry: Mapping[str, Any]) -> Write:
    kinds = [kind for kind in OPERATIONS if kind in entry]
    if len(entry) != 1 or not kinds:
        raise InvalidInput(f"transact_items[{index}]: one of {', '.join(OPERATIONS)} is needed")
    return Write(f"with_commit.{kinds[0]}", OPERATIONS[kinds[0]], entry[kinds[0]])
