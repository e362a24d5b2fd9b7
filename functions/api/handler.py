"""The API: one function per call of the OpenAPI document, each of which decodes, calls one use case and answers.

What only some calls need is imported by those: most cold starts are for a submit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

from thunderagent import http
from thunderagent.charges import API_REQUESTS
from thunderagent.errors import BodyMissing, ConfigurationError, InvalidInput, NotFound, StoreError, place_of
from thunderagent.http import Answer, Request
from thunderagent.intake import Entry, submission_of, submit_batch
from thunderagent.model import Task
from thunderagent.operations import Operations, Operator
from thunderagent.service import Service
from thunderagent.states import Status
from thunderagent.submit import Submission, Submitted
from thunderagent.telemetry import Telemetry, ids_of
from thunderagent.traces import traceparent_of
from thunderagent.validation import DOCUMENT_PATH, Operation, check_body, check_parameters, operations
from thunderagent.version import VERSION
from thunderagent.views import queue_view, task_in_list
from thunderagent.wiring import Parts, parts_from_environment

READ_BODIES = "thunder/read-payload"
BULK_LIMIT = 100


@cache
def service() -> Service:
    return Service(parts_from_environment(threads=16))


@cache
def openapi_text() -> str:
    return DOCUMENT_PATH.read_text("utf-8")


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """One HTTP call. Every outcome is an answer in the contract's form; only our own defects are 500."""
    request_id = http.request_id_of(event) or str(getattr(context, "aws_request_id", ""))
    try:
        return http.encode(answer_of(http.decode(event)), request_id)
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
    _check_scopes(request, operation)
    given = {"path": request.path_parameters, "query": request.query, "header": request.headers}
    parameters = check_parameters(operation, given)
    own = service()
    own.parts.begin()
    own.parts.charges.count(API_REQUESTS)
    try:
        return call(Call(own, request, operation, parameters))
    finally:
        own.parts.flush()


def _check_scopes(request: Request, operation: Operation) -> None:
    """A second look at what the gateway has judged by the route: a token is not enough where it was let through."""
    if request.scopes is not None and request.scopes.isdisjoint(operation.scopes):
        raise http.Forbidden(f"the token has none of the scopes {', '.join(operation.scopes)}")


def _log_failure(error: Exception, answer: Answer, event: Mapping[str, Any], request_id: str) -> None:
    """Not the error's text, except of a setting: what it could not work on may stand in it."""
    if answer.status < 500:
        return
    fields = {"requestId": request_id, "route": str(event.get("routeKey")), "status": answer.status}
    level = "ERROR" if answer.status == 500 else "WARNING"
    problem = {"errorType": type(error).__name__, "where": place_of(error)}
    if isinstance(error, StoreError):
        problem |= {"operation": error.operation, "code": error.code}
    if isinstance(error, ConfigurationError):
        problem["message"] = str(error)
    _telemetry().log("api.failed", level=level, **fields, **problem)


def _telemetry() -> Telemetry:
    """Also when what failed is the configuration itself."""
    try:
        return service().parts.telemetry
    except ConfigurationError:
        return Telemetry(service="ThunderAgent")


@dataclass(frozen=True)
class Call:
    """One request on its way: what it asks, checked against the document, and the parts that serve it."""

    service: Service
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

    def refuse_body(self) -> None:
        """For a call that has none. An empty object says nothing either; a field would be passed over unheard."""
        value = self.request.json()
        if value is not None and value != {}:
            raise InvalidInput("this call takes no body")

    @property
    def operator(self) -> Operator:
        return Operator(self.request.caller, self.body.get("reason") if self.operation.body else None)

    @property
    def parts(self) -> Parts:
        return self.service.parts

    @property
    def operations(self) -> Operations:
        return self.service.operations

    def view(self, task: Task) -> dict[str, Any]:
        """The task whole; without bodies for a token that may not read them."""
        scopes = self.request.scopes
        return self.service.view(task, with_bodies=scopes is None or READ_BODIES in scopes)

    def log(self, event: str, task: Task, **fields: Any) -> None:
        self.parts.telemetry.log(event, **ids_of(task), **fields)

    def log_operator(self, event: str, **fields: Any) -> None:
        reason = self.body.get("reason") if self.operation.body else None
        self.parts.telemetry.log(event, caller=self.request.caller, reason=reason, **fields)

    def submit(self, submission: Submission, *, key: str | None, body: Any) -> Submitted:
        """Accept a task of the caller's trace, and tell of it when it is new. Raises like the service."""
        traced = replace(submission, traceparent=traceparent_of(self.parameters["traceparent"]))
        submitted = self.service.submit(traced, key=key, body=body)
        self.submitted(submitted)
        return submitted

    def submitted(self, submitted: Submitted) -> None:
        """Tell of a task that is new; one that was there before is no state change."""
        if not submitted.duplicate:
            self.log("task.submitted", submitted.task)
            self.parts.telemetry.measure("Submitted", queue=submitted.task.queue)


