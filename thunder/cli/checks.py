"""What `thunder doctor` looks at. Each check says what it found and, when that is not as it should be, what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from thunder.cli.figures import LATE_SECONDS, OLD_SECONDS, as_of, value_of
from thunder.cli.times import span
from thunderagent.metrics import NAMESPACE
from thunderagent.schema import INDEX_HASH, INDEX_NAME, INDEX_RANGE, TABLE_KEY, TTL_ATTRIBUTE

if TYPE_CHECKING:
    from thunder.cli.target import Target
    from thunderagent.signed_http import Exchange

SKEW_NOTICED_SECONDS = 5.0  # the clocks of workers may differ by so much: LEASE_GRACE_SECONDS
SKEW_REFUSED_SECONDS = 300.0  # AWS refuses signatures older than this
HEARTBEAT_MINUTES = 5  # each part gives one a minute, and CloudWatch may be two behind
METRICS_BEHIND_MINUTES = 15


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Check:
    """One answer. `remedy` is what to do about it."""

    name: str
    verdict: Verdict
    detail: str
    remedy: str | None = None

    def as_answer(self) -> dict[str, Any]:
        answer = {"check": self.name, "verdict": self.verdict.value, "detail": self.detail, "remedy": self.remedy}
        return {name: value for name, value in answer.items() if value is not None}


@dataclass
class Dated:
    """Remembers the server's time of the last answer, refused ones included: a wrong clock is refused."""

    skew_seconds: float | None = None
    now: Callable[[], float] = field(default=time.time, repr=False)

    def wrap(self, exchange: Exchange) -> Exchange:
        def dated(
            method: str, url: str, headers: Mapping[str, str], body: bytes
        ) -> tuple[int, Mapping[str, str], bytes]:
            sent = self.now()
            status, answered, content = exchange(method, url, headers, body)
            self._note(answered, (sent + self.now()) / 2)
            return status, answered, content

        return dated

    def _note(self, headers: Mapping[str, str], here: float) -> None:
        date = {name.lower(): value for name, value in headers.items()}.get("date")
        try:
            there = parsedate_to_datetime(date).timestamp() if date else None
        except ValueError:
            there = None
        if there is not None:
            self.skew_seconds = here - (there + 0.5)  # the header has whole seconds


# ---- AWS ------------------------------------------------------------------------------------------------------------


def credentials(target: Target) -> Iterator[Check]:
    caller = target.aws("sts").get_caller_identity()
    yield Check("credentials", Verdict.OK, f"{caller['Arn']}, account {caller['Account']}, region {target.region}")


def stack(target: Target) -> Iterator[Check]:
    """Also a stack whose last update failed serves; but what was deployed is not what serves."""
    if target.service is None:
        yield Check("stack", Verdict.SKIPPED, "only the API's URL is known", "say --stack to look at the rest too")
        return
    found = target.aws("cloudformation").describe_stacks(StackName=target.service)["Stacks"][0]
    status = found["StackStatus"]
    if status.endswith("_COMPLETE") and "ROLLBACK" not in status and not status.startswith("DELETE"):
        yield Check("stack", Verdict.OK, f"{target.service} is {status}")
    elif status.endswith("_IN_PROGRESS"):
        yield Check("stack", Verdict.WARN, f"{target.service} is {status}", "look again when that is over")
    else:
        remedy = f"`aws cloudformation describe-stack-events --stack-name {target.service}` tells why; deploy again"
        yield Check("stack", Verdict.FAIL, f"{target.service} is {status}", remedy)


def table(target: Target) -> Iterator[Check]:
    if target.table_name is None:
        yield Check("table", Verdict.SKIPPED, "its name is not known")
        return
    dynamodb = target.aws("dynamodb")
    described = dynamodb.describe_table(TableName=target.table_name)["Table"]
    yield _table(described)
    yield _index(described)
    yield _stream(described)
    yield _time_to_live(dynamodb.describe_time_to_live(TableName=target.table_name)["TimeToLiveDescription"])


def _table(described: Mapping[str, Any]) -> Check:
    status, keys = described["TableStatus"], _keys(described)
    if keys != {"HASH": TABLE_KEY}:
        return Check("table", Verdict.FAIL, f"its key is {keys}", "this is not a table of ThunderAgent: check --stack")
    if status not in ("ACTIVE", "UPDATING"):
        return Check("table", Verdict.FAIL, f"{described['TableName']} is {status}", "wait until it is ACTIVE")
    return Check("table", Verdict.OK, f"{described['TableName']} is {status}")


def _index(described: Mapping[str, Any]) -> Check:
    found = {index["IndexName"]: index for index in described.get("GlobalSecondaryIndexes", ())}
    index = found.get(INDEX_NAME)
    if index is None:
        return Check("index", Verdict.FAIL, f"{INDEX_NAME} is missing: no task can be found", "deploy the data stack")
    if _keys(index) != {"HASH": INDEX_HASH, "RANGE": INDEX_RANGE}:
        return Check("index", Verdict.FAIL, f"{INDEX_NAME} has the keys {_keys(index)}", "deploy the data stack")
    status = index.get("IndexStatus", "ACTIVE")  # AWS always tells; the embedded AWS does not
    if status != "ACTIVE":
        return Check("index", Verdict.FAIL, f"{INDEX_NAME} is {status}", "tasks wait until it is ACTIVE")
    return Check("index", Verdict.OK, f"{INDEX_NAME} is ACTIVE")


