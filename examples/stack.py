"""The running local stack as the demonstration sees it: its record, and what the tasks left in table and bucket."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thunder.local.aws import client

RECORD = Path(".thunder") / "local.json"


class NothingIsUp(Exception):
    """There is no local stack to show anything on."""


@dataclass(frozen=True)
class LocalStack:
    """Where the local stack answers. Its credentials belong to the embedded AWS alone."""

    endpoint: str
    api_url: str
    table_name: str
    bucket_name: str
    region: str
    access_key_id: str
    secret_access_key: str
    stacks: tuple[str, ...]

    @classmethod
    def of_record(cls, path: Path) -> "LocalStack":
        """Read the record `thunder local up` leaves. Raises NothingIsUp if there is none."""
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NothingIsUp(f"{path} is not there: start the local stack first, `make up`") from None
        return cls(
            endpoint=record["endpoint"],
            api_url=record["apiUrl"],
            table_name=record["tableName"],
            bucket_name=record["bucketName"],
            region=record["region"],
            access_key_id=record["accessKeyId"],
            secret_access_key=record["secretAccessKey"],
            stacks=tuple(record["stacks"]),
        )

    def start_poller(self) -> None:
        """Run the poller now, as its schedule does every minute: a new stack would otherwise wait for the first one.

        Two pollers at once are no harm; a claim is won by one of them.
        """
        functions = client("lambda", self.endpoint)
        pages = functions.get_paginator("list_functions").paginate()
        names = [function["FunctionName"] for page in pages for function in page["Functions"]]
        for name in names:
            if name.startswith(tuple(f"{stack}-Poller" for stack in self.stacks)):
                functions.invoke(FunctionName=name, InvocationType="Event", Payload=b"{}")

    def counts(self, keys: Sequence[str]) -> dict[str, int]:
        """What the counters of `demo.count` hold; a counter nobody added to is absent."""
        dynamodb = client("dynamodb", self.endpoint)
        found = {}
        for key in keys:
            answer = dynamodb.get_item(
                TableName=self.table_name, Key={"taskId": {"S": f"counter#{key}"}}, ConsistentRead=True
            )
            if "Item" in answer:
                found[key] = int(answer["Item"]["count"]["N"])
        return found

    def absent(self, keys: Iterable[str]) -> list[str]:
        """Those of the keys that the bucket does not hold."""
        pages = client("s3", self.endpoint).get_paginator("list_objects_v2")
        listed = pages.paginate(Bucket=self.bucket_name, Prefix="reports/")
        present = {entry["Key"] for page in listed for entry in page.get("Contents", [])}
        return sorted(set(keys) - present)

    def save(self, key: str, directory: Path) -> Path:
        """Copy one object to a file, under its name with the slashes made dashes."""
        body: Any = client("s3", self.endpoint).get_object(Bucket=self.bucket_name, Key=key)["Body"]
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / key.removeprefix("reports/").replace("/", "-")
        path.write_bytes(body.read())
        return path