# ---- submit ---------------------------------------------------------------------------------------------------------


def submit_task(call: Call) -> Answer:
    submitted = call.submit(submission_of(call.body), key=call.idempotency_key, body=call.body)
    # The caller has just sent the payload: no scope is needed to see it again, unless it is another task's.
    return _submitted_answer(call, submitted, call.service.view)


def _submitted_answer(call: Call, submitted: Submitted, view: Callable[[Task], dict[str, Any]]) -> Answer:
    if submitted.duplicate:
        return http.ok(call.view(submitted.task) | {"duplicate": True})
    location = f"{call.request.base_path}/tasks/{submitted.task.task_id}"
    return http.created(view(submitted.task), location=location)


def submit_tasks(call: Call) -> Answer:
    key = call.idempotency_key

    def submit(entry: Entry) -> Submitted:
        # NUL can stand in no header: no single submit's key is ever equal to an entry's.
        entry_key = None if key is None else f"{key}\0{entry.index}"
        return call.submit(entry.submission, key=entry_key, body=entry.body)

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


def list_tasks(call: Call) -> Answer:
    from thunderagent.listing import Selection, position_of, token_of

    given = call.parameters
    selection = Selection(Status(given["status"]), queue=given["queue"], type=given["type"])
    token = given["nextToken"]
    after = None if token is None else position_of(token, selection)
    page = call.service.listing.page(selection, limit=given["limit"], after=after)
    answer: dict[str, Any] = {"tasks": [task_in_list(task) for task in page.tasks]}
    if page.position is not None:
        answer["nextToken"] = token_of(selection, page.position)
    return http.ok(answer)


def why_task(call: Call) -> Answer:
    return http.ok(call.service.why(call.operations.task(call.task_id)).as_answer())


# ---- operate --------------------------------------------------------------------------------------------------------


def cancel_task(call: Call) -> Answer:
    task = call.operations.cancel(call.task_id, call.operator)
    call.log("task.cancel_accepted", task, caller=call.request.caller, status=task.status.value)
    return http.ok(call.view(task))


def redrive_task(call: Call) -> Answer:
    cascade = call.body.get("cascade", False)
    task = call.operations.redrive(call.task_id, call.operator, key=call.idempotency_key, cascade=cascade)
    call.log("task.redriven", task, caller=call.request.caller)
    return http.ok(call.view(task))


def acknowledge_task(call: Call) -> Answer:
    operator = call.operator
    task = call.operations.acknowledge(call.task_id)
    call.log("task.acknowledged", task, caller=operator.caller, reason=operator.reason)
    return http.ok(call.view(task))


def delete_task(call: Call) -> Answer:
    task = call.operations.erase(call.task_id)
    call.log("task.erased", task, caller=call.request.caller)
    return http.no_content()


# ---- operate on many ------------------------------------------------------------------------------------------------


def redrive_tasks(call: Call) -> Answer:
    key = call.idempotency_key or call.request.request_id

    def redrive(task: Task) -> None:
        call.operations.redrive(str(task.task_id), call.operator, key=key)

    return _bulk(call, "tasks.redriven", redrive, (Status.FAILED,))


def cancel_tasks(call: Call) -> Answer:
    def cancel(task: Task) -> None:
        call.operations.cancel(str(task.task_id), call.operator)

    return _bulk(call, "tasks.cancel_accepted", cancel, (Status.PENDING, Status.RUNNING))


def _bulk(call: Call, event: str, action: Callable[[Task], None], statuses: tuple[Status, ...]) -> Answer:
    from thunderagent.bulk import place_of_token, token_of_place
    from thunderagent.listing import Selection

    body = call.body
    selection = Selection(
        statuses[0], body.get("queue"), body.get("type"), error_type=body.get("errorType"), since=body.get("since")
    )
    start = place_of_token(body["nextToken"], selection, statuses) if "nextToken" in body else None
    dry_run = body.get("dryRun", False)
    page = call.service.bulk.run(
        action, selection, statuses=statuses, limit=body.get("limit", BULK_LIMIT), start=start, dry_run=dry_run
    )
    if page.done:
        call.log_operator(event, done=page.done, failed=len(page.failed), queue=selection.queue)
    failed = [{"taskId": task_id, "error": http.detail_of(error)} for task_id, error in page.failed]
    answer: dict[str, Any] = {"matched": page.matched, "done": page.done, "failed": failed}
    if page.next is not None:
        answer["nextToken"] = token_of_place(selection, page.next)
    return http.ok(answer)


