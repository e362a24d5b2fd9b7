"""cdk-nag's AwsSolutions rules, and the reasons for what is accepted."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from infra.assets import Project
from infra.config import load_config, read_context
from infra.routes import read_routes
from tests.infra.templates import Synthesised


def findings(
    environment: str, project: Project, outdir: Path, *, defect: bool = False, section: dict[str, Any] | None = None
) -> set[str]:
    """Rules that are neither obeyed nor acknowledged, as the validation report tells them."""
    return unacknowledged(synthesised_report(environment, project, outdir, defect=defect, section=section))


def synthesised_report(
    environment: str, project: Project, outdir: Path, *, defect: bool = False, section: dict[str, Any] | None = None
) -> dict[str, Any]:
    from aws_cdk import App
    from aws_cdk import aws_iam as iam

    from infra.application import build, check

    context = read_context()
    context["environments"][environment] |= section or {}
    app = App(context=context, outdir=str(outdir))
    stacks = build(app, load_config(context, environment), project)
    if defect:
        stacks.service.poller.role.add_to_policy(iam.PolicyStatement(actions=["dynamodb:*"], resources=["*"]))
    check(app)
    with suppress(RuntimeError):  # jsii has one exception for everything; the report says what it was
        app.synth()
    report: dict[str, Any] = json.loads((outdir / "validation-report.json").read_text())
    return report


def unacknowledged(report: dict[str, Any]) -> set[str]:
    return {
        violation["ruleName"]
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        if plugin["conclusion"] == "failure"
    }


@pytest.mark.parametrize("environment", ["local", "dev", "prod"])
def test_no_finding_is_left_without_a_reason(environment: str, project: Project, tmp_path: Path) -> None:
    assert findings(environment, project, tmp_path) == set()


def test_tokens_and_browsers_bring_no_finding(project: Project, tmp_path: Path) -> None:
    jwt = {"kind": "jwt", "issuer": "https://issuer.example", "audience": ["a"]}
    section = {"auth": jwt, "cors": {"allowOrigins": ["https://ops.example"]}}
    assert findings("prod", project, tmp_path, section=section) == set()


NETWORK = {"vpcId": "vpc-0a1b2c3d", "subnetIds": ["subnet-0a1b2c3d"]}
GIVEN_KEY = {
    "kind": "given",
    "keyArn": "arn:aws:kms:eu-central-1:111122223333:key/0f4c0000-0000-4000-8000-000000000000",
}
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "local": ("local", {}),
    "prod": ("prod", {}),
    "prod, own key": ("prod", {"encryption": {"kind": "own"}}),
    "prod, VPC": ("prod", {"vpc": NETWORK}),
    "prod, all that can be given": (
        "prod",
        {
            "encryption": GIVEN_KEY,
            "vpc": {**NETWORK, "securityGroupIds": ["sg-0a1b2c3d"]},
            "tracing": True,
            "rollout": "canary10Percent5Minutes",
            "cors": {"allowOrigins": ["https://ops.example"]},
            "roles": {"viewer": {}},
            "alarmEmails": ["ops@example.com"],
        },
    ),
}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_every_reason_is_for_a_finding_that_is_there(configuration: str, project: Project, tmp_path: Path) -> None:
    """A reason without its finding says what is no longer so, and would hide what comes to stand there."""
    environment, section = CONFIGURATIONS[configuration]
    reasons = Reasons()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("infra.acknowledge.Validations", reasons)
        rules = found_at(synthesised_report(environment, project, tmp_path, section=section))
    assert rules, "nothing was judged"
    accepted = {(rule, path) for rule, path in rules if any(reasons.covers(each, rule, path) for each in reasons.given)}
    assert rules - accepted == set()
    needless = [each for each in reasons.given if not any(reasons.covers(each, *found) for found in rules)]
    assert needless == []


class Reasons:
    """Takes the place of CDK's Validations: keeps what would be accepted where, and accepts nothing."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []
        self._path = ""

    def of(self, scope: Any) -> Reasons:
        self._path = scope.node.path
        return self

    def acknowledge(self, *rules: Any) -> None:
        self.given += [(rule.id, self._path) for rule in rules]

    @staticmethod
    def covers(reason: tuple[str, str], rule: str, path: str) -> bool:
        return reason[0] == rule and f"{path}/".startswith(f"{reason[1]}/")


def found_at(report: dict[str, Any]) -> set[tuple[str, str]]:
    """Each finding and the construct it is about."""
    return {
        (violation["ruleName"], construct["constructPath"])
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    }


@pytest.mark.parametrize("section", [{}, {"vpc": NETWORK, "encryption": {"kind": "own"}}], ids=["prod", "fenced"])
def test_a_wildcard_would_be_found(project: Project, tmp_path: Path, section: dict[str, Any]) -> None:
    found = findings("prod", project, tmp_path, defect=True, section=section)
    assert any("IAM5[Resource::*]" in rule for rule in found)
    assert any("IAM5[Action::dynamodb:*]" in rule for rule in found)


def test_what_is_accepted_is_this_and_has_its_reason(prod: Synthesised, local: Synthesised) -> None:
    assert set(accepted(prod)) == {"S1", "SQS3", "L1", "IAM5 on bodies/*", "IAM5 on reports/*", "IAM5 on archive/*"}
    calls = {name for name in accepted(local) if re.match(r"IAM5 on \$default/[A-Z]+/.*\*", name)}
    assert len(calls) == sum("{" in route.path for route in read_routes(Project().openapi))
    assert set(accepted(local)) - set(accepted(prod)) == {"S10", "SQS4", "SNS3", *calls}
    assert all(len(reason) >= 40 for reason in accepted(local).values())


def accepted(synthesised: Synthesised) -> dict[str, str]:
    """Acknowledged rules and their reasons; a finding on a bucket's prefix in short."""
    reasons: dict[str, str] = {}
    for path in synthesised.assembly.glob("*.metadata.json"):
        for entries in json.loads(path.read_text()).values():
            for entry in entries:
                if entry["type"] == "aws:cdk:acknowledged-rules":
                    reasons |= {shortened(rule): reason for rule, reason in entry["data"].items()}
    return reasons


def shortened(rule: str) -> str:
    return re.sub(r"IAM5\[Resource::[^/]*/(.*)\]", r"IAM5 on \1", rule.removeprefix("Annotation::AwsSolutions-"))
