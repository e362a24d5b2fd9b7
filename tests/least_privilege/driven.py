"""A stack in which nothing runs by itself: probes call each function when they want it, with the rights of its role."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.least_privilege.grants import FUNCTIONS, Roles
from tests.support.local_stack import Answer, UpStack
from thunderagent.codec import Item, from_item, to_item

PATIENCE_SECONDS = 6.0
"""For what an executor does on its own; it takes some 0.1 s. With its right gone a probe waits this long to fail."""

ONE_PASS = {"POLL_WINDOW_SECONDS": "0", "POLL_START_JITTER_SECONDS": "0"}


class NotAnswered(AssertionError):
    """A function failed as a whole."""


@dataclass
class DrivenStack:
    """The stack's functions, its table and its API, for probes. The root user looks and prepares; functions act."""

    up: UpStack
    roles: Roles
    names: Mapping[str, str]

    @staticmethod
    def of(up: UpStack) -> DrivenStack:
        functions = up.client("lambda")
        found: dict[str, str] = {}
        roles: dict[str, str] = {}
        pages = functions.get_paginator("list_functions").paginate()
        for each in (each for page in pages for each in page["Functions"]):
            part = next(
                (part for part in FUNCTIONS if each["FunctionName"].startswith(f"ThunderAgent-local-{part}")), ""
            )
            assert part, f"{each['FunctionName']} is none of {FUNCTIONS}"
            found[part], roles[part] = each["FunctionName"], each["Role"].rpartition("/")[2]
        driven = DrivenStack(up, Roles(up.client("iam"), roles), found)
        driven._quiet(functions)
        return driven

    def _quiet(self, functions: Any) -> None:
        events = self.up.client("events")
        for rule in events.list_rules()["Rules"]:
            events.disable_rule(Name=rule["Name"])
        for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
            functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        self._set("Poller", ONE_PASS)

    def restart(self, part: str) -> None:
        """The next invocation gets a new container, which remembers nothing."""
        self._set(part, {"RESTARTED": str(time.time())})

    def _set(self, part: str, variables: Mapping[str, str]) -> None:
        functions, name = self.up.client("lambda"), self.names[part]
        own = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        functions.update_function_configuration(FunctionName=name, Environment={"Variables": {**own, **variables}})

    # ---- the functions -----------------------------------------------------------------------------------------------

    def invoke(self, part: str, event: Any) -> dict[str, Any]:
        """What the function returned. Raises NotAnswered when it failed."""
        answer = self.up.client("lambda").invoke(FunctionName=self.names[part], Payload=json.dumps(event).encode())
        returned = json.loads(answer["Payload"].read() or b"null")
        if "FunctionError" in answer:
            raise NotAnswered(f"{part} failed: {str(returned)[:200]}")
        assert isinstance(returned, dict), returned
        return returned

    def poll(self) -> dict[str, Any]:
        return self.invoke("Poller", {})

    def reap(self) -> dict[str, Any]:
        return self.invoke("Reaper", {})

    def ring(self, task_id: str) -> dict[str, Any]:
        """The doorbell, told of a task as the stream would after its submit."""
        change = {"Keys": {"taskId": {"S": task_id}}, "NewImage": to_item(self.item(task_id))}
        record = {"eventID": "1", "eventName": "INSERT", "eventSource": "aws:dynamodb", "dynamodb": change}
        return self.invoke("Doorbell", {"Records": [record]})

    def record(self, *, old: Item, new: Item | None = None, by_ttl: bool = False) -> dict[str, Any]:
        """The recorder, told of a change as the stream would."""
        change = {
            "Keys": {"taskId": {"S": old["taskId"]}},
            "SequenceNumber": "1",
            "ApproximateCreationDateTime": time.time(),
            "OldImage": to_item(old),
        }
        if new is not None:
            change["NewImage"] = to_item(new)
        record = {"eventID": "1" * 32, "eventName": "MODIFY" if new else "REMOVE", "dynamodb": change}
        if by_ttl:
            record["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        return self.invoke("Recorder", {"Records": [record]})

    # ---- the API -----------------------------------------------------------------------------------------------------

    def call(self, method: str, path: str, body: Any = None, *, expect: int = 200) -> Answer:
        answer = self.up.call(method, path, body)
        assert answer.status == expect, f"{method} {path}: {answer.status} {answer.body[:200]!r}"
        return answer

    def submit(self, type: str = "demo.echo", payload: Any = None, **options: Any) -> str:
        answer = self.call("POST", "tasks", {"type": type, "payload": payload, **options}, expect=201)
        return str(answer.json["taskId"])

    def fetch(self, url: str) -> int:
        """The status an unsigned GET of a presigned URL gets."""
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code

    # ---- the table and the bucket, as root ---------------------------------------------------------------------------

    def item(self, item_id: str) -> Item:
        found = self.find(item_id)
        assert found is not None, f"there is no item {item_id}"
        return found

    def find(self, item_id: str) -> Item | None:
        key = {"TableName": self.up.record["tableName"], "Key": {"taskId": {"S": item_id}}}
        raw = self.up.client("dynamodb").get_item(**key, ConsistentRead=True).get("Item")
        return None if raw is None else from_item(raw)

    def put(self, item: Item) -> None:
        self.up.client("dynamodb").put_item(TableName=self.up.record["tableName"], Item=to_item(item))

    def change(self, item_id: str, **attributes: Any) -> Item:
        item = self.item(item_id) | attributes
        self.put({name: value for name, value in item.items() if value is not None})
        return item

    def remove(self, item_id: str) -> None:
        self.up.client("dynamodb").delete_item(TableName=self.up.record["tableName"], Key={"taskId": {"S": item_id}})

    def items(self, prefix: str = "") -> list[Item]:
        pages = self.up.client("dynamodb").get_paginator("scan").paginate(TableName=self.up.record["tableName"])
        rows = [from_item(raw) for page in pages for raw in page["Items"]]
        return [row for row in rows if row["taskId"].startswith(prefix)]

    def empty(self) -> None:
        """Nothing that an earlier probe left behind: neither in the table, the bucket nor the queues."""
        for row in self.items():
            self.remove(row["taskId"])
        for key in self.objects("bodies/"):
            self.delete_object(key)
        sqs = self.up.client("sqs")
        for url in sqs.list_queues().get("QueueUrls", []):
            sqs.purge_queue(QueueUrl=url)

    def objects(self, prefix: str) -> list[str]:
        s3, bucket = self.up.client("s3"), self.up.record["bucketName"]
        listed = s3.list_objects_v2(Bucket=bucket, Prefix=prefix)
        return [entry["Key"] for entry in listed.get("Contents", [])]

    def delete_object(self, key: str) -> None:
        self.up.client("s3").delete_object(Bucket=self.up.record["bucketName"], Key=key)

    def queue(self, name: str) -> str:
        (url,) = [url for url in self.up.client("sqs").list_queues()["QueueUrls"] if name in url]
        return str(url)

    def messages(self, name: str) -> int:
        attributes = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.up.client("sqs").get_queue_attributes(QueueUrl=self.queue(name), AttributeNames=attributes)
        return sum(int(found["Attributes"][each]) for each in attributes)

    # ---- waiting -----------------------------------------------------------------------------------------------------

    def until(self, look: Callable[[], Any], what: str) -> None:
        """Wait for what an executor does meanwhile."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not look():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)

    def becomes(self, task_id: str, status: str) -> Item:
        self.until(lambda: self.item(task_id)["status"] == status, f"{task_id} did not become {status}")
        return self.item(task_id)
