"""New code of executors by degrees: off by default, by CodeDeploy where it is asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.assets import Project
from infra.config import ConfigError, load_config, read_context
from infra.environment import ROLLOUTS
from tests.infra.templates import Synthesise, Synthesised, functions, of_type, properties, readable
from tests.infra.test_security_findings import findings

GRADUAL = {"environments": {"prod": {**read_context()["environments"]["prod"], "rollout": "canary10Percent5Minutes"}}}


@pytest.fixture(scope="module")
def gradual(synthesise: Synthesise) -> Synthesised:
    return synthesise("prod", GRADUAL)


def test_it_is_off_unless_asked_for(synthesised: Synthesised) -> None:
    for resource_type in ("AWS::Lambda::Alias", "AWS::Lambda::Version", "AWS::CodeDeploy::DeploymentGroup"):
        assert of_type(synthesised.service, resource_type) == {}


def test_an_unknown_rollout_is_refused_with_what_it_may_be() -> None:
    context = {"environments": {"prod": {"rollout": "slowly"}}}
    with pytest.raises(ConfigError, match=r"rollout is 'slowly': it must be one of allAtOnce, canary10Percent5Minutes"):
        load_config(context, "prod")


@pytest.mark.parametrize("rollout", ROLLOUTS[1:])
def test_every_rollout_is_one_that_codedeploy_has(rollout: str) -> None:
    from aws_cdk import App, Stack

    from infra.constructs.gradual import _configuration

    name = Stack(App(), "S").resolve(_configuration(rollout).deployment_config_name)
    assert name.startswith("CodeDeployDefault.Lambda")
    assert name.removeprefix("CodeDeployDefault.Lambda").lower() == rollout.lower()


def test_pollers_invoke_the_alias_and_may(gradual: Synthesised) -> None:
    found = functions(gradual.service)
    for name in ("poller", "doorbell"):
        told = json.loads(readable(found[name]["Environment"]["Variables"]["EXECUTORS"]))
        assert told["default"]["function"].endswith(":live")
    statements = [
        statement
        for policy in properties(gradual.service, "AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Action"] == "lambda:InvokeFunction"
    ]
    qualified = [each for each in statements if ":live" in readable_list(each["Resource"])]
    assert len(qualified) == 2


def readable_list(resource: object) -> str:
    return json.dumps([readable(each) for each in resource] if isinstance(resource, list) else readable(resource))


def test_the_alias_is_invoked_once_and_within_the_lease(gradual: Synthesised) -> None:
    """Settings of the function do not hold for its alias."""
    configs = properties(gradual.service, "AWS::Lambda::EventInvokeConfig")
    executor = functions(gradual.service)["executor"]["LogicalId"]
    of_executor = [each for each in configs if each["FunctionName"] == {"Ref": executor}]
    assert len(of_executor) == 2
    assert sum(each["Qualifier"] == "$LATEST" for each in of_executor) == 1
    first, second = ({k: v for k, v in each.items() if k != "Qualifier"} for each in of_executor)
    assert first == second
    assert first["MaximumRetryAttempts"] == 0


def test_the_alias_brings_the_executor_no_right_but_to_send(gradual: Synthesised) -> None:
    """CDK's own destinations let it look at the queue as well, and use a queue's key by wildcards."""
    actions = {
        action
        for id, policy in of_type(gradual.service, "AWS::IAM::Policy").items()
        if id.startswith("Executor")
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    assert {action for action in actions if action.startswith("sqs:")} == {"sqs:SendMessage"}


def test_alarms_take_it_back(gradual: Synthesised) -> None:
    (group,) = properties(gradual.service, "AWS::CodeDeploy::DeploymentGroup")
    assert group["AutoRollbackConfiguration"]["Enabled"] is True
    assert "DEPLOYMENT_STOP_ON_ALARM" in group["AutoRollbackConfiguration"]["Events"]
    named = {each["Name"]["Ref"] for each in group["AlarmConfiguration"]["Alarms"]}
    assert sorted(name.removeprefix("Monitoring")[:10] for name in named) == ["ExecutorEr", "FailureRat", "LeasesExpi"]
    (alias,) = of_type(gradual.service, "AWS::Lambda::Alias").values()
    assert alias["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"]


def test_it_brings_no_security_finding(project: Project, tmp_path: Path) -> None:
    assert findings("prod", project, tmp_path, section={"rollout": ROLLOUTS[1]}) == set()
