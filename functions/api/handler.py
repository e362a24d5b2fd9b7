"""The API: one function per call of the OpenAPI document, each of which decodes, calls one use case and answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from thunderagent import http
from thunderagent.errors import BodyMissing, InvalidInput, NotFound
from thunderagent.http import Answer, Request
from thunderagent.intake import Entry, submission_of, submit_batch
from thunderagent.model import Task
from thunderagent.operations import Operations, Operator
from thunderagent.submit import Submitted
from thunderagent.validation import DOCUMENT_PATH, Operation, check_body, check_parameters, document, operations
from thunderagent.views import task_alone
from thunderagent.wiring import Parts, parts_from_environment

READ_BODIES = "thunder/read-payload"


@cache
def parts() -> Parts:
    return parts_from_environment(threads=16)


@cache
def openapi_text() -> str:
    return DOCUMENT_PATH.read_text("utf-8")


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One HTTP call. Every outcome is an answer in the contract's form; only our own defects are 500."""
    request_id = http.request_id_of(event) or str(getattr(context, "aws_request_id", ""))
    try:
        answer = answer_of(http.decode(event))
    except Exception as error:  # noqa: BLE001  # the last line before the gateway's own, mute 500
        answer = http.answer_to(error, request_id)
        _log_failure(error, answer, event, request_id)
    return http.encode(answer, request_id)


def answer_of(request: Request) -> Answer:
    """Dispatch by route. Raises what `http.STATUS_OF_ERROR` lists."""
    call = CALLS.get(request.route)
    if call is None:
        raise NotFound(f"there is no {request.method} {request.path[:200]}")
    operation = operations()[request.route]
    given = {"path": request.path_parameters, "query": request.query, "header": request.headers}
    own = parts()
    try:
        return call(Call(own, request, operation, check_parameters(operation, given)))
    finally:
        own.flush()


def _log_failure(error: Exception, answer: Answer, event: Mapping[str, Any], request_id: str) -> None:
    if answer.status < 500:
        return
    fields = {"requestId": request_id, "route": str(event.get("routeKey")), "status": answer.status}
    level = "ERROR" if answer.status == 500 else "WARNING"
    parts().telemetry.log("api.failed", level=level, errorType=type(error).__name__, message=str(error)[:500], **fields)


@dataclass(frozen=True)
class Call:
    """One request on its way: what it asks, checked against the document, and the parts that serve it."""

    parts: Parts
    request: Request
    operation: Operation
    parameters: Mapping[str, Any]

    @property
    def task_id(self) -> str:
        return str(self.parameters["taskId"])

    @property
    def idempotency_key(self) -> str | None:
        key: str | None = self.parameters.get("Idempotency-Key")
        return key

    @cached_property
    def body(self) -> Any:
        """The body, judged by the document; an optional one that is absent is an empty object."""
        value = self.request.json()
        if value is None and not self.request.body:
            if self.operation.body_is_required:
                raise InvalidInput("the body is missing: a JSON object is needed")
            value = {}
        check_body(self.operation, value)
        return value

    @property
    def operator(self) -> Operator:
        return Operator(self.request.caller, self.body.get("reason") if self.operation.body else None)

    @property
    def operations(self) -> Operations:
        return Operations(self.parts.store, self.parts.bodies)

    def view(self, task: Task) -> dict[str, Any]:
        """The task whole; without bodies for a token that may not read them."""
        scopes = self.request.scopes
        return task_alone(task, self.parts.bodies, with_bodies=scopes is None or READ_BODIES in scopes)

    def log(self, event: str, task: Task, **fields: Any) -> None:
        self.parts.telemetry.log(event, taskId=task.task_id, queue=task.queue, type=task.type, **fields)

    def submitted(self, submitted: Submitted) -> None:
        """Tell of a task that is new; one that was there before is no state change."""
        if not submitted.duplicate:
            self.log("task.submitted", submitted.task)
            self.parts.telemetry.measure("Submitted", queue=submitted.task.queue)


# ---- submit ---------------------------------------------------------------------------------------------------------


def submit_task(call: Call) -> Answer:
    submission = submission_of(call.body)
    submitted = call.parts.submitter.submit(submission, key=call.idempotency_key, body=call.body)
    call.submitted(submitted)
    # The caller has just sent the payload: no scope is needed to see it again, unless it is another task's.
    if submitted.duplicate:
        return http.ok(call.view(submitted.task) | {"duplicate": True})
    location = f"{call.request.base_path}/tasks/{submitted.task.task_id}"
    return http.created(task_alone(submitted.task, call.parts.bodies), location=location)


