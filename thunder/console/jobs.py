"""Actions on all tasks that match a filter: page after page in a thread of the console, watched and stopped by page.

The API does the work of a page; a job only asks for the next one. It ends with the console, and then what was done is
done: each page stands for itself.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from thunderagent.signed_http import ApiError

PAGE: Final = 100  # an operator's page on the API's side stays far below API Gateway's 30 seconds
JOBS_KEPT: Final = 30
FAILURES_KEPT: Final = 100
PREVIEW_PAGE: Final = 1000

BulkCall = Callable[..., Mapping[str, Any]]
"""`ThunderClient.redrive_many` or `cancel_many`."""


@dataclass(frozen=True)
class Preview:
    """How many tasks match; `at_least` when counting was cut short."""

    matched: int
    at_least: bool


def preview(call: BulkCall, filters: Mapping[str, Any], *, until: Callable[[], bool]) -> Preview:
    """Count with dry runs, page after page, until the end or until `until` says that it has taken long enough."""
    matched = 0
    for answer in _pages(call, {**filters, "dryRun": True, "limit": PREVIEW_PAGE}, None):
        matched += int(answer["matched"])
        if "nextToken" in answer and until():
            return Preview(matched, at_least=True)
    return Preview(matched, at_least=False)


def _pages(call: BulkCall, filters: Mapping[str, Any], token: str | None) -> Iterator[Mapping[str, Any]]:
    while True:
        answer = call(**filters, **({"nextToken": token} if token else {}))
        yield answer
        token = answer.get("nextToken")
        if token is None:
            return


@dataclass
class Job:
    """One bulk action. Only its own thread changes the counts; `stop` may be called by anybody."""

    id: str
    action: str
    call: BulkCall
    filters: Mapping[str, Any]
    reason: str
    expected: Preview
    state: str = "running"
    """running, finished, stopped, or broken (the API refused a page; `problem` says what)."""
    matched: int = 0
    done: int = 0
    refused: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    problem: ApiError | None = None
    _token: str | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    @property
    def fraction(self) -> float | None:
        """How far it is; None when nobody knows how much there is."""
        if self.state == "finished":
            return 1.0
        if self.expected.at_least or not self.expected.matched:
            return None
        return min(1.0, self.matched / self.expected.matched)

    def stop(self) -> None:
        """After the page that is under way."""
        self._stop.set()

    def run(self) -> None:
        self._stop.clear()
        self.state, self.problem = "running", None
        asked = {**self.filters, "reason": self.reason, "limit": PAGE}
        try:
            for answer in _pages(self.call, asked, self._token):
                self._take(answer)
                if self._token is not None and self._stop.is_set():
                    self.state = "stopped"
                    return
            self.state = "finished"
        except ApiError as error:
            self.state, self.problem = "broken", error

    def _take(self, answer: Mapping[str, Any]) -> None:
        self.matched += int(answer["matched"])
        self.done += int(answer["done"])
        self.refused += len(answer["failed"])
        room = FAILURES_KEPT - len(self.failures)
        self.failures += [(str(each["taskId"]), str(each["error"]["message"])) for each in answer["failed"][:room]]
        self._token = answer.get("nextToken")


class Jobs:
    """The jobs of this run, the newest last. `start` runs a job; by default in a thread that ends with the console."""

    def __init__(self, start: Callable[[Callable[[], None]], object] | None = None) -> None:
        self._start = start or _in_a_thread
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def begin(self, action: str, call: BulkCall, filters: Mapping[str, Any], *, reason: str, expected: Preview) -> Job:
        job = Job(secrets.token_hex(6), action, call, dict(filters), reason, expected)
        with self._lock:
            self._jobs[job.id] = job
            for old in [each for each in self._jobs.values() if not each.is_running][: len(self._jobs) - JOBS_KEPT]:
                del self._jobs[old.id]
        self._start(job.run)
        return job

    def go_on(self, job: Job) -> None:
        """From the page where it was stopped or refused."""
        with self._lock:
            if job.state not in ("stopped", "broken"):
                return
            job.state = "running"
        self._start(job.run)

    def find(self, id: str) -> Job | None:
        return self._jobs.get(id)

    def under_way(self) -> list[Job]:
        return [job for job in list(self._jobs.values()) if job.is_running]


def _in_a_thread(run: Callable[[], None]) -> None:
    threading.Thread(target=run, name="bulk", daemon=True).start()
