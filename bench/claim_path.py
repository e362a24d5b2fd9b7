"""What the library's requests cost this side of the wire, in CPU time: over botocore and over the direct transport.

    python -m bench.claim_path --rounds 20 --calls 100

Prints one JSON object. The other side is a process that answers at once (`bench.instant_dynamodb`), so what is counted
is this process's own CPU time, system calls included: building a write, sending it, reading and classifying the
answer. The two take turns, round after round; a figure is the best of its rounds (what else the machine has to do is no
cost of ours), in microseconds for each call, or for each task of a batch of ten. TLS is left out of both.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bench.instant_dynamodb import CLAIMED, KEYS, TABLE, TASK
from thunderagent import expressions
from thunderagent.charges import Charges, charged_to
from thunderagent.claims import Claims
from thunderagent.clock import SystemClock, SystemRandomness
from thunderagent.codec import to_item
from thunderagent.direct import Endpoint, direct_invoke, direct_send
from thunderagent.model import Attempt, LeaseToken, Task, TaskId
from thunderagent.schema import Layout
from thunderagent.settings import Executor
from thunderagent.sigv4 import Keys
from thunderagent.store import Send, Store, Written
from thunderagent.telemetry import Silence
from thunderagent.transport import Invoke, boto_client, boto_invoke, boto_send, metered

REGION = "us-east-1"
TOKEN = LeaseToken(CLAIMED["leaseToken"])  # type: ignore[arg-type]
BATCH = 10
WARM_UP = 30
NOW = 1_700_000_001.5


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.claim_path", description="CPU time of the library's requests.")
    parser.add_argument("--rounds", type=int, default=20, help="turns of each transport")
    parser.add_argument("--calls", type=int, default=100, help="calls of each kind in a round")
    given = parser.parse_args(arguments)
    with instant_dynamodb() as url:
        print(json.dumps({**vars(given), **measure(url, rounds=given.rounds, calls=given.calls)}))


@contextmanager
def instant_dynamodb() -> Iterator[str]:
    command = [sys.executable, "-m", "bench.instant_dynamodb"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait(10)


class Threadless:
    """The pool seam in the calling thread: threads' own cost is no transport's."""

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return [function(item) for item in items]


class FixedKeys:
    def keys(self) -> Keys:
        return Keys("AKIDEXAMPLE", "secret", "t" * 400)  # a session token, as every function has one

    def renewed(self, refused: Keys) -> bool:
        return False


def boto(url: str) -> tuple[Send, Invoke]:
    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret", "aws_session_token": "t" * 400}
    clients = [boto_client(service, region=REGION, endpoint_url=url, **keys) for service in ("dynamodb", "lambda")]
    return boto_send(clients[0]), boto_invoke(clients[1])


def direct(url: str) -> tuple[Send, Invoke]:
    def endpoint(service: str) -> Endpoint:
        return Endpoint(url, service=service, region=REGION, keys=FixedKeys(), clock=SystemClock())

    return direct_send(endpoint("dynamodb")), direct_invoke(endpoint("lambda"))


def work(send: Send, invoke: Invoke) -> dict[str, tuple[int, Callable[[], object]]]:
    """What is measured: by name, over how many tasks its cost is spread, and the call."""
    store = Store(
        table=TABLE,
        send=metered(send, Charges(SystemClock(), mib=512)),
        clock=SystemClock(),
        randomness=SystemRandomness(),
        layout=Layout(),
    )
    pending, running = Task.from_item(dict(TASK)), Task.from_item({**TASK, **CLAIMED})
    tasks = [replace(pending, task_id=TaskId(f"t{number}")) for number in range(BATCH)]
    executor = Executor("default", "executor")
    claims = Claims(store, invoke, threads=Threadless(), owner="b" * 8, observer=Silence())  # type: ignore[arg-type]
    succeeded = expressions.Result('{"rows":3}')
    attempt = Attempt(1, NOW, NOW + 1, "succeeded")

    def claim() -> None:
        write = expressions.claim(pending, token=TOKEN, lock_time=NOW + 300, owner="b" * 8, now=NOW, region=REGION)
        with charged_to([(pending.queue, pending.type)]):
            answer = store.apply(write)
        assert isinstance(answer, Written)
        Task.from_item(answer.item or {})

    def commit() -> None:
        write = expressions.commit(running, TOKEN, result=succeeded, attempt=attempt, layout=store.layout, now=NOW)
        with charged_to([(running.queue, running.type)]):
            assert isinstance(store.apply(write), Written)

    def heartbeat() -> None:
        store.apply(expressions.heartbeat(TOKEN, nonce="c" * 32, lock_time=NOW + 300, starting=[]))

    def batch() -> None:
        assert len(claims.send(tasks, executor).claimed) == BATCH

    return {
        "claim": (1, claim),
        "commit": (1, commit),
        "heartbeat": (1, heartbeat),
        "batchOfTenPerTask": (BATCH, batch),
        "readTenItems": (1, lambda: store.get_items([task.task_id for task in tasks])),
        "queryHundredKeys": (1, lambda: store.query(str(TASK["dispatchKey"]), limit=100, until=NOW)),
        "invoke": (1, lambda: invoke("executor", b'{"formatVersion":1}')),
    }


def measure(url: str, *, rounds: int, calls: int) -> dict[str, Any]:
    by_transport = {"boto": work(*boto(url)), "direct": work(*direct(url)), "none": work(*nothing())}
    taken: dict[str, dict[str, list[float]]] = {
        name: {transport: [] for transport in by_transport} for name in by_transport["direct"]
    }
    for name, of_transport in taken.items():
        for kinds in by_transport.values():
            for _ in range(WARM_UP):
                kinds[name][1]()
        for _ in range(rounds):
            for transport, kinds in by_transport.items():
                spread, call = kinds[name]
                began = time.process_time()
                for _ in range(max(1, calls // spread)):
                    call()
                of_transport[transport].append((time.process_time() - began) / (max(1, calls // spread) * spread))
    return {name: summary(of_transport) for name, of_transport in taken.items()}


def nothing() -> tuple[Send, Invoke]:
    """A transport that costs nothing: what remains is the library above it."""
    task = to_item({**TASK, **CLAIMED})
    answers = {
        "BatchGetItem": {"Responses": {TABLE: [to_item({**TASK, "taskId": f"t{n}"}) for n in range(10)]}},
        "Query": {"Items": KEYS},
    }

    def send(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if operation == "UpdateItem" and arguments.get("ReturnValues") == "ALL_NEW":
            return {"Attributes": task}
        return answers.get(operation, {})

    return send, lambda function, event: None


def summary(of_transport: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Microseconds, and how many times as much the SDK takes."""
    best = {transport: min(values) * 1e6 for transport, values in of_transport.items()}
    return {
        "botoMicroseconds": round(best["boto"]),
        "directMicroseconds": round(best["direct"]),
        "libraryMicroseconds": round(best["none"]),
        "times": round(best["boto"] / best["direct"], 2),
    }


if __name__ == "__main__":
    main()