def _keys(described: Mapping[str, Any]) -> dict[str, str]:
    return {key["KeyType"]: key["AttributeName"] for key in described["KeySchema"]}


def _stream(described: Mapping[str, Any]) -> Check:
    stream = described.get("StreamSpecification") or {}
    if stream.get("StreamEnabled") and stream.get("StreamViewType") == "NEW_AND_OLD_IMAGES":
        return Check("stream", Verdict.OK, "enabled, new and old images")
    return Check(
        "stream", Verdict.FAIL, "not enabled with new and old images: no doorbell, no archive", "deploy the data stack"
    )


def _time_to_live(described: Mapping[str, Any]) -> Check:
    if described.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") and described["AttributeName"] == TTL_ATTRIBUTE:
        return Check("retention", Verdict.OK, f"time to live on {TTL_ATTRIBUTE}")
    return Check(
        "retention", Verdict.FAIL, f"no time to live on {TTL_ATTRIBUTE}: ended tasks stay for ever", "deploy again"
    )


# ---- the service ----------------------------------------------------------------------------------------------------


def api(target: Target) -> Iterator[Check]:
    """The API and, by the date of its answer, this machine's clock."""
    dated = Dated()
    try:
        began = time.monotonic()
        health = target.client(dated.wrap).health()
        took = time.monotonic() - began
        words = f"{target.api_url} answers in {took * 1000:.0f} ms, version {health.get('version', '?')}"
        yield Check("api", Verdict.OK, words)
    finally:
        if dated.skew_seconds is not None:
            yield clock(dated.skew_seconds)


def clock(skew_seconds: float) -> Check:
    ahead = "ahead of" if skew_seconds > 0 else "behind"
    amount = abs(skew_seconds)
    words = f"this clock is {span(amount)} {ahead} the API's"
    if amount > SKEW_REFUSED_SECONDS:
        return Check("clock", Verdict.FAIL, words, "AWS refuses what it signs: set the clock (NTP)")
    if amount > SKEW_NOTICED_SECONDS:
        return Check("clock", Verdict.WARN, words, "set the clock (NTP) before you run `thunder agent` here")
    return Check("clock", Verdict.OK, "within a second or so of the API's" if amount < 1.5 else words)


def heartbeats(target: Target) -> Iterator[Check]:
    for part in ("Poller", "Reaper"):
        if target.service is None:
            yield Check(part.lower(), Verdict.SKIPPED, "the stack's name is not known")
        else:
            yield _heartbeat(target, part)


def _heartbeat(target: Target, part: str) -> Check:
    name = part.lower()
    last = _last_heartbeat(target, f"{part}Heartbeat")
    words = f"last sign of life {span(last)} ago" if last is not None else "no sign of life"
    if last is not None and last <= HEARTBEAT_MINUTES * 60:
        return Check(name, Verdict.OK, words)
    if last is None and target.is_local:
        return Check(name, Verdict.WARN, "no figures of it here yet", "wait a minute; `thunder local logs` shows more")
    within = f"{words} within {METRICS_BEHIND_MINUTES} minutes" if last is None else words
    return Check(
        name, Verdict.FAIL, within, f"look at the {name} function's log, and whether its schedule rule is enabled"
    )


def _last_heartbeat(target: Target, metric: str) -> float | None:
    """Seconds since the end of the last minute with one; None without any."""
    now = datetime.now(UTC)
    answer = target.aws("cloudwatch").get_metric_statistics(
        Namespace=NAMESPACE,
        MetricName=metric,
        Dimensions=[{"Name": "Service", "Value": target.service}],
        StartTime=now - timedelta(minutes=METRICS_BEHIND_MINUTES),
        EndTime=now + timedelta(minutes=1),
        Period=60,
        Statistics=["Sum"],
    )
    times = [point["Timestamp"] for point in answer["Datapoints"] if point["Sum"] > 0]
    return max(0.0, (now - max(times)).total_seconds() - 60) if times else None


def queues(target: Target) -> Iterator[Check]:
    """Whether somebody counts, and whether due tasks are taken up."""
    rows = target.client().stats()["queues"]
    now = time.time()
    counted = as_of(rows)
    if counted is not None and now - counted > OLD_SECONDS:
        yield Check(
            "census", Verdict.WARN, f"counted {span(now - counted)} ago", "the reaper counts each minute: see it"
        )
    late = [row for row in rows if (value_of(row, "oldestDueAgeSeconds") or 0) > LATE_SECONDS and not row["paused"]]
    if late:
        row = max(late, key=lambda each: value_of(each, "oldestDueAgeSeconds"))
        waits = span(value_of(row, "oldestDueAgeSeconds"))
        remedy = f"`thunder task list --status PENDING --queue {row['queue']}`, then `thunder task why` on the first"
        yield Check("queues", Verdict.WARN, f"a task of {row['queue']} has been due for {waits}", remedy)
    else:
        yield Check("queues", Verdict.OK, f"{len(rows)} queues, none with a task due for more than {LATE_SECONDS} s")


ALL = {
    "credentials": credentials,
    "stack": stack,
    "table": table,
    "api": api,
    "heartbeats": heartbeats,
    "queues": queues,
}
