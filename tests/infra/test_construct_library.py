"""`thunderagent.cdk`: the service in somebody else's stack, and the example that does so."""

from __future__ import annotations

import importlib.util
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infra.assets import AssetError, Project, staged
from infra.config import ROOT
from tests.infra.templates import of_type, properties, readable
from tests.infra.test_security_findings import unacknowledged
from thunder.cli.main import main

EXAMPLE = ROOT / "examples" / "apps" / "embedded"


def template(app: Any, name: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CDK_VALIDATION", "false")
        found: dict[str, Any] = app.synth().get_stack_by_name(name).template
    return found


def test_the_embedded_example_synthesises(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "embedded"
    shutil.copytree(EXAMPLE, own, ignore=shutil.ignore_patterns("__pycache__", "build", "cdk.out"))
    built = CliRunner().invoke(main, ["registry", "build", "--env", "prod", "--root", str(own)])
    assert built.exit_code == 0, built.output
    spec = importlib.util.spec_from_file_location("embedded_app", own / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "Project", lambda own: Project(project.root, own=own))
    from aws_cdk import App

    app = App(outdir=str(tmp_path / "out"))
    module.Shop(app, "Shop")
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
        return ThunderAgent(stack, id, project=project, alarm_email="me@example.com", **props)

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


def test_metrics_are_those_of_this_service(tools: Any) -> None:
    _, _, put = tools
    tasks = put("Tasks")
    for metric, name in (
        (tasks.metric_backlog("reports"), "Backlog"),
        (tasks.metric_oldest_due_age("reports"), "OldestDueAge"),
        (tasks.metric_failed("reports"), "Failed"),
        (tasks.metric_succeeded("reports"), "Succeeded"),
    ):
        assert (metric.namespace, metric.metric_name) == ("ThunderAgent", name)
        assert dict(metric.dimensions) == {"Service": "Mine-Tasks", "Queue": "reports"}
    assert dict(tasks.metric("LeasesExpired").dimensions) == {"Service": "Mine-Tasks"}


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
    with pytest.raises(Exception, match="Mine/Tasks: the table has no stream"):
        put("Tasks", table=dynamodb.TableV2.from_table_name(stack, "Bare", "bare"))


def test_it_brings_no_security_finding(tools: Any, tmp_path: Path) -> None:
    from aws_cdk import aws_iam as iam

    from infra.application import check

    app, stack, put = tools
    caller = iam.Role(stack, "Caller", assumed_by=iam.AccountRootPrincipal())
    put("Tasks").grant_operate(caller)
    check(app)
    with suppress(RuntimeError):
        app.synth()
    assert unacknowledged(json.loads((tmp_path / "out" / "validation-report.json").read_text())) == set()


def test_the_layer_does_not_hold_the_construct() -> None:
    with staged(Project().library_parts()) as directory:
        package = Path(directory) / "python" / "thunderagent"
        assert (package / "store.py").exists()
        assert not (package / "cdk").exists()


def test_a_registry_that_was_not_built_is_asked_for_where_it_belongs(project: Project, tmp_path: Path) -> None:
    with pytest.raises(AssetError, match=f"registry build --env prod --root {tmp_path}`"):
        Project(project.root, own=tmp_path).read_registry("prod")