def submit_tasks(call: Call) -> Answer:
    key = call.idempotency_key

    def submit(entry: Entry) -> Submitted:
        # NUL can stand in no header: no single submit's key is ever equal to an entry's.
        entry_key = None if key is None else f"{key}\0{entry.index}"
        submitted = call.parts.submitter.submit(entry.submission, key=entry_key, body=entry.body)
        call.submitted(submitted)
        return submitted

    outcomes = submit_batch(call.request.json_draft(), submit, call.parts.seams.threads.map)
    results = [_batch_result(outcome) for outcome in outcomes]
    accepted = sum("error" not in result for result in results)
    return http.ok({"results": results, "accepted": accepted, "rejected": len(results) - accepted})


def _batch_result(outcome: Submitted | Exception) -> dict[str, Any]:
    if isinstance(outcome, Exception):
        return {"error": http.detail_of(outcome)}
    result = {"taskId": outcome.task.task_id, "status": outcome.task.status.value}
    return result | ({"duplicate": True} if outcome.duplicate else {})


# ---- read -----------------------------------------------------------------------------------------------------------


def get_task(call: Call) -> Answer:
    return http.ok(call.view(call.operations.task(call.task_id)))


def get_payload(call: Call) -> Answer:
    task = call.operations.task(call.task_id)
    return _stored_body(call, task.payload_ref, lambda: call.parts.bodies.payload(task))


def get_result(call: Call) -> Answer:
    task = call.operations.task(call.task_id)
    if task.result is None and task.result_ref is None:
        raise NotFound(f"task {task.task_id} is {task.status} and has no result")
    return _stored_body(call, task.result_ref, lambda: call.parts.bodies.result(task))


def _stored_body(call: Call, reference: str | None, load: Callable[[], str | None]) -> Answer:
    """A body in S3 is fetched from there: it may be larger than what Lambda can answer with."""
    url = call.parts.bodies.url(reference) if reference is not None else None
    if url is not None:
        return http.see_other(url)
    text = load()
    if text is None:
        raise BodyMissing(str(reference))
    return http.ok_text(text)


# ---- operate --------------------------------------------------------------------------------------------------------


def cancel_task(call: Call) -> Answer:
    task = call.operations.cancel(call.task_id, call.operator)
    call.log("task.cancel_accepted", task, caller=call.request.caller, status=task.status.value)
    return http.ok(call.view(task))


def redrive_task(call: Call) -> Answer:
    task = call.operations.redrive(call.task_id, call.operator, key=call.idempotency_key)
    call.log("task.redriven", task, caller=call.request.caller)
    return http.ok(call.view(task))


def acknowledge_task(call: Call) -> Answer:
    _ = call.body
    task = call.operations.acknowledge(call.task_id)
    call.log("task.acknowledged", task, caller=call.request.caller)
    return http.ok(call.view(task))


def delete_task(call: Call) -> Answer:
    task = call.operations.erase(call.task_id)
    call.log("task.erased", task, caller=call.request.caller)
    return http.no_content()


# ---- the service ----------------------------------------------------------------------------------------------------


def get_health(call: Call) -> Answer:
    settings = call.parts.settings
    version = document()["info"]["version"]
    return http.ok(
        {"status": "ok", "service": settings.service_name, "environment": settings.environment, "version": version}
    )


def get_openapi(call: Call) -> Answer:
    return http.ok_text(openapi_text())


CALLS: Mapping[str, Callable[[Call], Answer]] = {
    "POST /tasks": submit_task,
    "POST /tasks/batch": submit_tasks,
    "GET /tasks/{taskId}": get_task,
    "GET /tasks/{taskId}/payload": get_payload,
    "GET /tasks/{taskId}/result": get_result,
    "POST /tasks/{taskId}/cancel": cancel_task,
    "POST /tasks/{taskId}/redrive": redrive_task,
    "POST /tasks/{taskId}/ack": acknowledge_task,
    "DELETE /tasks/{taskId}": delete_task,
    "GET /health": get_health,
    "GET /openapi.json": get_openapi,
}
