"""The protocol with one rule missing, for each rule: what shows that the simulation would notice.

Every entry patches the library while one run lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

from tests.simulation.weather import Weather
from thunderagent import claims, expressions, limit_writes, runner
from thunderagent.claims import Claims
from thunderagent.conditions import Clause, Placeholders, Write, delete, exists, put, put_body, update
from thunderagent.expressions import running
from thunderagent.held_lease import HeldLease
from thunderagent.holdings import Holdings
from thunderagent.model import Lease
from thunderagent.operations import Operations
from thunderagent.persist import persist
from thunderagent.reaper import Reaper
from thunderagent.recorder import Recorder
from thunderagent.schema import lease_id
from thunderagent.settling import Settling
from thunderagent.states import Status
from thunderagent.store import Refused, Store, Written

Patch = AbstractContextManager[Any]
BUILDERS = (*(each for each in vars(expressions).values() if isinstance(each, ModuleType)), limit_writes)


@dataclass(frozen=True)
class Mutation:
    """One rule that is missing: the name says which. In this weather it is missed soon."""

    name: str
    patches: Callable[[], Sequence[Patch]]
    weather: Weather

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for each in self.patches():
                stack.enter_context(each)
            yield


# ---- ways to mutate -------------------------------------------------------------------------------------------------


def _names(clause: Clause, attribute: str) -> bool:
    placeholders = Placeholders()
    clause(placeholders)
    return attribute in placeholders.names.values()


def _dropping(*events: str, attributes: Sequence[str]) -> list[Patch]:
    """The conditions of these writes, without what they say of these attributes."""

    def less(require: Sequence[Clause]) -> list[Clause]:
        return [each for each in require if not any(_names(each, attribute) for attribute in attributes)]

    def mutated_update(event: str, item_id: str, *, require: Sequence[Clause], **more: Any) -> Write:
        return update(event, item_id, require=less(require) if event in events else require, **more)

    def mutated_delete(event: str, item_id: str, *, require: Sequence[Clause]) -> Write:
        return delete(event, item_id, require=less(require) if event in events else require)

    def mutated_put(event: str, item: Mapping[str, Any], *, require: Sequence[Clause], **more: Any) -> Write:
        return put(event, item, require=less(require) if event in events else require, **more)

    mutated = {"update": mutated_update, "delete": mutated_delete, "put": mutated_put}
    return [each for name, builder in mutated.items() for each in _built_by(name, builder)]


def _built_by(name: str, mutated: Callable[..., Write]) -> list[Patch]:
    """This builder of `conditions`, in every module that uses it."""
    return [patch.object(module, name, mutated) for module in BUILDERS if hasattr(module, name)]


def _always(value: Any) -> Callable[..., Any]:
    return lambda *arguments, **named: value


def _then(function: Callable[..., Any], value: Any) -> Callable[..., Any]:
    """Do it, and take no notice of what it says."""

    def heedless(*arguments: Any, **named: Any) -> Any:
        function(*arguments, **named)
        return value

    return heedless


# ---- single mutations that need more than a dropped clause ----------------------------------------------------------


def _no_begin() -> list[Patch]:
    def begin(store: Store, token: Any, *, lock_time: float, seconds: float, **more: Any) -> HeldLease:
        return HeldLease(store, token, store.randomness.token(), lock_time=lock_time, seconds=seconds)

    return [
        patch.object(HeldLease, "begin", staticmethod(begin)),
        *_dropping("heartbeat", "settle", attributes=["begun"]),
    ]


def _nonce_is_the_token() -> list[Patch]:
    begin = expressions.begin

    def mutated(token: Any, *, nonce: str, lock_time: float, now: float) -> Write:
        return begin(token, nonce=token, lock_time=lock_time, now=now)

    init = HeldLease.__init__

    def built(self: HeldLease, store: Store, token: Any, nonce: str, **more: Any) -> None:
        init(self, store, token, token, **more)

    return [patch.object(expressions, "begin", mutated), patch.object(HeldLease, "__init__", built)]


def begin_watched(begin: Callable[..., Any]) -> Patch:
    """A look, not a mutation: nobody is refused a lease that he has begun himself, in the same delivery. (That would
    break nothing. It would leave its tasks idle until it ends.)"""

    def watched(store: Any, token: Any, **more: Any) -> Any:
        process = store.randomness._process
        drawn = process.tokens
        answer = begin(store, token, **more)
        if isinstance(answer, Refused):
            name, _, number = str((answer.item or {}).get("begun", "")).rpartition(".")
            if name == process.name and int(number) > drawn:
                process.kernel.violate(f"lease {token}: begun by {name}, which is refused for it")
        return answer

    return patch.object(HeldLease, "begin", staticmethod(watched))


def _nonce_of_each_try() -> list[Patch]:
    begin = HeldLease.begin

    def mutated(store: Store, token: Any, *, lock_time: float, seconds: float, **more: Any) -> Any:
        return persist(
            lambda: begin(store, token, lock_time=lock_time, seconds=seconds, remaining_seconds=lambda: 0.0),
            clock=store.clock,
            randomness=store.randomness,
            seconds_left=lambda: lock_time - store.clock.now(),
        )

    return [begin_watched(mutated)]


def _reap_without_close() -> list[Patch]:
    def take_lease(self: Reaper, lease: Lease) -> None:
        if lease.lock_time + self._settings.lease_grace_seconds < self._store.clock.now():
            self._reset_tasks(lease)
            self._store.apply(delete("bury", lease_id(lease.token), require=[]))

    return [patch.object(Reaper, "take_lease", take_lease)]


def _closed_stay() -> list[Patch]:
    take_lease = Reaper.take_lease

    def mutated(self: Reaper, lease: Lease) -> None:
        if not lease.closed:
            take_lease(self, lease)

    return [patch.object(Reaper, "take_lease", mutated)]


def _backstop_without_look() -> list[Patch]:
    return [patch.object(Reaper, "_look_at", lambda self, item: self._reset_as_read(item, started=frozenset()))]


def _settle_unanswered() -> list[Patch]:
    settle = runner._BatchRun._settle

    def mutated(self: Any) -> None:
        self._tally.answered = True
        settle(self)

    return [patch.object(runner._BatchRun, "_settle", mutated)]


def _start_unrecorded() -> list[Patch]:
    renew = HeldLease._renew
    return [patch.object(HeldLease, "_renew", lambda self, starting: renew(self, ()))]


def _start_though_refused() -> list[Patch]:
    renew = HeldLease._renew

    def mutated(self: HeldLease, starting: Any) -> bool:
        renew(self, starting)
        self.lost = False
        return True

    return [patch.object(HeldLease, "_renew", mutated)]


def _started_is_replaced() -> list[Patch]:
    def mutated(event: str, item_id: str, *, adds: Mapping[str, Any] | None = None, **more: Any) -> Write:
        if event == "heartbeat" and adds:
            more["sets"] = {**more["sets"], **adds}
            adds = None
        return update(event, item_id, adds=adds, **more)

    return _built_by("update", mutated)


def _open_is_retried() -> list[Patch]:
    apply = Store.apply
    return [patch.object(Store, "apply", lambda self, write, once=False: apply(self, write))]


def _one_token() -> list[Patch]:
    return [patch.object(claims, "LeaseToken", lambda token: str(token).rpartition(".")[0])]


def _redrive_forgets() -> list[Patch]:
    def mutated(self: Operations, task: Any, operator: Any, key: str | None) -> Any:
        if task.status is not Status.FAILED:
            return task
        now = self._store.clock.now()
        entry = operator.entry("redrive", now)
        write = expressions.redrive(
            task, redrive_id=f"{task.fence}:{key}", operator=entry, layout=self._store.layout, now=now
        )
        return replace(write, applied=_always(False))

    return [patch.object(Operations, "_redrive", mutated), *_dropping("redrive", attributes=["fence"])]


def _redrive_keeps_ttl() -> list[Patch]:
    def mutated(event: str, item_id: str, *, removes: Sequence[str] = (), **more: Any) -> Write:
        kept = [name for name in removes if name != "expiresAt"] if event == "redrive" else removes
        return update(event, item_id, removes=kept, **more)

    return _built_by("update", mutated)


def _commit_in_two() -> list[Patch]:
    transact = Store.transact

    def mutated(self: Store, writes: Sequence[Write], *, request_token: str | None = None) -> Any:
        if writes[0].event != "commit":
            return transact(self, writes, request_token=request_token)
        for each in writes[1:]:
            self._send(each.operation, each.arguments)
        answer = self.apply(writes[0])
        return answer if isinstance(answer, Written) else (answer, *(None for _ in writes[1:]))

    return [patch.object(Store, "transact", mutated)]


def _unblock_without_edge() -> list[Patch]:
    def mutated(self: Settling, child: Any, parent_id: str) -> bool:
        now, layout = self._store.clock.now(), self._store.layout
        opened = expressions.unblock(child, due_at=now, layout=layout, now=now)
        done = isinstance(self._store.apply(opened), Written)
        self._store.apply(expressions.cut_edge(parent_id, child.task_id))
        return done

    return [patch.object(Settling, "_unblock", mutated)]


def _unique_unseen() -> list[Patch]:
    def mutated(item: Mapping[str, Any], *, pointer: Any, holder: Any) -> list[Write]:
        record = {"taskId": f"unique#{item['unique']}", "holder": item["taskId"], "createdAt": item["createdAt"]}
        return [put_body(record)]

    return [patch.object(expressions, "take_unique", mutated)]


def _slot_unseen() -> list[Patch]:
    take = limit_writes.take_slot

    def mutated(slot_id: str, **more: Any) -> Write:
        write = take(slot_id, **more)
        return replace(write, arguments={"Item": write.arguments["Item"]})

    return [patch.object(limit_writes, "take_slot", mutated)]


def _move_creates() -> list[Patch]:
    def mutated(lease: Lease) -> Write:
        write = update("move_lease", lease_id(lease.token), require=[], sets={"dueAt": lease.lock_time}, applied=bool)
        arguments = {name: value for name, value in write.arguments.items() if name != "ConditionExpression"}
        names = {name: value for name, value in arguments["ExpressionAttributeNames"].items() if value != "taskId"}
        return replace(write, arguments={**arguments, "ExpressionAttributeNames": names})

    return [patch.object(expressions, "move_lease", mutated)]


def _tell_creates() -> list[Patch]:
    def mutated(token: Any, task_id: Any) -> Write:
        write = expressions.leases.update(
            "tell", lease_id(token), require=[], adds={"cancelled": frozenset({task_id})}, applied=bool
        )
        arguments = {name: value for name, value in write.arguments.items() if name != "ConditionExpression"}
        names = {name: value for name, value in arguments["ExpressionAttributeNames"].items() if value != "taskId"}
        return replace(write, arguments={**arguments, "ExpressionAttributeNames": names})

    return [patch.object(expressions, "tell_lease", mutated)]


def _submit_overwrites() -> list[Patch]:
    def mutated(item: Mapping[str, Any]) -> Write:
        return put_body(item)

    return [patch.object(expressions, "submit", mutated)]


def _body_by_task_id() -> list[Patch]:
    return [patch("thunderagent.bodies.result_id", lambda task_id, fence: f"result#{task_id}")]


def _no_heartbeat() -> list[Patch]:
    return [
        patch.object(HeldLease, "needs_renewal", _always(False)),
        patch.object(HeldLease, "renewal_in", _always(1e9)),
    ]


def _no_heartbeat_while_waiting() -> list[Patch]:
    renew = runner._BatchRun._renew

    def mutated(self: Any) -> None:
        if not self._waiting:
            renew(self)

    return [patch.object(runner._BatchRun, "_renew", mutated)]


def _bucket_unseen() -> list[Patch]:
    fill = limit_writes.fill_bucket

    def mutated(bucket_id: str, **more: Any) -> Write:
        write = fill(bucket_id, **more)
        return replace(write, arguments={"Item": write.arguments["Item"]})

    return [patch.object(limit_writes, "fill_bucket", mutated)]


def _archive_heedless() -> list[Patch]:
    def put_once(self: Recorder, archived: Any, recorded: Any) -> bool:
        self._try_put(archived)
        return True

    return [patch.object(Recorder, "_put", put_once), patch("thunderagent.recorder.PUT_ATTEMPTS", 1)]


# ---- the table ------------------------------------------------------------------------------------------------------


def _one(target: Any, name: str, value: Any) -> Callable[[], list[Patch]]:
    return lambda: [patch.object(target, name, value)]


def _drop(*events: str, attributes: Sequence[str]) -> Callable[[], list[Patch]]:
    return lambda: _dropping(*events, attributes=attributes)


FAIR = Weather()
FROZEN = Weather(freeze=0.02, event_repeated=0.1, event_late=0.1)
FREEZING = Weather(freeze=0.06)
FROZEN_OFTEN = Weather(freeze=0.12)
FROZEN_IN_MID_WRITE = Weather(freeze=0.03, crash=0.004)
FICKLE = Weather(freeze=0.02, cancels=0.9, crash=0.002)
SLOW_TO_HEAR = Weather(cancels=0.9, slow=0.1)
DEAF = Weather(lost_request=0.18, crash=0.006)
CUT = Weather(outage=0.03, lost_reply=0.02, lost_request=0.02)
LATE = Weather(late_request=0.03, freeze=0.005)
CRASHING = Weather(crash=0.012, crashes_per_hour=100, lost_reply=0.01)
REFUSED = Weather(invoke_refused=0.4, late_request=0.05, freeze=0.02)
CUT_AND_REFUSED = Weather(outage=0.03, invoke_refused=0.4, lost_reply=0.02)
TWICE = Weather(event_repeated=0.4, event_late=0.3, invoke_unknown=0.3)
BEHIND = Weather(late_request=0.05, freeze=0.03, stale_reads=0.3)
FAR_BEHIND = Weather(late_request=0.15, stale_reads=0.3)
HELD_UP = Weather(throttled=0.3, slow=0.1)
MUDDLED = replace(BEHIND, lost_reply=0.02, lost_request=0.02, cancels=0.5, crash=0.003, invoke_refused=0.2)
HARDLY_ANSWERED = Weather(throttled=0.2, lost_reply=0.05, event_repeated=0.2, event_late=0.1)

MUTATIONS: tuple[Mutation, ...] = (
    # the token, on every exit
    Mutation("commit-without-token", _drop("commit", attributes=["leaseToken"]), FROZEN),
    Mutation("exits-without-token", _drop("retry", "fail", "finish", "snooze", attributes=["leaseToken"]), FROZEN),
    Mutation("release-without-token", _drop("release", attributes=["leaseToken"]), REFUSED),
    Mutation("cancel-end-without-token", _drop("cancel_end", attributes=["leaseToken"]), FICKLE),
    Mutation("reap-without-token", _drop("reap", "reap_failed", attributes=["leaseToken"]), FROZEN),
    # the status, which the token outlives
    Mutation("exits-without-status", _drop("retry", "fail", "finish", "snooze", attributes=["status"]), BEHIND),
    Mutation("cancel-end-without-status", _drop("cancel_end", attributes=["status"]), MUDDLED),
    Mutation("reap-without-status", _drop("reap", "reap_failed", attributes=["status"]), BEHIND),
    Mutation("cancel-without-status", _drop("cancel", attributes=["status"]), BEHIND),
    Mutation("expire-without-status", _drop("expire", attributes=["status"]), MUDDLED),
    Mutation("failed-without-status", _drop("parent_failed", attributes=["status"]), FAR_BEHIND),
    Mutation("aside-unseen", _drop("move_aside", attributes=["status", "leaseToken"]), BEHIND),
    Mutation("request-unseen", _drop("cancel_request", attributes=["status", "leaseToken"]), BEHIND),
    Mutation("reap-despite-cancel", _drop("reap", "reap_failed", attributes=["cancelRequested"]), MUDDLED),
    # begin, once, and a look at what is ours
    Mutation("no-begin", _no_begin, TWICE),
    Mutation("begin-again", _drop("begin", attributes=["begun"]), TWICE),
    Mutation("nonce-is-the-token", _nonce_is_the_token, TWICE),
    Mutation("nonce-of-each-try", _nonce_of_each_try, HARDLY_ANSWERED),
    Mutation("begin-closed", _drop("begin", attributes=["closed", "lockTime"]), FROZEN),
    Mutation("no-look-at-begin", _one(Holdings, "_is_ours", lambda self, item: item.get("status") == "RUNNING"), CUT),
    # a record before each start, and renewals
    Mutation("start-unrecorded", _start_unrecorded, FAIR),
    Mutation("start-though-refused", _start_though_refused, FROZEN),
    Mutation("started-is-replaced", _started_is_replaced, FAIR),
    Mutation("heartbeat-on-closed", _drop("heartbeat", attributes=["closed"]), FROZEN),
    Mutation("begin-goes-back", _drop("begin", attributes=["lockTime"]), BEHIND),
    Mutation("heartbeat-goes-back", _drop("heartbeat", attributes=["lockTime"]), MUDDLED),
    Mutation("settle-closed", _drop("settle", attributes=["closed"]), MUDDLED),
    Mutation("no-heartbeat", _no_heartbeat, FAIR),
    Mutation("no-heartbeat-for-waiting", _no_heartbeat_while_waiting, FAIR),
    Mutation("steps-without-token", _drop("step", "progress", attributes=["leaseToken"]), FROZEN),
    # close before reap, answers before the lease goes
    Mutation("close-unseen", _drop("close", attributes=["lockTime"]), FROZEN_OFTEN),
    Mutation("reap-without-close", _reap_without_close, CRASHING),
    Mutation("closed-stay", _closed_stay, CRASHING),
    Mutation("bury-unanswered", _one(Reaper, "_reset_tasks", _then(Reaper._reset_tasks, True)), DEAF),
    Mutation("settle-unanswered", _settle_unanswered, CUT),
    Mutation("no-backstop", _one(Reaper, "_look_at", _always(None)), CUT_AND_REFUSED),
    Mutation("backstop-without-look", _backstop_without_look, FROZEN),
    Mutation("move-creates", _move_creates, FREEZING),
    # the poller's side
    Mutation("release-before-void", _one(Claims, "_void", _then(Claims._void, True)), TWICE),
    Mutation("void-begun", _drop("void", attributes=["begun", "closed"]), TWICE),
    Mutation("one-token", _one_token, FAIR),
    Mutation("open-is-retried", _open_is_retried, LATE),
    Mutation("claim-past-deadline", _drop("claim", attributes=["deadline"]), HELD_UP),
    Mutation("claim-unseen", _drop("claim", attributes=["fence", "dueAt"]), LATE),
    # what clients were told
    Mutation("cancel-overtaken", _one(running, "not_cancelled", exists), FAIR),
    Mutation("cancel-untold", _one(Operations, "_tell_holder", _always(None)), SLOW_TO_HEAR),
    Mutation("tell-creates", _tell_creates, MUDDLED),
    Mutation("redrive-forgets", _redrive_forgets, LATE),
    Mutation("redrive-keeps-ttl", _redrive_keeps_ttl, FAIR),
    Mutation("submit-overwrites", _submit_overwrites, FAIR),
    # bodies, effects, edges, limits, schedules, archive
    Mutation("body-by-task-id", _body_by_task_id, FROZEN_IN_MID_WRITE),
    Mutation("commit-in-two", _commit_in_two, CUT),
    Mutation("unblock-without-edge", _unblock_without_edge, CRASHING),
    Mutation("unique-unseen", _unique_unseen, FAIR),
    Mutation("slot-unseen", _slot_unseen, FAIR),
    Mutation("slot-retaken", _drop("take_slot", attributes=["leaseToken"]), MUDDLED),
    Mutation("slot-of-others", _drop("give_back_slot", attributes=["leaseToken", "holder"]), FAR_BEHIND),
    Mutation("bucket-unseen", _bucket_unseen, FAIR),
    Mutation("schedule-unseen", _drop("advance_schedule", attributes=["dueAt", "version"]), FROZEN),
    Mutation("archive-heedless", _archive_heedless, DEAF),
)
