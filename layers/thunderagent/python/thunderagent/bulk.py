"""The same operator action on many tasks, a bounded page at a time; each task decides for itself, as if asked alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from thunderagent.errors import InvalidInput, ThunderAgentError
from thunderagent.listing import Listing, Position, Selection, position_of, token_of
from thunderagent.model import Task
from thunderagent.states import Status
from thunderagent.threads import Threads

Place = tuple[Status, Position | None]
"""The status being listed, and the last key looked at in its list (None: from its start)."""


@dataclass
class BulkPage:
    """What one page came to. `failed` are tasks that changed under the page, or whose write failed; `next` is where to
    go on, None at the end."""

    matched: int = 0
    done: int = 0
    failed: list[tuple[str, ThunderAgentError]] = field(default_factory=list)
    next: Place | None = None


class Bulk:
    """Runs an action over lists of tasks."""

    def __init__(self, listing: Listing, *, threads: Threads) -> None:
        self._listing = listing
        self._threads = threads

    def run(
        self,
        action: Callable[[Task], object],
        selection: Selection,
        *,
        statuses: Sequence[Status],
        limit: int,
        start: Place | None = None,
        dry_run: bool = False,
    ) -> BulkPage:
        """Act on up to `limit` tasks, status after status, from `start` on; a dry run only counts them."""
        page = BulkPage(next=start or (statuses[0], None))
        while page.next is not None and page.matched < limit:
            status, position = page.next
            found = self._listing.page(replace(selection, status=status), limit=limit - page.matched, after=position)
            page.matched += len(found.tasks)
            if not dry_run:
                self._act(action, found.tasks, page)
            page.next = (status, found.position) if found.position is not None else _first_of(status, statuses)
            if found.position is not None:
                return page  # the list's own bound was reached: so is this call's
        return page

    def _act(self, action: Callable[[Task], object], tasks: Sequence[Task], page: BulkPage) -> None:
        def attempt(task: Task) -> ThunderAgentError | None:
            try:
                action(task)
            except ThunderAgentError as error:
                return error
            return None

        outcomes = self._threads.map(attempt, tasks)
        failed = [(str(task.task_id), error) for task, error in zip(tasks, outcomes, strict=True) if error is not None]
        page.failed += failed
        page.done += len(tasks) - len(failed)


def _first_of(status: Status, statuses: Sequence[Status]) -> Place | None:
    later = list(statuses[statuses.index(status) + 1 :])
    return (later[0], None) if later else None


# ---- where a page ended, as its reader is told ----------------------------------------------------------------------

FROM_THE_START = Position(0, "", "-")


def token_of_place(selection: Selection, place: Place) -> str:
    status, position = place
    return token_of(replace(selection, status=status), position or FROM_THE_START)


def place_of_token(token: str, selection: Selection, statuses: Sequence[Status]) -> Place:
    """The status and key a token names. Raises InvalidInput for a token of another request."""
    for status in statuses[:-1]:
        try:
            return status, position_of(token, replace(selection, status=status))
        except InvalidInput:
            continue
    position = position_of(token, replace(selection, status=statuses[-1]))
    return statuses[-1], None if position == FROM_THE_START else position
