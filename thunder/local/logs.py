"""The log groups of the deployed functions, as one stream of lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from thunder.local.aws import client

FOLLOW_SECONDS = 1.0


@dataclass(frozen=True)
class LogLine:
    """One line, equal to itself when it is read again: the embedded AWS gives events no ids."""

    at_milliseconds: int
    group: str
    stream: str
    message: str

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.at_milliseconds / 1000, UTC)
        return (
            f"{at:%H:%M:%S}.{self.at_milliseconds % 1000:03d} {self.group.rpartition('/')[2]} {self.message.rstrip()}"
        )


class FunctionLogs:
    """The lines of all log groups whose name contains `named`."""

    def __init__(self, endpoint: str, *, named: str = "") -> None:
        self._logs: Any = client("logs", endpoint)
        self._named = named.lower()

    def newest(self, count: int) -> list[LogLine]:
        """The last lines of all groups together, oldest first."""
        return self._since(0)[-count:] if count > 0 else []

    def follow(self, count: int) -> Iterator[LogLine]:
        """The newest lines, then every further one as it comes; never ends by itself.

        Reads back over the last moment each time, since lines of one millisecond need not arrive together.
        """
        lines = self._since(0)
        yield from lines[-count:] if count > 0 else []
        while True:
            seen = set(lines)
            newest = max((line.at_milliseconds for line in lines), default=0)
            time.sleep(FOLLOW_SECONDS)
            lines = self._since(max(0, newest - 5_000))
            yield from (line for line in lines if line not in seen)

    def _since(self, milliseconds: int) -> list[LogLine]:
        lines = [line for group in self._groups() for line in self._lines(group, milliseconds)]
        return sorted(lines, key=lambda line: line.at_milliseconds)

    def _groups(self) -> list[str]:
        pages = self._logs.get_paginator("describe_log_groups").paginate()
        names = [group["logGroupName"] for page in pages for group in page["logGroups"]]
        return [name for name in names if self._named in name.lower()]

    def _lines(self, group: str, since: int) -> Iterator[LogLine]:
        pages = self._logs.get_paginator("filter_log_events").paginate(logGroupName=group, startTime=since)
        for page in pages:
            for event in page["events"]:
                yield LogLine(event["timestamp"], group, event["logStreamName"], event["message"])
