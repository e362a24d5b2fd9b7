"""`thunderagent.cdk`: the service in somebody else's stack, and the example that does so."""

from __future__ import annotations

import inspect
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from infra.assets import AssetError, Project, staged
from tests.infra.templates import of_type, properties, readable, write
from tests.infra.test_security_findings import found_at, unacknowledged
from tests.support.example_apps import example
from tests.support.wheels import only_from, repack
from thunderagent.cdk import ConfigError, DataProtection, ExecutorProfile, Throttling
from thunderagent.metrics import METRICS

HANDLERS = ExecutorProfile(name="default", handlers=("functions/executor/tasks",))


def template(app: Any, name: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDK_VALIDATION", "false")
        found: dict[str, Any] = app.synth().get_stack_by_name(name).template
    return found


def test_the_embedded_example_synthesises(tmp_path: Path) -> None:
    from aws_cdk import App

    app = App(outdir=str(tmp_path / "out"))
    example("embedded").Shop(app, "Shop")
    shop = template(app, "Shop")

    assert len(of_type(shop, "AWS::DynamoDB::GlobalTable")) == 2
    executor = role_policy(shop, "TasksServiceExecutordefault")
    assert [s for s in executor if "Orders" in json.dumps(s["Resource"]) and "dynamodb:GetItem" in s["Action"]]
    (web,) = role_policy(shop, "Web")
    assert web["Action"] == "execute-api:Invoke"
    assert [readable(resource).rpartition("$default/")[2] for resource in web["Resource"]] == [
        "POST/tasks",
        "POST/tasks/batch",
    ]
    (asset,) = [path for path in (tmp_path / "out").glob("asset.*") if (path / "tasks" / "invoices.py").exists()]
    assert (asset / "handler.py").exists()
    registry = registry_in(tmp_path / "out")
    assert registry["types"]["invoice.write"]["profile"] == "default"


def registry_in(out: Path) -> Any:
    (path,) = out.glob("asset.*/python/thunderagent_registry/registry.json")
    return json.loads(path.read_text())


def role_policy(shop: dict[str, Any], role: str) -> list[dict[str, Any]]:
    statements = [
        policy["PolicyDocument"]["Statement"]
        for policy in properties(shop, "AWS::IAM::Policy")
        if policy["Roles"][0]["Ref"].startswith(role)
    ]
    assert len(statements) == 1
    found: list[dict[str, Any]] = statements[0]
    return found


@pytest.fixture
def tools(project: Project, tmp_path: Path) -> Any:
    """An app with a stack, and how to put a ThunderAgent into it."""
    from aws_cdk import App, Stack

    from thunderagent.cdk import ThunderAgent

    app = App(outdir=str(tmp_path / "out"))
    stack = Stack(app, "Mine")

    def put(id: str, **props: Any) -> Any:
        given = {"project": project, "executors": [HANDLERS], "alarm_emails": ["me@example.com"]}
        return ThunderAgent(stack, id, **{**given, **props})

    return app, stack, put


def test_two_stand_in_one_stack_and_count_apart(tools: Any) -> None:
    app, _, put = tools
    put("Tasks")
    put("Others")
    mine = template(app, "Mine")
    tables = of_type(mine, "AWS::DynamoDB::GlobalTable")
    assert sorted(id.removesuffix(id[-8:]) for id in tables) == ["OthersTaskTable", "TasksTaskTable"]
    assert all(table["DeletionPolicy"] == "Retain" for table in tables.values())
    names = {function["Environment"]["Variables"].get("SERVICE_NAME") for function in properties_of_functions(mine)}
    assert names - {None} == {"Mine-Tasks", "Mine-Others"}


def properties_of_functions(found: dict[str, Any]) -> list[dict[str, Any]]:
    return properties(found, "AWS::Lambda::Function")


def test_every_metric_is_a_method(tools: Any) -> None:
    _, _, put = tools
    tasks = put("Tasks")
    for name, emitted in METRICS.items():
        method = getattr(tasks, "metric_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
        dimensions = [set(dict(method(**given).dimensions)) for given in ({"queue": "mail"}, {}) if fits(method, given)]
        assert method().metric_name == name
        assert {*map(frozenset, dimensions)} <= {*map(frozenset, emitted.dimension_sets)}
        assert dict(method().dimensions)["Service"] == "Mine-Tasks"
    assert dict(tasks.metric_failed().dimensions) == {"Service": "Mine-Tasks"}
    assert dict(tasks.metric_backlog("reports").dimensions) == {"Service": "Mine-Tasks", "Queue": "reports"}
    by_type = dict(tasks.metric_failed("reports", type="report.make").dimensions)
    assert by_type == {"Service": "Mine-Tasks", "Queue": "reports", "Type": "report.make"}
    assert tasks.metric_queue_latency(statistic="p99").statistic == "p99"
    with pytest.raises(ValueError, match="LeasesExpired is not emitted by Service, Queue"):
        tasks.metric("LeasesExpired", queue="mail")


def fits(method: Any, given: dict[str, Any]) -> bool:
    return set(given) <= set(inspect.signature(method).parameters)


# ---- what is given -----------------------------------------------------------------------------------------------


def test_table_and_bucket_of_your_own_are_used(tools: Any) -> None:
    from aws_cdk import aws_dynamodb as dynamodb
    from aws_cdk import aws_s3 as s3

    app, stack, put = tools
    arn = "arn:aws:dynamodb:eu-central-1:111122223333:table/Kept"
    table = dynamodb.TableV2.from_table_attributes(
        stack, "Kept", table_arn=arn, table_stream_arn=f"{arn}/stream/2026-01-01T00:00:00.000"
    )
    bucket = s3.Bucket.from_bucket_name(stack, "KeptBucket", "kept-bucket")
    put("Tasks", table=table, bucket=bucket)
    mine = template(app, "Mine")
    assert not of_type(mine, "AWS::DynamoDB::GlobalTable")
    assert not of_type(mine, "AWS::S3::Bucket")
    api = next(
        each for each in properties_of_functions(mine) if each.get("Description") == "Submits, reads and operates tasks"
    )
    assert api["Environment"]["Variables"]["TABLE_NAME"] == "Kept"
    assert api["Environment"]["Variables"]["BUCKET_NAME"] == "kept-bucket"


def test_a_table_without_a_stream_is_refused(tools: Any) -> None:
    from aws_cdk import aws_dynamodb as dynamodb

    _, stack, put = tools
    with pytest.raises(ValueError, match=r"Mine/Tasks: the table cannot hold tasks: it has no stream, or"):
        put("Tasks", table=dynamodb.TableV2.from_table_name(stack, "Bare", "bare"))


def test_a_table_of_another_form_is_refused_with_all_that_is_wrong(tools: Any) -> None:
    from aws_cdk import aws_dynamodb as dynamodb

    _, stack, put = tools
    number = dynamodb.Attribute(name="id", type=dynamodb.AttributeType.NUMBER)
    bare = dynamodb.TableV2(stack, "Bare", partition_key=number)
    with pytest.raises(ValueError, match="cannot hold tasks") as told:
        put("Tasks", table=bare)
    assert str(told.value).split(": ", 2)[2].split("; ") == [
        "its key is id (N), not taskId (S)",
        "it has no index dispatch-index on dispatchKey (S) and dueAt (N)",
        "its stream is None, not NEW_AND_OLD_IMAGES",
        "its TTL attribute is None, not expiresAt",
    ]
    wrong = dynamodb.Table(
        stack,
        "Wrong",
        partition_key=dynamodb.Attribute(name="taskId", type=dynamodb.AttributeType.STRING),
        stream=dynamodb.StreamViewType.NEW_IMAGE,
        time_to_live_attribute="expiresAt",
    )
    wrong.add_global_secondary_index(
        index_name="dispatch-index",
        partition_key=dynamodb.Attribute(name="dispatchKey", type=dynamodb.AttributeType.STRING),
    )
    with pytest.raises(ValueError, match="cannot hold tasks") as told:
        put("Others", table=wrong)
    assert str(told.value).split(": ", 2)[2].split("; ") == [
        "its index dispatch-index is on dispatchKey (S), not dispatchKey (S) and dueAt (N)",
        "its stream is NEW_IMAGE, not NEW_AND_OLD_IMAGES",
    ]


def test_whatever_is_given_is_used(tools: Any) -> None:
    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_events as events
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_sns as sns

    from thunderagent.cdk import TaskTable

    app, stack, put = tools
    key = kms.Key(stack, "MyKey")
    vpc = ec2.Vpc(stack, "MyVpc", max_azs=2)
    bus = events.EventBus(stack, "MyBus")
    table = TaskTable(stack, "MyTable", protection=DataProtection(retain=False)).table
    topic = sns.Topic(stack, "MyTopic")
    tasks = put(
        "Tasks",
        table=table,
        key=key,
        vpc=vpc,
        vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
        event_bus=bus,
        alarm_topic=topic,
        alarm_emails=[],
        architecture="x86_64",
    )
    assert (tasks.table, tasks.event_bus, tasks.key) == (table, bus, key)
    mine = template(app, "Mine")
    assert len(of_type(mine, "AWS::DynamoDB::GlobalTable")) == len(of_type(mine, "AWS::Events::EventBus")) == 1
    assert len(of_type(mine, "AWS::SNS::Topic")) == 1
    ours = [each for each in properties_of_functions(mine) if "TABLE_NAME" in each["Environment"]["Variables"]]
    assert len(ours) == len(tasks.functions) == 6
    assert all(len(each["VpcConfig"]["SubnetIds"]) == 2 for each in ours)
    assert all(each["Architectures"] == ["x86_64"] for each in ours)
    groups = [each for id, each in of_type(mine, "AWS::Logs::LogGroup").items() if id.startswith("Tasks")]
    assert all(readable(each["Properties"]["KmsKeyId"]).startswith("MyKey") for each in groups)
    assert {readable(alarm["AlarmActions"][0])[1:8] for alarm in properties(mine, "AWS::CloudWatch::Alarm")} == {
        "MyTopic"
    }


def test_values_that_are_not_allowed_are_told_all_at_once(tools: Any) -> None:
    _, _, put = tools
    with pytest.raises(ConfigError) as told:
        put("Tasks", log_retention_days=8, throttling=Throttling(burst=0), alarm_emails=["nobody"])
    names = [line.split(" is ")[0] for line in str(told.value).splitlines()]
    assert names == ["prod.throttling.burst", "prod.logRetentionDays", "prod.alarmEmails"]
    with pytest.raises(
        ConfigError, match=r"Mine/Others\.executors\.big\.memoryMiB is 1: it must be an integer from 128"
    ):
        put("Others").add_executor("big", handlers=["big"], memory_mib=1)


# ---- what is added -----------------------------------------------------------------------------------------------


def test_executors_and_queues_are_added(tmp_path: Path) -> None:
    """The example with several: each has its own function, role and alarms; the limit of a queue is deployed."""
    from aws_cdk import App

    repack(tmp_path / "wheels", "MarkupSafe")
    app = App(outdir=str(tmp_path / "out"), context={"thunder:embedded": "true"})
    with only_from(tmp_path / "wheels"):
        example("several").Studio(app, "Studio")
    studio = template(app, "Studio")
    functions = {
        each["Environment"]["Variables"]["EXECUTOR_PROFILE"]: each
        for each in properties_of_functions(studio)
        if "EXECUTOR_PROFILE" in each["Environment"]["Variables"]
    }
    assert {name: each["MemorySize"] for name, each in functions.items()} == {"mail": 512, "video": 2048}
    assert {name: len(each["Layers"]) for name, each in functions.items()} == {"mail": 4, "video": 3}
    poller = role_policy(studio, "TasksServicePoller")
    assert sum(statement["Action"] == "lambda:InvokeFunction" for statement in poller) == 2
    registry = registry_in(tmp_path / "out")
    assert registry["queues"] == {
        "default": {},
        "mail": {},
        "newsletter": {"ratePerSecond": 10, "burst": 20},
        "video": {},
    }
    assert registry["types"]["newsletter.render"]["queue"] == "newsletter"
    executors = json.loads(
        readable(
            next(
                each["Environment"]["Variables"]["EXECUTORS"]
                for each in properties_of_functions(studio)
                if each.get("Description", "").startswith("Sweeps")
            )
        )
    )
    assert executors["video"]["maxInFlight"] == 4
    alarms = of_type(studio, "AWS::CloudWatch::Alarm")
    for expected in ("TasksFailednewsletter", "ExecutorErrorsvideo", "ExecutorThrottledmail"):
        assert any(expected in id for id in alarms)
    (dashboard,) = properties(studio, "AWS::CloudWatch::Dashboard")
    assert "newsletter: flow" in readable(dashboard["DashboardBody"])
    assert "aws:SecureTransport" not in json.dumps(studio), "the embedded AWS has no TLS"


def test_what_cannot_be_added_is_refused(tools: Any) -> None:
    _, _, put = tools
    tasks = put("Tasks")
    with pytest.raises(ValueError, match="there is an executor 'default' already"):
        tasks.add_executor("default", handlers=["functions/executor/tasks"])
    with pytest.raises(ValueError, match="there is no executor 'mail'; there are default"):
        tasks.add_queue("post", executor="mail")
    with pytest.raises(ConfigError, match=r"queues\.slow\.ratePerSecond is 0: it must be a number"):
        tasks.add_queue("slow", rate_per_second=0)
    with pytest.raises(AssetError, match=r"executors\.big\.handlers: nowhere is missing"):
        tasks.add_executor("big", handlers=["nowhere"])


def test_handlers_that_cannot_be_imported_say_what_to_do(tools: Any, project: Project, tmp_path: Path) -> None:
    app, _, put = tools
    write(tmp_path / "tasks" / "heavy.py", "import no_such_package\n")
    put("Tasks", project=tmp_path, executors=[ExecutorProfile(name="default", handlers=("tasks",))])
    with pytest.raises(RuntimeError, match=r"No module named 'no_such_package'.*\n?.*install what they import beside"):
        template(app, "Mine")


def test_a_registry_built_elsewhere_is_taken_as_it_is(tools: Any, tmp_path: Path) -> None:
    app, _, put = tools
    built = tmp_path / "registry.json"
    built.write_text(json.dumps({"formatVersion": 1, "profiles": {}, "queues": {"default": {}}, "types": {}}))
    put("Tasks", registry=built)
    template(app, "Mine")
    assert registry_in(tmp_path / "out") == json.loads(built.read_text())


def test_it_brings_no_security_finding(tools: Any, tmp_path: Path) -> None:
    from aws_cdk import aws_iam as iam

    from infra.application import check

    app, stack, put = tools
    caller = iam.Role(stack, "Caller", assumed_by=iam.AccountRootPrincipal())
    tasks = put("Tasks")
    tasks.grant_operate(caller)
    tasks.add_executor("second", handlers=["examples/demo"], queues=["second"])
    check(app)
    with suppress(RuntimeError):
        app.synth()
    assert unacknowledged(json.loads((tmp_path / "out" / "validation-report.json").read_text())) == set()


def test_what_is_given_brings_no_finding_of_ours(tools: Any, tmp_path: Path) -> None:
    """The topic, the VPC and the key have findings of their own here: those are their owner's."""
    from aws_cdk import aws_ec2 as ec2
    from aws_cdk import aws_kms as kms
    from aws_cdk import aws_sns as sns

    from infra.application import check

    app, stack, put = tools
    given = {"key": kms.Key(stack, "MyKey"), "vpc": ec2.Vpc(stack, "MyVpc"), "alarm_topic": sns.Topic(stack, "MyTopic")}
    put("Tasks", **given, alarm_emails=[])
    check(app)
    with suppress(RuntimeError):
        app.synth()
    found = found_at(json.loads((tmp_path / "out" / "validation-report.json").read_text()))
    assert ("AwsSolutions-SNS3", "Mine/MyTopic/Resource") in found
    assert {each for each in found if each[1].startswith("Mine/Tasks/")} == set()


def test_the_layer_does_not_hold_the_construct() -> None:
    with staged(Project().library_parts()) as directory:
        package = Path(directory) / "python" / "thunderagent"
        assert (package / "store.py").exists()
        assert not (package / "cdk").exists()


def test_a_registry_that_was_not_built_is_asked_for_where_it_belongs(project: Project, tmp_path: Path) -> None:
    with pytest.raises(AssetError, match=f"registry build --env prod --root {tmp_path}`"):
        Project(project.root, own=tmp_path).read_registry("prod")
