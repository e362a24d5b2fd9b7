"""The bridge between the embedded AWS's logs and its CloudWatch, which does neither of two things that AWS's does:
make metrics of EMF log lines, and judge alarms by their own dimensions, periods and missing data.

A process beside the embedded AWS (`python -m thunder.local.bridge ENDPOINT`), so that dashboard and alarms of the
deployed stack work on a laptop. It listens on nothing, keeps a few seconds of lines in memory, and mostly sleeps.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thunder.local.alarms import Alarm
from thunder.local.aws import client
from thunder.local.checkout import SYSTEM_PATH, Checkout
from thunder.local.emf import Gathered
from thunder.local.processes import POLL_SECONDS, Child, spawn
from thunder.local.state import StateDir

PROCESS_NAME = "bridge"
BUSY_SECONDS, IDLE_SECONDS = 2.0, 5.0
GROUPS_SECONDS = 30.0  # log groups come with a deployment; asking for them makes the embedded AWS read all logs
ALARM_SECONDS = 10.0
OVERLAP_MS = 10_000  # read again each time: lines get their time before they are stored
EVENTS_A_PAGE = 10_000
ASLEEP_SECONDS = 60.0  # since the last round: the machine slept, or the embedded AWS was away, and nobody watched
GIVE_UP_ROUNDS = 120  # ten minutes; counted, since a machine that slept has not waited
UP_SECONDS = 20.0
EMF_LINES = '"CloudWatchMetrics"'


class Tail:
    """The EMF lines of one log group, each once."""

    def __init__(self, logs: Any, group: str, *, since_ms: int) -> None:
        self._logs = logs
        self._group = group
        self._start_ms = self._floor_ms = since_ms - OVERLAP_MS
        self._seen: Counter[tuple[str, int, str]] = Counter()

    def read(self) -> Iterator[str]:
        """Lines that are new. Events have no ids here, so those read again are told apart by how many there were."""
        answer = self._logs.filter_log_events(
            logGroupName=self._group, startTime=self._start_ms, filterPattern=EMF_LINES, limit=EVENTS_A_PAGE
        )
        found = Counter((event["logStreamName"], event["timestamp"], event["message"]) for event in answer["events"])
        new = found - self._seen
        newest_ms = max((at for _, at, _ in found), default=self._start_ms + OVERLAP_MS)
        if len(answer["events"]) >= EVENTS_A_PAGE:  # more than the overlap should hold: go on behind, and not back
            self._floor_ms = newest_ms
        self._start_ms = max(self._floor_ms, newest_ms - OVERLAP_MS)
        self._seen = Counter({key: times for key, times in found.items() if key[1] >= self._start_ms})
        for (_, _, message), times in new.items():
            for _ in range(times):
                yield message


@dataclass
class Bridge:
    """One round after the other, over clients of the embedded AWS."""

    logs: Any
    cloudwatch: Any
    now: Callable[[], float] = time.time
    say: Callable[[str], None] = lambda line: print(line, flush=True)
    _tails: dict[str, Tail] = field(default_factory=dict)
    _groups_at: float = 0
    _alarms_at: float = 0
    _round_at: float = 0
    _watching_since: float = 0

    @classmethod
    def to(cls, endpoint: str, **seams: Any) -> Bridge:
        return cls(client("logs", endpoint), client("cloudwatch", endpoint), **seams)

    def round(self) -> bool:
        """Take over what is new, now and then judge the alarms. False: nothing was new. Raises errors of botocore."""
        now = self.now()
        if now - self._round_at > ASLEEP_SECONDS:
            self._watching_since = now
        measured = self._measure(now)
        if now - self._alarms_at >= ALARM_SECONDS or self._has_new_alarms():
            self.judge_alarms()
            self._alarms_at = now
        self._round_at = now
        return measured

    # ---- metrics -----------------------------------------------------------------------------------------------------

    def _measure(self, now: float) -> bool:
        self._find_groups(now)
        gathered = Gathered()
        for group, tail in list(self._tails.items()):
            try:
                for message in tail.read():
                    gathered.add(message)
            except self.logs.exceptions.ResourceNotFoundException:
                del self._tails[group]
        for request in gathered.requests():
            self.cloudwatch.put_metric_data(**request)
        return bool(gathered)

    def _find_groups(self, now: float) -> None:
        if now - self._groups_at < GROUPS_SECONDS and self._tails:
            return
        pages = self.logs.get_paginator("describe_log_groups").paginate()
        groups = {group["logGroupName"] for page in pages for group in page["logGroups"]}
        since_ms = int((self._groups_at or now) * 1000)
        self._tails = {name: self._tails.get(name) or Tail(self.logs, name, since_ms=since_ms) for name in groups}
        self._groups_at = now

    # ---- alarms ------------------------------------------------------------------------------------------------------

    def _has_new_alarms(self) -> bool:
        return bool(self.cloudwatch.describe_alarms(StateValue="INSUFFICIENT_DATA", MaxRecords=1)["MetricAlarms"])

    def judge_alarms(self) -> None:
        """Set the state of every alarm that has another one than its metric says; CloudWatch then tells SNS."""
        now = self.now()
        pages = self.cloudwatch.get_paginator("describe_alarms").paginate(AlarmTypes=["MetricAlarm"])
        described = [Alarm.of(each) for page in pages for each in page["MetricAlarms"]]
        alarms = [alarm for alarm in described if alarm is not None]
        for alarm, datapoints in zip(alarms, self._datapoints(alarms, now), strict=True):
            verdict = alarm.judge(datapoints, now=now, since=self._watching_since)
            if verdict.state != alarm.state:
                self.cloudwatch.set_alarm_state(
                    AlarmName=alarm.name, StateValue=verdict.state, StateReason=verdict.reason
                )
                self.say(f"{alarm.name}: {alarm.state} -> {verdict.state} ({verdict.reason})")

    def _datapoints(self, alarms: list[Alarm], now: float) -> list[Mapping[int, float]]:
        if not alarms:
            return []
        answer = self.cloudwatch.get_metric_data(
            MetricDataQueries=[{"Id": f"a{number}", **alarm.query} for number, alarm in enumerate(alarms)],
            StartTime=min(alarm.first_second(now) for alarm in alarms),
            EndTime=int(now) + 1,
        )
        results = {each["Id"]: each for each in answer["MetricDataResults"]}
        return [_by_second(results[f"a{number}"]) for number in range(len(alarms))]


def _by_second(result: Mapping[str, Any]) -> dict[int, float]:
    return {int(at.timestamp()): value for at, value in zip(result["Timestamps"], result["Values"], strict=True)}


def run(bridge: Bridge, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Round after round. The embedded AWS may go away and come back; the end is when it stays away."""
    from botocore.exceptions import BotoCoreError, ClientError

    failed = 0
    while failed < GIVE_UP_ROUNDS:
        busy = False
        try:
            busy = bridge.round()
            failed = 0
        except (BotoCoreError, ClientError) as error:
            failed += 1
            bridge.say(f"the embedded AWS does not answer: {type(error).__name__}")
        sleep(BUSY_SECONDS if busy else IDLE_SECONDS)
    bridge.say("the embedded AWS has been away for too long")


# ---- for `thunder local` --------------------------------------------------------------------------------------------


def start(checkout: Checkout, state: StateDir, endpoint: str) -> Child:
    """Starts the bridge as a process of its own, with an environment that says nothing of the operator's AWS."""
    env = {"PATH": SYSTEM_PATH, "HOME": str(state.scratch), "LANG": "C.UTF-8", "NO_PROXY": "*"}
    python = checkout.venv / "bin" / "python"
    return spawn(PROCESS_NAME, [str(python), "-I", "-m", "thunder.local.bridge", endpoint], env=env, log=log_of(state))


def log_of(state: StateDir) -> Path:
    return state.logs / "bridge.log"


def wait_for_alarms(endpoint: str) -> bool:
    """Waits until the bridge has judged every alarm once; False when that takes too long."""
    cloudwatch = client("cloudwatch", endpoint)
    deadline = time.monotonic() + UP_SECONDS
    while cloudwatch.describe_alarms(StateValue="INSUFFICIENT_DATA")["MetricAlarms"]:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS * 10)
    return True


if __name__ == "__main__":
    run(Bridge.to(sys.argv[1]))
