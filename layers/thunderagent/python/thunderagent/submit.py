"""Submitting a task: ids, idempotency, uniqueness, defaults, and the one write (or transaction) that makes it exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from thunderagent import expressions
from thunderagent.bodies import Bodies
from thunderagent.canonical_json import canonical
from thunderagent.codec import Item, item_bytes
from thunderagent.conditions import Write
from thunderagent.dependencies import Dependencies
from thunderagent.errors import Conflict, InvalidInput, StoreRefused, StoreThrottled, TooLarge, Unprocessable
from thunderagent.jsontext import loads
from thunderagent.model import Task
from thunderagent.parents import Birth, Verdict, verdict_of
from thunderagent.queues import Queues, QueueSettings
from thunderagent.schema import (
    DEFAULT_MAX_RETRY_NUMBER,
    DEFAULT_TIMEOUT_SECONDS,
    FORMAT_VERSION,
    OPEN_ITEM_BYTES,
    SPAWN_DEPTH_MAX,
    digest,
    open_key,
    unique_id,
)
from thunderagent.states import Status, is_terminal
from thunderagent.store import Store, Written

UNIQUE_ROUNDS = 5  # a takeover that loses its race looks again this often


@dataclass(frozen=True)
class Submission:
    """A validated request. None means 'not given': the type's declaration, then the defaults decide.

    `payload` is JSON text. `run_at` is epoch seconds, `delay_seconds` counts from the server's clock.
    """

    type: str
    payload: str = "null"
    queue: str | None = None
    priority: str | None = None
    delay_seconds: float | None = None
    run_at: float | None = None
    max_retry_number: int | None = None
    timeout_seconds: float | None = None
    start_within_seconds: float | None = None
    depends_on: tuple[str, ...] = ()
    unique_seconds: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    task_id: str | None = None
    traceparent: str | None = None
    depth: int = 0


@dataclass(frozen=True)
class Submitted:
    """`duplicate` is True when the task existed already: the same idempotency key, or equal unique work."""

    task: Task
    duplicate: bool


class Interfered(StoreRefused):
    """A write that was to happen together with the submit lost its premise. No task was accepted."""


class TypeDefaults(Protocol):
    """What the registry says about types. Unknown types have no defaults, and wait for a handler."""

    def defaults_of(self, type_name: str) -> Mapping[str, Any]: ...
    def timeout_limit(self, type_name: str) -> float: ...


class Submitter:
    """Accepts submissions. Nothing is written unless the submission is accepted (an orphaned body has a TTL)."""

    def __init__(
        self, store: Store, bodies: Bodies, queues: Queues, types: TypeDefaults, dependencies: Dependencies
    ) -> None:
        self._store = store
        self._bodies = bodies
        self._queues = queues
        self._types = types
        self._dependencies = dependencies

    def submit(
        self, submission: Submission, *, key: str | None = None, body: Any = None, along: Sequence[Write] = ()
    ) -> Submitted:
        """Make the task exist, once.

        `key` is the idempotency key, `body` the request as sent (any JSON value): the same key with another body is a
        Conflict. Raises InvalidInput, TooLarge, Unprocessable, Conflict, or a StoreError; then no task was accepted
        (after OutcomeUnknown perhaps: repeating with the same key is safe).

        `along` are writes of the caller's in the same transaction (not for a task with parents): the task exists only
        if they took effect. Raises Interfered when one of them is refused.
        """
        if not submission.depends_on:
            return self._create(self.new_item(submission, key=key, body=body), key, along)
        return self._submit_child(submission, key, body)

    def repeat_of(self, submission: Submission, *, key: str | None, body: Any) -> Submitted | None:
        """What `submit` answers to a request for a task that is there, by one read; None when it is not there.

        Raises Conflict as `submit` does. Left out is what a repeat mends of a child whose first submit broke off.
        """
        task_id = submission.task_id or (None if key is None else task_id_of(key))
        earlier = None if task_id is None else self._store.get_item(task_id, consistent=True)
        if task_id is None or earlier is None:
            return None
        return self._existing({"taskId": task_id, "idempotencyHash": request_hash(body)}, earlier, key)

    def _submit_child(self, submission: Submission, key: str | None, body: Any) -> Submitted:
        """Parents are judged once, by the first submit: a repeat finds the task, whatever became of them since."""
        task_id = self._id_of(submission, key)
        repeatable = key is not None or submission.task_id is not None
        if repeatable and (earlier := self._store.get_item(task_id, consistent=True)) is not None:
            submitted = self._existing({"taskId": task_id, "idempotencyHash": request_hash(body)}, earlier, key)
        else:
            birth = self._dependencies.prepare(task_id, submission.depends_on)
            item = self.new_item(submission, key=key, body=body, task_id=task_id, birth=birth)
            submitted = self._create(item, key, birth.edges(task_id, now=item["createdAt"]))
            if not submitted.duplicate:
                return Submitted(self._dependencies.complete(submitted.task, birth), duplicate=False)
        if submitted.task.task_id == task_id:
            self._dependencies.complete_again(submitted.task)
        return submitted

    def new_item(
        self,
        submission: Submission,
        *,
        key: str | None,
        body: Any,
        task_id: str | None = None,
        birth: Birth | None = None,
    ) -> Item:
        """The item of a new task, its payload placed. Raises like `submit`. Parents count by the `birth` only."""
        if submission.depth > SPAWN_DEPTH_MAX:
            raise InvalidInput(f"tasks have submitted one another {SPAWN_DEPTH_MAX} deep; this looks endless")
        now = self._store.clock.now()
        due_at, deadline = self._times(submission, now)
        task_id = task_id or self._id_of(submission, key)
        item = self._plain_item(submission, task_id, due_at=due_at, deadline=deadline, now=now)
        if key is not None or submission.task_id is not None:
            # equal requests at one instant ask for one id: only the nonce says whose write it was
            item |= {"idempotencyHash": request_hash(body), "nonce": self._store.randomness.token()[-8:]}
        if submission.unique_seconds is not None:
            unique = fingerprint(item["queue"], submission.type, submission.payload)
            item |= {"unique": unique, "uniqueSeconds": submission.unique_seconds}
        if birth is not None:
            item |= self._born(item, birth, due_at, now)
        item |= self._bodies.place_payload(item, submission.payload, due_at=due_at)
        if item_bytes(item) > OPEN_ITEM_BYTES:
            raise TooLarge(f"the task needs more than {OPEN_ITEM_BYTES} bytes besides its payload")
        return item

    def _plain_item(
        self, submission: Submission, task_id: str, *, due_at: float, deadline: float | None, now: float
    ) -> Item:
        """What the submission says, else the declaration of its type, else the library."""
        defaults = self._types.defaults_of(submission.type)
        queue = submission.queue or defaults.get("queue") or "default"
        priority = submission.priority or defaults.get("priority") or "normal"
        shard = self._declared(queue).shard_for(task_id, submission.tags)
        retries = _first(submission.max_retry_number, defaults.get("maxRetryNumber"), DEFAULT_MAX_RETRY_NUMBER)
        item: Item = {
            "taskId": task_id,
            "type": submission.type,
            "queue": queue,
            "priority": priority,
            "status": Status.PENDING.value,
            "retryCount": 0,
            "maxRetryNumber": retries,
            "timeoutSeconds": self._timeout(submission, defaults),
            "fence": 0,
            "createdAt": now,
            "updatedAt": now,
            "dueAt": due_at if deadline is None else min(due_at, deadline),
            "dispatchKey": open_key(queue, priority, shard),
            "formatVersion": FORMAT_VERSION,
            "homeRegion": self._store.layout.region,
        }
        optional: Item = {
            "deadline": deadline,
            "runAt": due_at if due_at > now else None,
            "tags": dict(submission.tags) or None,
            "traceparent": submission.traceparent,
            "depth": submission.depth or None,
            "leaseSeconds": defaults.get("leaseSeconds"),
        }
        return item | {name: value for name, value in optional.items() if value is not None}

    def check(self, submission: Submission) -> None:
        """Raise what `submit` would for the queue and the time-out. Nothing is written."""
        defaults = self._types.defaults_of(submission.type)
        self._declared(submission.queue or defaults.get("queue") or "default")
        self._timeout(submission, defaults)

    def _declared(self, queue: str) -> QueueSettings:
        settings = self._queues.get(queue)
        if settings is None:
            raise Unprocessable(
                f"queue {queue!r} is not declared; known queues: {', '.join(sorted(self._queues.all()))}",
                path="queue",
                code="unknown_queue",
            )
        return settings

    def _id_of(self, submission: Submission, key: str | None) -> str:
        return submission.task_id or (task_id_of(key) if key is not None else self._store.randomness.token())

    def _born(self, item: Item, birth: Birth, due_at: float, now: float) -> Item:
        attributes = self._dependencies.place(item["taskId"], birth, due_at=due_at)
        if birth.blocked_count:
            attributes |= expressions.born_blocked(
                item,
                blocked=birth.blocked_count,
                unlinked=birth.unlinked,
                death=birth.death,
                layout=self._store.layout,
                now=now,
            )
        return attributes

    # ---- the write ---------------------------------------------------------------------------------------------------

    def _create(self, item: Item, key: str | None, along: Sequence[Write]) -> Submitted:
        if "unique" in item:
            return self._create_unique(item, key, along)
        write = expressions.submit(item)
        answer = self._store.transact([write, *along]) if along else self._store.apply(write)
        if isinstance(answer, Written):
            return Submitted(Task.from_item(item), duplicate=False)
        taken = answer[0] if isinstance(answer, tuple) else answer
        if taken is None:
            raise _interfered()
        return self._existing(item, taken.item or {}, key)

    def _create_unique(self, item: Item, key: str | None, along: Sequence[Write]) -> Submitted:
        """One transaction: the task and the pointer to it. An open equal task (or one in its window) suppresses."""
        if key is not None and (earlier := self._store.get_item(item["taskId"], consistent=True)) is not None:
            return self._existing(item, earlier, key)
        for _ in range(UNIQUE_ROUNDS):
            pointer = self._store.get_item(unique_id(item["unique"]), consistent=True)
            holder_id = pointer.get("holder") if pointer else None
            holder = self._store.get_item(holder_id, consistent=True) if isinstance(holder_id, str) else None
            if holder is not None and holder["taskId"] != item["taskId"] and self._suppresses(holder):
                return Submitted(Task.from_item(holder), duplicate=True)
            own = [expressions.submit(item), *expressions.take_unique(item, pointer=pointer, holder=holder)]
            answer = self._store.transact([*own, *along])
            if isinstance(answer, Written):
                return Submitted(Task.from_item(item), duplicate=False)
            if (taken := answer[0]) is not None:
                return self._existing(item, taken.item or {}, key)
            if not any(answer[: len(own)]):
                raise _interfered()
        raise StoreThrottled("TransactWriteItems", "UniqueContention", "equal tasks are being submitted; try again")

    def _suppresses(self, holder: Item) -> bool:
        if not is_terminal(holder.get("status")):
            return True
        finished, window = holder.get("finishedAt"), holder.get("uniqueSeconds")
        if not isinstance(finished, int | float) or not isinstance(window, int | float):
            return False
        return verdict_of(holder) is Verdict.SATISFIED and finished + window > self._store.clock.now()

    def _existing(self, item: Item, stored: Item, key: str | None) -> Submitted:
        """The id is taken: by an earlier request with this key (then it is the answer), or by something else."""
        if key is None:
            raise Conflict(f"task {item['taskId']} exists already", status=str(stored.get("status")))
        if stored.get("idempotencyHash") != item["idempotencyHash"]:
            raise Conflict(
                "this Idempotency-Key was used with another body; use a new key for a new task",
                code="idempotency_conflict",
            )
        return Submitted(Task.from_item(stored), duplicate=True)

    # ---- defaults ----------------------------------------------------------------------------------------------------

    def _times(self, submission: Submission, now: float) -> tuple[float, float | None]:
        due_at = now
        if submission.run_at is not None:
            due_at = max(now, submission.run_at)
        elif submission.delay_seconds:
            due_at = now + submission.delay_seconds
        within = submission.start_within_seconds
        return round(due_at, 3), round(due_at + within, 3) if within is not None else None

    def _timeout(self, submission: Submission, defaults: Mapping[str, Any]) -> float:
        limit = self._types.timeout_limit(submission.type)
        given = submission.timeout_seconds
        if given is not None and given > limit:
            raise InvalidInput(
                f"timeoutSeconds is {given:g}; its executor allows at most {limit:g}", path="timeoutSeconds"
            )
        return float(min(limit, _first(given, defaults.get("timeoutSeconds"), DEFAULT_TIMEOUT_SECONDS)))


def _interfered() -> Interfered:
    return Interfered("TransactWriteItems", "ConditionalCheckFailed", "what was to be written with the task changed")


def _first(*values: Any) -> Any:
    """The first value that was given: 0 and False are values, None is not."""
    return next(value for value in values if value is not None)


def task_id_of(key: str) -> str:
    """The task id an idempotency key stands for: 128 bits of SHA-256, so that equal keys meet in one item."""
    return digest(f"idempotency-key:{key}")[:32]


def request_hash(body: Any) -> str:
    """What tells one body from another under the same key: 128 bits of SHA-256 over RFC 8785 text."""
    return digest(canonical(body))[:32]


def fingerprint(queue: str, type_name: str, payload: str) -> str:
    """Equal work: SHA-256 over queue, type and the payload in RFC 8785 form (1 and 1.0 are equal)."""
    return digest(canonical([queue, type_name, loads(payload)]))
