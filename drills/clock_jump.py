"""The clock of a machine with an agent jumps back by a minute, while its tasks run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drills.deployment import SHORT, Rhythm
from drills.session import ROOT, Session
from drills.verdict import Verdict
from drills.work import Work, eventually

RHYTHM = Rhythm(lease_seconds=SHORT.lease_seconds, grace_seconds=SHORT.grace_seconds, reaper_every=SHORT.reaper_every)
JUMP_SECONDS = -60
TASKS = 8
AGENT = ("agent", "--local", "--executor", "default", "--batches", "2", "--threads", str(TASKS // 4), "--grace", "1")


def rehearse(session: Session) -> None:
    """What a wrong clock costs, how it is found, and that nothing of it stays."""
    seconds = 30.0 if session.quick else 60.0
    offset = Path(str(session.stack.record["stateDir"])) / "clock-of-two"
    lambdas_off(session)
    session.heading(f"Two machines with an agent each, leases of {SHORT.lease_seconds} s, tasks of {seconds:.0f} s")
    with agent(session, "one"):
        work = Work(session.stack, "jump")
        with agent(session, "two", offset):
            work.count(TASKS, seconds=seconds)
            eventually(lambda: owners(work) == {"one", "two"}, "tasks on both machines", within=90)
            offset.write_text(str(JUMP_SECONDS))
            session.heading("The clock of the second jumps back: it believes that its leases last, and does not renew")
            noticed = eventually(lambda: bool(taken_back(work)), "a task that is taken back", within=seconds + 60)
            session.figure("the first task was taken back after, s", noticed)
            session.heading("What you see: leases expire, although every process is there")
            session.thunder("task", "get", taken_back(work)[0])
            session.wait_for_alarm("leasesexpired", 120)
            session.heading("What you do: ask on that machine, stop its agent, set its clock, start it again")
            on_its_machine(session, offset)
        offset.unlink()
        judged(session, work, 6 * seconds + 120, "")
        with agent(session, "two", offset):
            after = Work(session.stack, "after")
            after.count(TASKS // 2, seconds=seconds)
            again = judged(session, after, 4 * seconds + 120, ", with the clock set")
            session.require(not again.retried, "leases are still lost")


def judged(session: Session, work: Work, within: float, when: str) -> Verdict:
    """The verdict on tasks that have ended: all succeeded, each committed once."""
    work.wait_until_ended(within)
    verdict = work.verdict()
    session.figure(f"tasks{when}", verdict.tasks)
    session.figure(f"charged a retry{when}", verdict.retried)
    session.figure(f"runs too many{when}", verdict.duplicates)
    session.figure(f"committed other than once{when}", sum("committed" in each for each in verdict.problems))
    session.require(not verdict.problems, "; ".join(verdict.problems))
    return verdict


def taken_back(work: Work) -> list[str]:
    return [task_id for task_id, item in work.items().items() if item["retryCount"]]


def lambdas_off(session: Session) -> None:
    """The poller's schedule and the doorbell, so that the agents have the tasks."""
    events, functions = session.stack.aws("events"), session.stack.aws("lambda")
    for rule in events.list_rules()["Rules"]:
        if "Poller" in rule["Name"]:
            events.disable_rule(Name=rule["Name"])
    for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
        if "Doorbell" in mapping["FunctionArn"]:
            functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)


def owners(work: Work) -> set[str]:
    return {str(item.get("owner")) for item in work.items().values() if item["status"] == "RUNNING"}


@contextmanager
def agent(session: Session, name: str, offset: Path = Path("/dev/null")) -> Iterator[None]:
    """An agent with that clock, stopped in order afterwards."""
    state = str(session.stack.record["stateDir"])
    script = [sys.executable, "-m", "drills.jumped_clock", str(offset), *AGENT, "--name", name]
    session.write(f"$ thunder agent --executor default --name {name} &")
    with (Path(state) / "log" / f"agent-{name}.log").open("ab") as log:
        process = subprocess.Popen(script, cwd=ROOT, env=environment(state), stdout=log, stderr=log)
    try:
        yield
    finally:
        session.write(f"$ kill -TERM %{name}")
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def on_its_machine(session: Session, offset: Path) -> None:
    """`thunder doctor` where the clock is wrong: the line about the clock."""
    session.write("$ thunder doctor")
    script = [sys.executable, "-m", "drills.jumped_clock", str(offset), "--local", "doctor"]
    env = environment(str(session.stack.record["stateDir"]))
    ended = subprocess.run(script, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    for line in (ended.stdout + ended.stderr).splitlines():
        if "clock" in line:
            session.write(line.rstrip())
    session.require("behind" in ended.stdout, "the doctor does not see that the clock is behind")


def environment(state: str) -> dict[str, str]:
    paths = f"{ROOT}:{ROOT / 'layers' / 'thunderagent' / 'python'}"
    return {
        "PATH": "/usr/bin:/bin",
        "HOME": state,
        "NO_PROXY": "*",
        "NO_COLOR": "1",
        "COLUMNS": "118",
        "PYTHONPATH": paths,
        "THUNDER_STATE_DIR": state,
        "POLL_START_JITTER_SECONDS": "0",
        "POLL_IDLE_SECONDS": "1",
        "LEASE_GRACE_SECONDS": str(SHORT.grace_seconds),
        "EXECUTORS": json.dumps({"default": {"function": "", "leaseSeconds": SHORT.lease_seconds}}),
    }
