"""The demonstration tasks. Each shows one thing a handler can do, or have done to it."""

import os
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from thunderagent import Backoff, Fail, task

from . import payloads
from .counters import add_one, counted, one_more

if TYPE_CHECKING:
    from thunderagent import Context

SLICE_SECONDS = 0.25
KILLED = 137  # what a shell reports of a process ended by SIGKILL
MOST_BYTES = 64 * 1024 * 1024
QUICK = Backoff(base=0.5, cap=2)

UNUSUAL: dict[str, Callable[[], Any]] = {
    "nan": lambda: float("nan"),
    "set": lambda: {1, 2, 3},
    "decimal": lambda: Decimal("1.5"),
    "bytes": lambda: b"thunder",
    "none": lambda: None,
    "zero": lambda: 0,
}


@task("demo.echo")
def echo(payload: Any, ctx: "Context") -> Any:
    """Returns its payload."""
    return payload


@task("demo.sleep")
def sleep(payload: Any, ctx: "Context") -> dict[str, float]:
    """`{"seconds": 1}`: takes that long, in slices, and ends early once it is cancelled."""
    wanted = payloads.seconds(payload, "seconds", 1, most=86_400)
    started = time.monotonic()
    while (left := wanted - (time.monotonic() - started)) > 0 and not ctx.cancelled:
        time.sleep(min(left, SLICE_SECONDS))
    return {"seconds": round(time.monotonic() - started, 3)}


@task("demo.flaky", backoff=QUICK)
def flaky(payload: Any, ctx: "Context") -> dict[str, int]:
    """`{"failures": 1}`: raises on that many attempts, then succeeds."""
    failures = payloads.whole(payload, "failures", 1, most=100)
    if ctx.attempt <= failures:
        raise RuntimeError(f"attempt {ctx.attempt} fails, as {failures} should")
    return {"attempt": ctx.attempt}


@task("demo.fail", backoff=QUICK)
def fail(payload: Any, ctx: "Context") -> None:
    """Always raises: it is retried until its retries are used up, then FAILED."""
    raise RuntimeError("this task always fails")


@task("demo.permanent")
def permanent(payload: Any, ctx: "Context") -> None:
    """Raises `Fail`: FAILED at once, whatever retries it has."""
    raise Fail("this task fails for good")


@task("demo.crash")
def crash(payload: Any, ctx: "Context") -> None:
    """Ends its process without a word, as running out of memory would. The reaper finds out."""
    _end_process()


@task("demo.big")
def big(payload: Any, ctx: "Context") -> str:
    """`{"bytes": 1024}`: returns a string that long."""
    return "x" * payloads.whole(payload, "bytes", 1024, most=MOST_BYTES)


@task("demo.raise", backoff=QUICK)
def raise_long(payload: Any, ctx: "Context") -> None:
    """`{"bytes": 1024}`: raises an error whose message is that long."""
    raise RuntimeError("x" * payloads.whole(payload, "bytes", 1024, most=MOST_BYTES))


@task("demo.return")
def return_unusual(payload: Any, ctx: "Context") -> Any:
    """`{"kind": "nan"}`: returns a value JSON cannot hold (nan, set, decimal, bytes) or one often lost (none, zero)."""
    kind = payloads.text(payload, "kind")
    if kind not in UNUSUAL:
        raise Fail(f"payload.kind: one of {', '.join(UNUSUAL)} is needed")
    return UNUSUAL[kind]()


@task("demo.count")
def count(payload: Any, ctx: "Context") -> dict[str, int]:
    """`{"key": "a"}`: adds one to `count` of the table's item `counter#<key>` each time it really runs.

    `"seconds"`: takes that long afterwards. `"commits": true`: adds one to `commits` of the same item in the
    transaction of its commit, so that the one says how often it ran and the other how often that counted.
    """
    key = payloads.text(payload, "key")
    result = {"count": add_one(key)}
    time.sleep(payloads.seconds(payload, "seconds", 0, most=800))
    if payloads.flag(payload, "commits"):
        ctx.commit_with([one_more(key, part="commits")], result)
    return result


@task("demo.needs", backoff=QUICK)
def needs(payload: Any, ctx: "Context") -> dict[str, int]:
    """`{"key": "a"}`: raises until `counter#<key>` has been counted, as a handler does whose provider is down."""
    key = payloads.text(payload, "key")
    found = counted(key)
    if not found:
        raise ConnectionError(f"{key} is down")
    return {"count": found}


@task("demo.steps", backoff=QUICK)
def steps(payload: Any, ctx: "Context") -> dict[str, list[int]]:
    """`{"key": "a", "crashAfter": 2}`: three steps, each counted; the first attempt ends its process after that step.

    The item `counter#<key>` shows in `step1`, `step2` and `step3` how often each ran, in `count` their sum.
    """
    key = payloads.text(payload, "key")
    crash_after = payloads.whole(payload, "crashAfter", 0, most=3)
    results = []
    for number in (1, 2, 3):
        part = f"step{number}"
        results.append(ctx.step(part, partial(add_one, key, part=part)))
        if number == crash_after and ctx.attempt == 1:
            _end_process()
    return {"counts": results}


@task("demo.progress")
def progress(payload: Any, ctx: "Context") -> dict[str, int]:
    """`{"parts": 4, "seconds": 2}`: works through its parts and says after each how far it is."""
    parts = payloads.whole(payload, "parts", 4, most=1000)
    pause = payloads.seconds(payload, "seconds", 2, most=86_400) / max(parts, 1)
    for done in range(1, parts + 1):
        if ctx.cancelled:
            break
        time.sleep(pause)
        ctx.progress(done / parts, f"part {done} of {parts}")
    return {"parts": parts}


@task("demo.children")
def children(payload: Any, ctx: "Context") -> dict[str, list[str]]:
    """`{"n": 3}`: submits n children; run again, it submits the same ones."""
    wanted = payloads.whole(payload, "n", 3, most=1000)
    return {"children": [ctx.submit("demo.echo", {"child": number}).task_id for number in range(wanted)]}


def _end_process() -> None:
    os._exit(KILLED)
