"""For tests of handlers: run one in process, or replay it killed before and after each of its writes.

    from thunderagent.testing import crash_test, run_task

    assert run_task(generate, {"region": "eu"}).result == {"rows": 3}
    crash_test(generate, {"region": "eu"}).check()

Everything around the handler is the library's own (context, leases, commits, reaper) over a table in memory, with a
clock that stands still until it is moved. Not part of what is deployed.
"""

from thunderagent.testing.crash import CrashReport, Kill, Repeat, crash_test
from thunderagent.testing.fakes import FakeClock
from thunderagent.testing.memory_dynamodb import MemoryDynamoDB
from thunderagent.testing.runs import Child, TaskRun, run_task

__all__ = [
    "Child",
    "CrashReport",
    "FakeClock",
    "Kill",
    "MemoryDynamoDB",
    "Repeat",
    "TaskRun",
    "crash_test",
    "run_task",
]
