"""What a cold start of each function takes, in CPU milliseconds: importing its handler, and its first call.

    python -m bench.cold_start --runs 5

Prints one JSON object. Each run is a fresh process over a copy of the sources without bytecode, as Lambda finds them
(its file system is read-only: what has none is compiled at every cold start); Python itself and botocore have theirs.
The first call does what the function is for: a submit, a pass that claims and dispatches ten tasks, a batch of ten
run, a minute's upkeep, an end told to EventBridge. The services answer at once from another process
(`bench.instant_dynamodb`). Each figure is the best of its runs; `boto` and `direct` are the transports.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.claim_path import instant_dynamodb
from bench.instant_dynamodb import CLAIMED, TABLE, TASK
from thunderagent.codec import to_item

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "layers" / "thunderagent" / "python"
TRANSPORTS = ("boto", "direct")
HANDLERS = """from thunderagent import task


@task("report.generate")
def generate(payload, ctx):
    return {"rows": 3}
"""
REGISTRY = {
    "formatVersion": 1,
    "profiles": {"default": {"modules": ["cold_tasks"], "timeoutSeconds": 900}},
    "queues": {"default": {}},
    "types": {"report.generate": {"profile": "default"}},
}
PROBE = """
import json, sys, time
class Context:
    aws_request_id = "1"
    def get_remaining_time_in_millis(self):
        return 800_000
name, event = sys.argv[1], json.loads(sys.argv[2])
began = time.process_time()
module = __import__(f"functions.{name}.handler", fromlist=["handler"])
imported, modules = time.process_time(), len(sys.modules)
answer = module.handler(event, Context())
called = time.process_time()
figures = {"importMs": imported - began, "firstCallMs": called - imported}
figures = {key: value * 1000 for key, value in figures.items()}
print(json.dumps({**figures, "modules": modules, "modulesAfter": len(sys.modules), "answer": answer}), file=sys.stderr)
"""
SUBMIT = {
    "version": "2.0",
    "routeKey": "POST /tasks",
    "rawPath": "/tasks",
    "rawQueryString": "",
    "headers": {"content-type": "application/json"},
    "requestContext": {
        "requestId": "1",
        "stage": "$default",
        "http": {"method": "POST", "path": "/tasks"},
        "authorizer": {"iam": {"userArn": "arn:aws:iam::123456789012:user/a"}},
    },
    "isBase64Encoded": False,
    "body": json.dumps({"type": "report.generate", "payload": {"region": "eu"}}),
}
BATCH = {
    "formatVersion": 1,
    "leaseToken": CLAIMED["leaseToken"],
    "profile": "default",
    "lockTime": CLAIMED["lockTime"],
    "leaseSeconds": 300,
    "taskIds": [f"t{number}" for number in range(10)],
}
ENDED = {**TASK, **CLAIMED, "status": "SUCCESS", "finishedAt": 1_700_000_010.5, "expiresAt": 4_000_000_000}
RECORD = {
    "eventID": "1",
    "eventName": "MODIFY",
    "eventSource": "aws:dynamodb",
    "eventSourceARN": f"arn:aws:dynamodb:us-east-1:1:table/{TABLE}/stream/1",
    "dynamodb": {
        "ApproximateCreationDateTime": 1_700_000_010,
        "Keys": {"taskId": {"S": TASK["taskId"]}},
        "SequenceNumber": "1" * 25,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
        "OldImage": to_item({**TASK, **CLAIMED}),
        "NewImage": to_item(ENDED),
    },
}
EVENTS: Mapping[str, Any] = {
    "api": SUBMIT,
    "poller": {},
    "executor": BATCH,
    "reaper": {},
    "recorder": {"Records": [RECORD]},
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.cold_start", description="CPU time of cold starts.")
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args(arguments)
    with sources() as directory, instant_dynamodb() as url:
        print(json.dumps({"runs": given.runs, **{name: measure(name, directory, url, given.runs) for name in EVENTS}}))


@contextmanager
def sources() -> Iterator[Path]:
    """What is deployed, without bytecode, and a registry of one type."""
    with TemporaryDirectory(prefix="thunder-bench-") as name:
        directory, leave = Path(name), shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(LIBRARY, directory, ignore=leave, dirs_exist_ok=True)
        shutil.copytree(ROOT / "functions", directory / "functions", ignore=leave)
        registry = directory / "thunderagent_registry"
        registry.mkdir()
        (registry / "__init__.py").touch()
        (registry / "registry.json").write_text(json.dumps(REGISTRY))
        (directory / "cold_tasks.py").write_text(HANDLERS)
        yield directory


def measure(name: str, directory: Path, url: str, runs: int) -> dict[str, Any]:
    """Milliseconds by transport, and how many modules are loaded before and after the first call."""
    figures: dict[str, Any] = {}
    for transport in TRANSPORTS:
        found = [cold_start(name, directory, url, transport) for _ in range(runs)]
        best = min(found, key=lambda each: each["importMs"] + each["firstCallMs"])
        whole = best["importMs"] + best["firstCallMs"]
        figures[transport] = {
            "importMs": round(best["importMs"]),
            "firstCallMs": round(best["firstCallMs"]),
            "bothMs": round(whole),
            "modules": best["modulesAfter"],
        }
    figures["times"] = round(figures["boto"]["bothMs"] / figures["direct"]["bothMs"], 2)
    return figures


def cold_start(name: str, directory: Path, url: str, transport: str) -> dict[str, Any]:
    """One fresh process. Raises SystemExit when the function did not do what it is for."""
    command = [sys.executable, "-S", "-c", PROBE, name, json.dumps(EVENTS[name])]
    ended = subprocess.run(
        command, env=environment(directory, url, transport), capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        raise SystemExit(f"{name} failed:\n{ended.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(ended.stderr.splitlines()[-1])
    check(name, found["answer"])
    return found


def check(name: str, answer: Mapping[str, Any]) -> None:
    expected = {
        "api": lambda: answer["statusCode"] == 201,
        "poller": lambda: answer["claimed"] >= 10,
        "executor": lambda: answer.get("ends", {}).get("succeeded") == 10,
        "reaper": lambda: answer["well"],
        "recorder": lambda: answer.get("events") == 1,
    }
    if not expected[name]():
        raise SystemExit(f"{name} answered {json.dumps(answer)[:500]}")


def environment(directory: Path, url: str, transport: str) -> dict[str, str]:
    """A function's, over the service that answers at once. `-S` leaves out the site directories, which Lambda's do not
    resemble; what the runtime brings (botocore) is found where this Python has it."""
    packages = [path for path in sys.path if path.endswith("site-packages")]
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(directory), *packages]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_LAMBDA_FUNCTION_NAME": "cold",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "t" * 400,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "TABLE_NAME": TABLE,
        "EXECUTORS": json.dumps({"default": {"function": "executor"}}),
        "POLL_WINDOW_SECONDS": "0",
        "POLL_START_JITTER_SECONDS": "0",
        "DISPATCH_SHARDS": "1",
        "EVENT_BUS": "bus",
        "FAILURES_QUEUE_URL": f"{url}/queue",
        "TRANSPORT": transport,
    }


if __name__ == "__main__":
    main()
