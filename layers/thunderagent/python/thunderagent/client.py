"""ThunderClient: submit tasks, follow them, operate them, from any Python program with AWS credentials.

    client = ThunderClient("https://….execute-api.eu-central-1.amazonaws.com")
    task = client.submit("report.generate", {"region": "eu"}, delay_seconds=60)
    done = client.wait(task.task_id, timeout_seconds=300)

Every call is repeated by the client when it was throttled, failed or lost. That never makes a second task: each submit
carries an idempotency key, drawn once and sent with each repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

from thunderagent import jsontext
from thunderagent.clock import Clock, Randomness, SystemClock, SystemRandomness
from thunderagent.errors import ConfigurationError
from thunderagent.new_task import NewTask, TaskOptions, batches, with_known_refs
from thunderagent.signed_http import (
    ApiError,
    ConflictError,
    Exchange,
    NotFoundError,
    Reply,
    SignedHttp,
    Unreachable,
    bearer_exchange,
    region_of,
    sigv4_exchange,
)
from thunderagent.task_view import BatchReport, TaskPage, TaskView, WaitTimeout, batch_result, poll_pauses

if TYPE_CHECKING:
    from botocore.credentials import Credentials

    from thunderagent.async_client import AsyncThunderClient
else:

    def __getattr__(name: str) -> Any:
        """asyncio is imported by those who use it."""
        if name != "AsyncThunderClient":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from thunderagent.async_client import AsyncThunderClient

        return AsyncThunderClient


__all__ = [
    "ApiError",
    "AsyncThunderClient",
    "BatchReport",
    "ConflictError",
    "NewTask",
    "NotFoundError",
    "TaskOptions",
    "TaskPage",
    "TaskView",
    "ThunderClient",
    "Unreachable",
    "WaitTimeout",
]


class ThunderClient:
    """The API's calls as methods. Thread-safe; keep one and share it: it keeps connections open.

    Every method raises ApiError (NotFoundError, ConflictError, Unreachable) with `code` and `status`.
    """

    def __init__(
        self,
        api_url: str,
        *,
        credentials: Credentials | None = None,
        session: Any = None,
        region: str | None = None,
        bearer_token: Callable[[], str] | None = None,
        attempts: int = 6,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        """`api_url` is the stack output ApiUrl. Credentials come from `credentials`, else from `session` (botocore or
        boto3), else from the SDK's usual chain; with `bearer_token` a JWT is sent instead. Raises ConfigurationError
        when there are none, or no region."""
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._http = SignedHttp(
            api_url,
            exchange=exchange or _exchange(api_url, credentials, session, region, bearer_token),
            clock=self._clock,
            randomness=self._randomness,
            attempts=attempts,
        )

    # ---- submit ----------------------------------------------------------------------------------------------------

    def submit(
        self, type: str, payload: Any = None, *, idempotency_key: str | None = None, **options: Unpack[TaskOptions]
    ) -> TaskView:
        """Submit one task. `duplicate` is true when the API answered with one that was there before.

        Give `idempotency_key` when your own program may repeat the call, after a restart say.
        """
        body = NewTask(type, payload, options).as_body()
        key = idempotency_key or self._randomness.token()
        return self._task("POST", "/tasks", body, {"idempotency-key": key})

    def submit_many(self, tasks: Iterable[NewTask], *, idempotency_key: str | None = None) -> BatchReport:
        """Submit any number, in batches of at most 500 tasks and 2 MiB, and report on each.

        A `ref` may be used by tasks that come after it, across batches too. Raises only when a whole batch failed.
        """
        key = idempotency_key or self._randomness.token()
        results: list[TaskView | ApiError] = []
        ids_by_ref: dict[str, str] = {}
        for number, batch in enumerate(batches(tasks)):
            results.extend(self._submit_batch(batch, ids_by_ref, f"{key}-{number}"))
        return BatchReport(tuple(results))

    def _submit_batch(
        self, batch: Sequence[dict[str, Any]], ids_by_ref: dict[str, str], key: str
    ) -> list[TaskView | ApiError]:
        entries = [with_known_refs(entry, ids_by_ref) for entry in batch]
        answers = self._call("POST", "/tasks/batch", body={"tasks": entries}, headers={"idempotency-key": key})
        results = [batch_result(answer) for answer in answers["results"]]
        for entry, result in zip(batch, results, strict=True):
            if "ref" in entry and isinstance(result, TaskView):
                ids_by_ref[entry["ref"]] = result.task_id
        return results

    # ---- read ------------------------------------------------------------------------------------------------------

    def get(self, task_id: str) -> TaskView:
        return self._task("GET", _task_path(task_id))

    def payload(self, task_id: str) -> Any:
        """The payload whole, whatever its size."""
        return self._body(f"{_task_path(task_id)}/payload")

    def result(self, task_id: str) -> Any:
        """The result whole, whatever its size. Raises NotFoundError when the task has none."""
        return self._body(f"{_task_path(task_id)}/result")

    def wait(self, task_id: str, *, timeout_seconds: float | None = None) -> TaskView:
        """Look until the task has ended, at growing intervals up to 5 s. FAILED is an end too: see `succeeded`.

        Raises WaitTimeout; the task itself is not touched.
        """
        began = self._clock.monotonic()
        pauses = poll_pauses()
        while True:
            task = self.get(task_id)
            pause = next(pauses)
            if task.is_terminal:
                return task
            if timeout_seconds is not None and self._clock.monotonic() - began + pause > timeout_seconds:
                raise WaitTimeout(task, timeout_seconds)
            self._clock.sleep(pause)

    def list(
        self, status: str, *, queue: str | None = None, type: str | None = None, page_size: int = 100
    ) -> Iterator[TaskView]:
        """Every task of one status, page after page as it is asked for."""
        token: str | None = None
        while True:
            page = self.list_page(status, queue=queue, type=type, limit=page_size, next_token=token)
            yield from page.tasks
            token = page.next_token
            if token is None:
                return

    def list_page(
        self,
        status: str,
        *,
        queue: str | None = None,
        type: str | None = None,
        limit: int = 100,
        next_token: str | None = None,
    ) -> TaskPage:
        query = {"status": status, "queue": queue, "type": type, "limit": limit, "nextToken": next_token}
        answer = self._call("GET", "/tasks", query=query)
        return TaskPage(tuple(TaskView.of(task) for task in answer["tasks"]), answer.get("nextToken"))

    def why(self, task_id: str) -> Mapping[str, Any]:
        """`{"reason", "detail", "until"?}`: why the task is not running, or what it is doing."""
        return self._object("GET", f"{_task_path(task_id)}/why")

    def stats(self) -> Mapping[str, Any]:
        return self._object("GET", "/stats")

    # ---- operate ---------------------------------------------------------------------------------------------------

    def cancel(self, task_id: str, *, reason: str | None = None) -> TaskView:
        """Cancel, pending or running. Once this returns, the task cannot end otherwise."""
        return self._task("POST", f"{_task_path(task_id)}/cancel", _given(reason=reason))

    def redrive(self, task_id: str, *, cascade: bool = False, reason: str | None = None) -> TaskView:
        """Give a FAILED task a full budget again. Repeats of this call, by the client too, have one effect."""
        body = _given(cascade=cascade or None, reason=reason)
        key = {"idempotency-key": self._randomness.token()}
        return self._task("POST", f"{_task_path(task_id)}/redrive", body, key)

    def ack(self, task_id: str, *, reason: str | None = None) -> TaskView:
        """The result was collected: SUCCESS to DONE."""
        return self._task("POST", f"{_task_path(task_id)}/ack", _given(reason=reason))

    def delete(self, task_id: str) -> None:
        """Erase a terminal task with its bodies. A repeat that finds it gone after a lost answer is a success."""
        self._delete(_task_path(task_id))

    def redrive_many(self, **filters: Any) -> Mapping[str, Any]:
        """One page of a bulk redrive; filters as in the API (`queue`, `type`, `errorType`, `since`, `limit`, …)."""
        return self._object("POST", "/redrive", filters)

    def cancel_many(self, **filters: Any) -> Mapping[str, Any]:
        return self._object("POST", "/cancel", filters)

    def queues(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self._object("GET", "/queues")["queues"]
        return found

    def queue(self, name: str) -> Mapping[str, Any]:
        return self._object("GET", f"/queues/{quote(name, safe='')}")

    def set_queue(self, name: str, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Merge settings as the API spells them (`paused`, `maxConcurrency`, …); None resets one."""
        return self._object("PUT", f"/queues/{quote(name, safe='')}", settings)

    def schedules(self) -> Sequence[Mapping[str, Any]]:
        found: Sequence[Mapping[str, Any]] = self._object("GET", "/schedules")["schedules"]
        return found

    def schedule(self, name: str) -> Mapping[str, Any]:
        return self._object("GET", f"/schedules/{quote(name, safe='')}")

    def put_schedule(self, name: str, schedule: Mapping[str, Any]) -> Mapping[str, Any]:
        return self._object("PUT", f"/schedules/{quote(name, safe='')}", schedule)

    def delete_schedule(self, name: str) -> None:
        self._delete(f"/schedules/{quote(name, safe='')}")

    def run_schedule(self, name: str) -> TaskView:
        key = {"idempotency-key": self._randomness.token()}
        return self._task("POST", f"/schedules/{quote(name, safe='')}/run", None, key)

    def health(self) -> Mapping[str, Any]:
        return self._object("GET", "/health")

    # ---- below -----------------------------------------------------------------------------------------------------

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        text = b"" if body is None else jsontext.dumps(body, max_depth=jsontext.MAX_BODY_DEPTH).encode()
        return self._http.call(method, path, query=query, body=text, headers=headers)

    def _call(self, method: str, path: str, **parts: Any) -> Any:
        return self._send(method, path, **parts).json()

    def _object(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self._call(method, path, body=None if body is None else dict(body))
        return answer

    def _task(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> TaskView:
        return TaskView.of(self._call(method, path, body=body, headers=headers))

    def _body(self, path: str) -> Any:
        reply = self._send("GET", path)
        if reply.status == 303:
            return replace(reply, content=self._http.fetch(reply.headers["location"])).json()
        return reply.json()

    def _delete(self, path: str) -> None:
        try:
            self._send("DELETE", path)
        except NotFoundError as error:
            if error.attempts == 1:
                raise


def _exchange(
    api_url: str,
    credentials: Credentials | None,
    session: Any,
    region: str | None,
    bearer_token: Callable[[], str] | None,
) -> Exchange:
    if bearer_token is not None:
        return bearer_exchange(bearer_token)
    if session is None and (credentials is None or (region or region_of(api_url)) is None):
        from botocore.session import get_session

        session = get_session()
    found = credentials or session.get_credentials()
    if found is None:
        raise ConfigurationError("there are no AWS credentials: give credentials or a session, or set up a profile")
    signing_region = region or region_of(api_url) or _region_of_session(session)
    if not signing_region:
        raise ConfigurationError("there is no region: give region=, or set AWS_REGION")
    return sigv4_exchange(found, signing_region)


def _region_of_session(session: Any) -> str | None:
    """boto3 sessions have `region_name`, botocore sessions a configuration variable."""
    region: str | None = getattr(session, "region_name", None) or session.get_config_variable("region")
    return region


def _given(**fields: Any) -> dict[str, Any] | None:
    return {name: value for name, value in fields.items() if value is not None} or None


def _task_path(task_id: str) -> str:
    return f"/tasks/{quote(task_id, safe=':')}"
