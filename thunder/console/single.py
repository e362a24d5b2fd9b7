"""Actions on one task, or on some that were chosen: asked about first, then done one by one, each with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from thunder.console.forms import FieldError, Fields
from thunder.console.routing import Asked, failed, on_to, own_path
from thunder.console.site import Console, Notice
from thunder.console.tasks import TASK_ID
from thunderagent.client import TaskView, ThunderClient
from thunderagent.signed_http import ApiError

CHOSEN_MOST: Final = 100
HANDS: Final = 4
REASON_BYTES: Final = 1000


@dataclass(frozen=True)
class Action:
    """Something an operator does to a task. `done` is the word for what became of it."""

    name: str
    word: str
    done: str
    statuses: frozenset[str]
    effect: str
    keeps_reason: bool = True
    is_dangerous: bool = False
    can_cascade: bool = False
    is_for_what_was_seen: bool = False
    """The API does it to a task whatever has become of it since: the console looks again before."""


ACTIONS: Final[Mapping[str, Action]] = {
    action.name: action
    for action in (
        Action(
            "redrive",
            "Redrive",
            "redriven",
            frozenset({"FAILED"}),
            "It becomes PENDING again with its full number of retries.",
            can_cascade=True,
        ),
        Action(
            "cancel",
            "Cancel",
            "cancelled",
            frozenset({"PENDING", "RUNNING"}),
            "It ends DONE and cannot end otherwise; a running handler is told at its next heartbeat.",
            is_dangerous=True,
        ),
        Action(
            "ack", "Acknowledge", "acknowledged", frozenset({"SUCCESS"}), "Its result was collected: it becomes DONE."
        ),
        Action(
            "delete",
            "Delete",
            "deleted",
            frozenset({"SUCCESS", "FAILED", "DONE"}),
            "It is erased with its payload and its result, and cannot be brought back.",
            keeps_reason=False,
            is_dangerous=True,
            is_for_what_was_seen=True,
        ),
    )
}


def actions_for(status: str) -> list[Action]:
    """What can be done to a task of this status, the harmless first."""
    return [action for action in ACTIONS.values() if status in action.statuses]


def act(asked: Asked) -> Response:
    action = ACTIONS.get(asked.path["action"])
    if action is None:
        return failed(asked, 404, "There is no such action", asked.path["action"][:80])
    fields = asked.form if asked.is_post else asked.query
    ids = _chosen(fields)
    if not asked.is_post:
        return _ask(asked, action, ids)
    reason = reason_of(asked.form) if action.keeps_reason else ""
    seen = set(asked.form.all("seen")) if action.is_for_what_was_seen else set()
    notice = _do(asked.console, action, ids, reason, cascade=asked.form.is_set("cascade"), seen=seen)
    way_on = own_path(asked.form.text("next"), "/tasks")
    if action.name == "delete" and way_on.partition("?")[0] == f"/task/{ids[0]}":
        way_on = "/tasks"
    return on_to(asked, way_on, notice)


def _chosen(fields: Fields) -> list[str]:
    ids = fields.all("id")
    if not ids:
        raise FieldError("id", "No task is chosen: mark some in the list first.")
    if len(ids) > CHOSEN_MOST:
        raise FieldError("id", f"At most {CHOSEN_MOST} tasks at once; use «all matching» for more.")
    if not all(TASK_ID.fullmatch(id) for id in ids):
        raise FieldError("id", "One of these cannot be the id of a task.")
    return ids


def reason_of(form: Fields) -> str:
    """What the operator gave as reason; may be empty. Raises FieldError for one the API would refuse."""
    reason = form.text("reason")
    if len(reason.encode()) > REASON_BYTES:
        raise FieldError("reason", f"The reason is too long: {REASON_BYTES} bytes are kept.")
    return reason


def _ask(asked: Asked, action: Action, ids: Sequence[str]) -> Response:
    fallback = f"/task/{ids[0]}" if len(ids) == 1 else "/tasks"
    return asked.page(
        "confirm_single.html",
        title=f"{action.word} {'this task' if len(ids) == 1 else f'{len(ids)} tasks'}?",
        action=action,
        ids=ids,
        way_on=asked.address if asked.is_part else fallback,
        seen=_states(asked.console.client, ids) if action.is_for_what_was_seen else [],
    )


def _states(client: ThunderClient, ids: Sequence[str]) -> list[str]:
    """What each task is now, as `_state` writes it; nothing of those that cannot be read."""

    def one(id: str) -> str | None:
        try:
            return _state(client.get(id))
        except ApiError:
            return None

    with ThreadPoolExecutor(HANDS) as pool:
        return [state for state in pool.map(one, ids) if state is not None]


def _state(task: TaskView) -> str:
    """Another text after every claim, redrive and end, and for another task of the same id."""
    return f"{task.task_id} {task.status} {task.fields.get('fence')} {task.fields.get('createdAt')}"


def _do(console: Console, action: Action, ids: Sequence[str], reason: str, *, cascade: bool, seen: Set[str]) -> Notice:
    """`seen` are the states that the operator was asked about; a task that is another by now is left alone."""
    call = _call(console.client, action, reason, cascade=cascade)
    known = {state.partition(" ")[0] for state in seen}

    def one(id: str) -> str | None:
        try:
            if id in known and _state(now := console.client.get(id)) not in seen:
                return f"it has changed since you were asked, and is {now.status} now"
            call(id)
        except ApiError as error:
            return error.message
        return None

    with ThreadPoolExecutor(HANDS) as pool:
        outcomes = list(pool.map(one, ids))
    refused = [f"{id}: {problem}" for id, problem in zip(ids, outcomes, strict=True) if problem is not None]
    done = len(ids) - len(refused)
    subject = f"Task {ids[0]} is" if len(ids) == 1 else f"{done} of {len(ids)} tasks are"
    if len(ids) == 1 and refused:
        return Notice("bad", f"Task {ids[0]} is not {action.done}.", refused)
    return Notice("bad" if refused else "good", f"{subject} {action.done}.", refused)


def _call(client: ThunderClient, action: Action, reason: str, *, cascade: bool) -> Callable[[str], Any]:
    given = reason or None
    match action.name:
        case "redrive":
            return lambda id: client.redrive(id, cascade=cascade, reason=given)
        case "cancel":
            return lambda id: client.cancel(id, reason=given)
        case "ack":
            return lambda id: client.ack(id, reason=given)
    return client.delete