# ---- queues ---------------------------------------------------------------------------------------------------------


def list_queues(call: Call) -> Answer:
    queues = sorted(call.parts.queues.all(fresh=True).values(), key=lambda queue: queue.name)
    figures = call.service.census.take(queues)
    return http.ok({"queues": [queue_view(queue, figures[queue.name]) for queue in queues]})


def get_queue(call: Call) -> Answer:
    name = call.parameters["queue"]
    queue = call.parts.queues.all(fresh=True).get(name)
    if queue is None:
        raise NotFound(f"queue {name!r} is not declared")
    return http.ok(queue_view(queue, call.service.census.take([queue])[name]))


def put_queue(call: Call) -> Answer:
    changes = {name: value for name, value in call.body.items() if name != "reason"}
    entry = call.operator.entry("put_queue", call.parts.seams.clock.now())
    queue = call.parts.queues.put(call.parameters["queue"], changes, operator=entry)
    call.log_operator("queue.changed", queue=queue.name, settings=sorted(changes))
    return http.ok(queue_view(queue))  # no figures: to pause a queue must be quick, however it stands


def get_stats(call: Call) -> Answer:
    from thunderagent.census import totals

    queues = sorted(call.parts.queues.all(fresh=True).values(), key=lambda queue: queue.name)
    figures = call.service.census.take(queues)
    views = [queue_view(queue, figures[queue.name]) for queue in queues]
    return http.ok({"queues": views, "totals": totals(figures.values())})


# ---- schedules ------------------------------------------------------------------------------------------------------


def list_schedules(call: Call) -> Answer:
    return http.ok({"schedules": [schedule.view() for schedule in call.parts.schedules.all()]})


def get_schedule(call: Call) -> Answer:
    return http.ok(call.parts.schedules.get(call.parameters["name"]).view())


def put_schedule(call: Call) -> Answer:
    name = call.parameters["name"]
    schedule, is_new = call.parts.schedules.put(name, call.body)
    call.log_operator("schedule.put", schedule=name)
    location = f"{call.request.base_path}/schedules/{name}"
    return http.created(schedule.view(), location=location) if is_new else http.ok(schedule.view())


def delete_schedule(call: Call) -> Answer:
    call.parts.schedules.delete(call.parameters["name"])
    call.log_operator("schedule.deleted", schedule=call.parameters["name"])
    return http.no_content()


def run_schedule(call: Call) -> Answer:
    call.refuse_body()
    name = call.parameters["name"]
    # As with a batch's entries, no single submit's key is ever equal to this one.
    key = None if call.idempotency_key is None else f"{call.idempotency_key}\0{name}"
    submitted = call.parts.schedules.run(name, key=key)
    call.submitted(submitted)
    return _submitted_answer(call, submitted, call.view)


# ---- the service ----------------------------------------------------------------------------------------------------


def get_health(call: Call) -> Answer:
    settings = call.parts.settings
    return http.ok(
        {"status": "ok", "service": settings.service_name, "environment": settings.environment, "version": VERSION}
    )


def get_openapi(call: Call) -> Answer:
    return http.ok_text(openapi_text())


CALLS: Mapping[str, Callable[[Call], Answer]] = {
    "POST /tasks": submit_task,
    "POST /tasks/batch": submit_tasks,
    "GET /tasks": list_tasks,
    "GET /tasks/{taskId}": get_task,
    "GET /tasks/{taskId}/payload": get_payload,
    "GET /tasks/{taskId}/result": get_result,
    "GET /tasks/{taskId}/why": why_task,
    "POST /tasks/{taskId}/cancel": cancel_task,
    "POST /tasks/{taskId}/redrive": redrive_task,
    "POST /tasks/{taskId}/ack": acknowledge_task,
    "DELETE /tasks/{taskId}": delete_task,
    "POST /redrive": redrive_tasks,
    "POST /cancel": cancel_tasks,
    "GET /queues": list_queues,
    "GET /queues/{queue}": get_queue,
    "PUT /queues/{queue}": put_queue,
    "GET /stats": get_stats,
    "GET /schedules": list_schedules,
    "GET /schedules/{name}": get_schedule,
    "PUT /schedules/{name}": put_schedule,
    "DELETE /schedules/{name}": delete_schedule,
    "POST /schedules/{name}/run": run_schedule,
    "GET /health": get_health,
    "GET /openapi.json": get_openapi,
}
