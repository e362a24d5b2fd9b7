"""One minute of the reaper function: taking back first, then counting, auditing and reading what was not delivered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from typing import Any

from thunderagent.audit import Auditor
from thunderagent.census import Census
from thunderagent.errors import StoreError
from thunderagent.listing import Listing
from thunderagent.seams import deferred
from thunderagent.transport import BotoQueue, boto_client
from thunderagent.undelivered import Queue, Undelivered
from thunderagent.wiring import Parts


class Upkeep:
    """Everything the reaper function does, over the given parts. `undelivered` is its seam to SQS; None: not read."""

    def __init__(self, parts: Parts, *, undelivered: Queue | None) -> None:
        self.parts = parts
        self._undelivered = undelivered

    @cached_property
    def census(self) -> Census:
        own = self.parts
        listing = Listing(own.store, own.queues, own.registry, own.settings, threads=own.seams.threads)
        return Census(own.store, listing, threads=own.seams.threads)

    @cached_property
    def auditor(self) -> Auditor:
        own = self.parts
        return Auditor(own.store, grace_seconds=own.settings.lease_grace_seconds, observer=own.telemetry)

    def run(self) -> dict[str, Any]:
        """One minute. Says what was taken back and whether all went well: only then is it a sign of life.

        A part whose store fails is told of and does not stop the others; any other error ends the run when the others
        are done.
        """
        taken = asdict(self.parts.reaper.run())
        defects: list[Exception] = []
        results = [self._part(name, part, defects) for name, part in self._others()]
        if defects:
            raise defects[0]
        well = all(results) and not self.parts.reaper.refused
        if well:
            self.parts.telemetry.measure("ReaperHeartbeat")
        return {**taken, "well": well}

    def _others(self) -> list[tuple[str, Callable[[], Any]]]:
        own = self.parts
        others: list[tuple[str, Callable[[], Any]]] = [
            ("census", lambda: self.census.publish(list(own.queues.all().values()), observer=own.telemetry)),
            ("audit", lambda: self.auditor.step()),
        ]
        if self._undelivered is not None:
            others.append(("undelivered", Undelivered(self._undelivered, observer=own.telemetry).read))
        return others

    def _part(self, name: str, part: Callable[[], Any], defects: list[Exception]) -> bool:
        try:
            part()
        except StoreError as error:
            code, operation = error.code, error.operation
        except Exception as error:  # noqa: BLE001  # a defect in one part must not keep the others from their work
            defects.append(error)
            code, operation = type(error).__name__, None
        else:
            return True
        self.parts.telemetry.log("reaper.part_failed", level="ERROR", part=name, operation=operation, code=code)
        return False


def upkeep_of(parts: Parts) -> Upkeep:
    """The upkeep of a deployed function, over AWS."""
    settings = parts.settings
    url, region = settings.undelivered_queue_url, settings.region
    queue = deferred(lambda: BotoQueue(boto_client("sqs", region=region), str(url)))
    return Upkeep(parts, undelivered=queue if url else None)
