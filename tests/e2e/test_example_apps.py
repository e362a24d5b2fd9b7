"""The example apps, deployed beside each other into one account: a task runs through each, and none meets another's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import Credentials

from infra.node import prefer_bundled_node
from tests.support.example_apps import example
from tests.support.local_stack import UpStack, copy_up
from tests.support.wheels import only_from, repack
from thunder.destruction import data_of, empty_bucket, protected_tables
from thunder.local.cdk import Cdk
from thunder.local.checkout import Checkout
from thunder.local.progress import SILENT
from thunder.local.stack import local_api_url
from thunder.local.state import StateDir
from thunderagent import schema
from thunderagent.client import ThunderClient

WAIT_SECONDS = 60


@dataclass(frozen=True)
class Apps:
    """The three apps, up in one embedded AWS."""

    aws: UpStack
    clients: Mapping[str, ThunderClient]
    kept_table: str

    def run(self, stack: str, type: str, payload: Any) -> Any:
        """The result of a task of this app."""
        client = self.clients[stack]
        task = client.wait(client.submit(type, payload).task_id, timeout_seconds=WAIT_SECONDS)
        assert task.status == "SUCCESS", task
        return task.result


def kept_table(stack: UpStack) -> tuple[str, str, str]:
    """A table somebody made by hand: its name, its ARN and its stream's."""
    keys = {schema.TABLE_KEY: "S", schema.INDEX_HASH: "S", schema.INDEX_RANGE: "N"}
    description = stack.client("dynamodb").create_table(
        TableName="kept-for-years",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in keys.items()],
        KeySchema=[{"AttributeName": schema.TABLE_KEY, "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": schema.INDEX_NAME,
                "KeySchema": [
                    {"AttributeName": schema.INDEX_HASH, "KeyType": "HASH"},
                    {"AttributeName": schema.INDEX_RANGE, "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )["TableDescription"]
    return description["TableName"], description["TableArn"], description["LatestStreamArn"]


def quiet(stack: UpStack) -> None:
    """The stack that came with the copy sweeps and reaps no more: it has nothing to do with these tests."""
    events = stack.client("events")
    for rule in events.list_rules()["Rules"]:
        events.disable_rule(Name=rule["Name"])


def synthesise(out: Path, *, table_arn: str, stream_arn: str) -> None:
    prefer_bundled_node()
    from aws_cdk import App

    app = App(outdir=str(out), context={"thunder:embedded": "true"})
    example("embedded").Shop(app, "Shop")
    example("several").Studio(app, "Studio")
    example("existing_table").Kept(app, "Kept", table_arn=table_arn, stream_arn=stream_arn)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDK_VALIDATION", "false")
        app.synth()


def client_of(stack: UpStack, name: str) -> ThunderClient:
    outputs = stack.client("cloudformation").describe_stacks(StackName=name)["Stacks"][0]["Outputs"]
    (url,) = (output["OutputValue"] for output in outputs if output["OutputKey"] == "TasksUrl")
    record = stack.record
    port = int(re.sub(r".*:", "", record["endpoint"]))
    credentials = Credentials(record["accessKeyId"], record["secretAccessKey"])
    return ThunderClient(local_api_url(port, {"ApiUrl": url}), credentials=credentials, region=record["region"])


@pytest.fixture(scope="module")
def apps(deployed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apps]:
    root = tmp_path_factory.mktemp("apps")
    repack(root / "wheels", "MarkupSafe")
    stack = copy_up(deployed, root / "state", SILENT)
    try:
        quiet(stack)
        name, table_arn, stream_arn = kept_table(stack)
        state = StateDir(root / "cdk")
        state.create()
        with only_from(root / "wheels"):
            synthesise(state.cloud_assembly, table_arn=table_arn, stream_arn=stream_arn)
        Cdk(Checkout.of_this_installation(), state, SILENT).deploy(stack.record["endpoint"])
        yield Apps(stack, {each: client_of(stack, each) for each in ("Shop", "Studio", "Kept")}, name)
    finally:
        stack.local.down()


def test_embedded_in_another_stack(apps: Apps) -> None:
    order = {"order": "o-1", "lines": [{"price": 3, "count": 2}, {"price": 5, "count": 1}]}
    assert apps.run("Shop", "invoice.write", order) == {"order": "o-1", "total": 11}


def test_several_executors_one_with_a_package_of_its_own(apps: Apps) -> None:
    mail = {"to": "a@example.com", "name": "<b>Ann</b>", "list": "weekly"}
    html = "<p>Dear &lt;b&gt;Ann&lt;/b&gt;</p>"
    assert apps.run("Studio", "mail.render", mail) == {"to": "a@example.com", "html": html}
    assert apps.run("Studio", "newsletter.render", mail)["list"] == "weekly"
    assert apps.run("Studio", "video.plan", {"seconds": 25, "part": 10}) == {"parts": [[0, 10], [10, 20], [20, 25]]}
    newsletter = apps.clients["Studio"].queue("newsletter")
    assert (newsletter["ratePerSecond"], newsletter["burst"]) == (10, 20)


def test_on_a_table_that_was_there(apps: Apps) -> None:
    assert apps.run("Kept", "words.count", {"text": "to be or not to be"}) == {"to": 2, "be": 2, "or": 1, "not": 1}
    (task,) = apps.clients["Kept"].list(status="SUCCESS")
    rows = apps.aws.client("dynamodb").scan(TableName=apps.kept_table)["Items"]
    assert task.task_id in {row["taskId"]["S"] for row in rows}


def test_what_a_destruction_finds_and_empties(apps: Apps) -> None:
    data = data_of(apps.aws.client, "ThunderAgent-local-Data")
    assert data.tables == [apps.aws.record["tableName"]]
    assert data.buckets == [apps.aws.record["bucketName"]]
    assert protected_tables(apps.aws.client, data) == []
    s3 = apps.aws.client("s3")
    for key in ("bodies/a", "archive/b"):
        s3.put_object(Bucket=data.buckets[0], Key=key, Body=json.dumps(key).encode())
    assert empty_bucket(apps.aws.client, data.buckets[0]) >= 2
    s3.delete_bucket(Bucket=data.buckets[0])
