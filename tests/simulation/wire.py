"""Requests on their way to the table and back: how long they take, and what goes wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tests.simulation.kernel import Died, Process
from tests.simulation.rules import Watch
from tests.simulation.weather import LEASE_SECONDS
from thunderagent.errors import (
    ConditionFailed,
    OutcomeUnknown,
    StoreRefused,
    StoreThrottled,
    TransactionCancelled,
)
from thunderagent.store import Send

if TYPE_CHECKING:
    from tests.simulation.cloud import Cloud
    from tests.simulation.weather import Weather

READ_TIMEOUT_SECONDS = 2.0
LATEST_REQUEST_SECONDS = 12.0  # a request given up by its sender is applied no later than this
FAULTS = (
    "throttled",
    "conflict",
    "lost_request",
    "lost_reply",
    "late_request",
    "slow",
    "crash_before",
    "crash_after",
    "freeze",
    "outage",
)
READS = frozenset({"GetItem", "BatchGetItem", "Query", "Scan"})
READ_WEIGHT, WRITE_WEIGHT = 0.5, 3.0
FREEZES = (1.0, 5.0, 15.0, LEASE_SECONDS + 5, LEASE_SECONDS + 20, 3 * LEASE_SECONDS)
MOST_CHANGES = 4  # by others, for which a frozen process or a late request may wait
TRANSPORT_ERRORS = (ConditionFailed, TransactionCancelled, StoreRefused, StoreThrottled, OutcomeUnknown)


class Wire:
    """Between every process and the table."""

    def __init__(self, cloud: Cloud) -> None:
        self._rules = cloud.rules
        self._table = cloud.table
        self._kernel = cloud.kernel
        self.storm_until = 0.0  # the table is throttled
        self._weather = cloud.weather
        self._thresholds: list[tuple[float, str]] = []

    def change_weather(self, weather: Weather) -> None:
        self._weather = weather
        chances = {
            **{name: getattr(weather, name) for name in FAULTS if hasattr(weather, name)},
            "crash_before": weather.crash / 2,
            "crash_after": weather.crash / 2,
        }
        total, self._thresholds = 0.0, []
        for name in FAULTS:
            total += chances[name]
            if chances[name]:
                self._thresholds.append((total, name))

    def _fault(self, operation: str) -> str | None:
        drawn = self._kernel.random.random() / (READ_WEIGHT if operation in READS else WRITE_WEIGHT)
        if drawn >= self._thresholds[-1][0]:
            return None
        return next(name for limit, name in self._thresholds if drawn < limit)

    def journey(self) -> float:
        """Seconds, one way."""
        return 0.001 + self._kernel.random.random() * 0.006

    def travel(self, operation: str) -> None:
        """A call to another service than the table."""
        self._kernel.pause(self.journey())
        fault = self._fault(operation) if self._thresholds else None
        if fault in {"throttled", "lost_request"}:
            self._kernel.current.process.touch()
            raise OutcomeUnknown(operation, "ConnectionError", "no answer")

    def transport(self, process: Process) -> Send:
        kernel = self._kernel

        def send(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            if process.is_dead:
                raise Died
            fault = self._fault(operation) if self._thresholds else None
            if kernel.now < process.cut_until:
                fault = "lost_request" if kernel.random.random() < 0.5 else "lost_reply"
            if fault is None and kernel.now >= self.storm_until:
                kernel.pause(self.journey())
                answer = self._apply(process, operation, arguments)
                kernel.pause(self.journey())
                return answer
            return self._send_badly(process, operation, arguments, fault or "throttled")

        return send

    def _apply(self, process: Process, operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The request takes effect at this instant; a refusal travels back like any answer."""
        self._rules.doer = process
        try:
            answer = self._table.execute(operation, arguments)
        except (ConditionFailed, TransactionCancelled) as refused:
            self._kernel.note(f"{process.name}: {operation} {_ids(operation, arguments)} refused")
            refusal: Exception = refused
        else:
            self._rules.after_step()
            if self._weather.unprocessed and operation == "BatchGetItem":
                return self._unprocessed(answer, arguments)
            return answer
        finally:
            self._rules.doer = None
        self._kernel.pause(self.journey())
        raise refusal

    def _unprocessed(self, answer: Mapping[str, Any], arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        ((table, request),) = arguments["RequestItems"].items()
        chance, weather = self._kernel.random, self._weather
        left = [key for key in request["Keys"] if chance.random() < weather.unprocessed]
        if not left:
            return answer
        names = {key["taskId"]["S"] for key in left}
        kept = [raw for raw in answer["Responses"][table] if raw["taskId"]["S"] not in names]
        return {"Responses": {table: kept}, "UnprocessedKeys": {table: {**request, "Keys": left}}}

    def _send_badly(
        self, process: Process, operation: str, arguments: Mapping[str, Any], fault: str
    ) -> Mapping[str, Any]:
        kernel, chance = self._kernel, self._kernel.random
        kernel.note(f"{process.name}: {operation} {_ids(operation, arguments)} meets {fault}")
        kernel.faults[fault] += 1
        process.touch()
        kernel.pause(self.journey() if fault != "slow" else chance.random() * 4)
        match fault:
            case "throttled":
                raise StoreThrottled(operation, "ThrottlingException")
            case "conflict":
                raise _conflict(operation, arguments)
            case "lost_request":
                kernel.pause(chance.random() * READ_TIMEOUT_SECONDS)
                raise OutcomeUnknown(operation, "ReadTimeoutError", "the request was lost")
            case "late_request":
                self._send_late(process, operation, arguments)
                kernel.pause(chance.random() * READ_TIMEOUT_SECONDS)
                raise OutcomeUnknown(operation, "ReadTimeoutError", "the request is late")
            case "crash_before":
                kernel.kill(process, f"before {operation} {_ids(operation, arguments)}")
                raise Died
            case "freeze":
                kernel.freeze(process, self._freeze_seconds(process, operation, arguments))
                kernel.pause(0)
            case "outage":
                process.cut_until = kernel.now + chance.random() * 1.5 * LEASE_SECONDS
                process.touched_at = max(process.touched_at, process.cut_until)
                raise OutcomeUnknown(operation, "ConnectionError", "the table is out of reach")
        try:
            answer = self._apply(process, operation, arguments)
        except TRANSPORT_ERRORS:
            if fault != "lost_reply":
                raise
            answer = {}
        if fault == "crash_after":
            kernel.kill(process, f"after {operation} {_ids(operation, arguments)}")
            raise Died
        if fault == "lost_reply":
            kernel.pause(chance.random() * READ_TIMEOUT_SECONDS)
            raise OutcomeUnknown(operation, "ReadTimeoutError", "the answer was lost")
        kernel.pause(self.journey() if fault != "slow" else chance.random() * 4)
        return answer

    def _freeze_seconds(self, process: Process, operation: str, arguments: Mapping[str, Any]) -> float:
        """A pause at the worst moment: until others have changed what this request is about, once or a few times."""
        chance = self._kernel.random
        if operation in READS or chance.random() < 0.3:
            return chance.choice(FREEZES)

        def thaw() -> None:
            self._kernel.after(chance.random() ** 4 * 0.5, lambda: self._kernel.thaw(process))

        self._watch(process, operation, arguments, thaw)
        return 5 * LEASE_SECONDS

    def _send_late(self, process: Process, operation: str, arguments: Mapping[str, Any]) -> None:
        sent: list[bool] = []

        def arrive() -> None:
            if not sent:
                sent.append(True)
                self._late(process, operation, arguments)

        seconds = self._kernel.random.random() * LATEST_REQUEST_SECONDS
        if operation not in READS and self._kernel.random.random() < 0.7:
            self._watch(process, operation, arguments, lambda: self._kernel.after(0.001, arrive))
            seconds = LATEST_REQUEST_SECONDS
        self._kernel.after(seconds, arrive)

    def _watch(self, process: Process, operation: str, arguments: Mapping[str, Any], then: Callable[[], None]) -> None:
        item_id = _ids(operation, arguments).split(" ")[0]
        left = 1 + int(self._kernel.random.random() ** 2 * MOST_CHANGES)
        self._rules.watches[item_id].append(Watch(process, left, then))

    def _late(self, process: Process, operation: str, arguments: Mapping[str, Any]) -> None:
        self._kernel.note(f"{process.name}: {operation} {_ids(operation, arguments)} arrives late")
        self._rules.doer = process
        try:
            self._table.execute(operation, arguments)
            self._rules.after_step()
        except TRANSPORT_ERRORS:
            self._kernel.note(f"{process.name}: the late {operation} is refused")
        finally:
            self._rules.doer = None


def _conflict(operation: str, arguments: Mapping[str, Any]) -> Exception:
    if operation == "TransactWriteItems":
        return TransactionCancelled(operation, [("TransactionConflict", None) for _ in arguments["TransactItems"]])
    if operation in {"Query", "Scan", "GetItem", "BatchGetItem"}:
        return StoreThrottled(operation, "ThrottlingException")
    return StoreRefused(operation, "TransactionConflictException")


def _ids(operation: str, arguments: Mapping[str, Any]) -> str:
    if operation == "Query":
        return str(arguments["ExpressionAttributeValues"][":k"]["S"])
    if operation == "BatchGetItem":
        ((_, request),) = arguments["RequestItems"].items()
        return " ".join(key["taskId"]["S"] for key in request["Keys"][:5])
    if operation == "TransactWriteItems":
        return " ".join(_ids(kind, entry) for each in arguments["TransactItems"] for kind, entry in each.items())
    source = arguments.get("Key") or arguments.get("Item") or {}
    return str(source.get("taskId", source.get("id", {"S": "*"}))["S"])
