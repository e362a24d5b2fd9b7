"""ThunderClient for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from thunderagent.new_task import NewTask, TaskOptions
from thunderagent.task_view import BatchReport, TaskView, WaitTimeout, poll_pauses

if TYPE_CHECKING:
    from thunderagent.client import ThunderClient


class AsyncThunderClient:
    """The same calls for asyncio: each runs in a thread, waiting between looks does not.

    client = AsyncThunderClient(ThunderClient(api_url))
    task = await client.submit("report.generate", {"region": "eu"})
    """

    def __init__(self, client: ThunderClient) -> None:
        self.client = client

    async def submit(
        self, type: str, payload: Any = None, *, idempotency_key: str | None = None, **options: Unpack[TaskOptions]
    ) -> TaskView:
        return await asyncio.to_thread(self.client.submit, type, payload, idempotency_key=idempotency_key, **options)

    async def submit_many(self, tasks: Iterable[NewTask], *, idempotency_key: str | None = None) -> BatchReport:
        return await asyncio.to_thread(self.client.submit_many, tasks, idempotency_key=idempotency_key)

    async def get(self, task_id: str) -> TaskView:
        return await asyncio.to_thread(self.client.get, task_id)

    async def payload(self, task_id: str) -> Any:
        return await asyncio.to_thread(self.client.payload, task_id)

    async def result(self, task_id: str) -> Any:
        return await asyncio.to_thread(self.client.result, task_id)

    async def wait(self, task_id: str, *, timeout_seconds: float | None = None) -> TaskView:
        """As ThunderClient.wait; no thread is held between two looks."""
        began = asyncio.get_running_loop().time()
        for pause in poll_pauses():
            task = await self.get(task_id)
            if task.is_terminal:
                return task
            if timeout_seconds is not None and asyncio.get_running_loop().time() - began + pause > timeout_seconds:
                raise WaitTimeout(task, timeout_seconds)
            await asyncio.sleep(pause)
        raise AssertionError("the pauses never end")

    async def list(
        self, status: str, *, queue: str | None = None, type: str | None = None, page_size: int = 100
    ) -> AsyncIterator[TaskView]:
        token: str | None = None
        while True:
            page = await asyncio.to_thread(
                self.client.list_page, status, queue=queue, type=type, limit=page_size, next_token=token
            )
            for task in page.tasks:
                yield task
            token = page.next_token
            if token is None:
                return

    async def why(self, task_id: str) -> Mapping[str, Any]:
        return await asyncio.to_thread(self.client.why, task_id)

    async def stats(self) -> Mapping[str, Any]:
        return await asyncio.to_thread(self.client.stats)

    async def cancel(self, task_id: str, *, reason: str | None = None) -> TaskView:
        return await asyncio.to_thread(self.client.cancel, task_id, reason=reason)

    async def redrive(self, task_id: str, *, cascade: bool = False, reason: str | None = None) -> TaskView:
        return await asyncio.to_thread(self.client.redrive, task_id, cascade=cascade, reason=reason)

    async def ack(self, task_id: str, *, reason: str | None = None) -> TaskView:
        return await asyncio.to_thread(self.client.ack, task_id, reason=reason)

    async def delete(self, task_id: str) -> None:
        await asyncio.to_thread(self.client.delete, task_id)
