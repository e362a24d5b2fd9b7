"""What one poller remembers between its looks: entries of the index that need no second look for a while."""

from __future__ import annotations

from thunderagent.clock import Clock


class InFlight:
    """Entries by task id and due time, each until a given instant. Another due time is another entry: it is news."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, tuple[float, float]] = {}

    def note(self, task_id: str, due_at: float, *, until: float) -> None:
        """Not before `until` is this entry worth a look: it is claimed, or stale, or waits for something."""
        self._until[task_id] = (due_at, until)

    def has(self, task_id: str, due_at: float) -> bool:
        known = self._until.get(task_id)
        return known is not None and known[0] == due_at and known[1] > self._clock.now()

    def forget(self) -> None:
        """Nothing is remembered past its instant: from then on it may be somebody's to take back."""
        now = self._clock.now()
        self._until = {task_id: entry for task_id, entry in self._until.items() if entry[1] > now}
