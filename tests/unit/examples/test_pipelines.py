"""The pipeline for users: it parses, what it calls is there, and it may do no more than it needs."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tests.support.documented import ROOT, Block, Command, commands_of
from tests.unit.docs.test_commands import check

PIPELINES = ROOT / "examples" / "pipelines"
WORKFLOW: dict[str, Any] = yaml.safe_load((PIPELINES / "github-actions.yml").read_text())
JOBS: dict[str, Any] = WORKFLOW["jobs"]
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]
RUNS = [
    command
    for name, step in STEPS
    if "run" in step
    for command in commands_of(Block(f"github-actions.yml, {name}", 1, "sh", step["run"]))
]


@pytest.mark.parametrize("command", RUNS, ids=str)
def test_what_it_runs_is_there(command: Command) -> None:
    if command.program != "echo":
        check(command)


def test_it_goes_from_checks_to_dev_to_a_drill_to_prod() -> None:
    assert JOBS["dev"]["needs"] == ["check", "synth"]
    assert (JOBS["drill"]["needs"], JOBS["prod"]["needs"]) == ("dev", "drill")
    assert JOBS["prod"]["environment"] == "production", "whose reviewers approve"


def test_what_is_piped_into_a_deployment_is_the_name_it_asks_for() -> None:
    piped = re.findall(r"echo (\w+) \| make deploy ENV=(\w+)", (PIPELINES / "github-actions.yml").read_text())
    assert piped == [("dev", "dev"), ("prod", "prod")]


def test_every_action_is_pinned_to_a_version() -> None:
    used = [step["uses"] for _, step in STEPS if "uses" in step]
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", each)] == []


def test_only_jobs_that_reach_the_account_may_ask_for_its_token() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    asking = {name for name, job in JOBS.items() if job.get("permissions", {}).get("id-token") == "write"}
    reaching = {name for name, step in STEPS if "configure-aws-credentials" in step.get("uses", "")}
    assert asking == reaching == {"dev", "drill", "prod"}
    assert {name for name in reaching if "environment" in JOBS[name]} == reaching


def policy(name: str) -> list[dict[str, Any]]:
    document = json.loads((PIPELINES / name).read_text())
    assert document["Version"] == "2012-10-17"
    statements: list[dict[str, Any]] = document["Statement"]
    return statements


def test_only_one_environment_of_one_repository_is_trusted() -> None:
    (statement,) = policy("trust-policy.json")
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    issuer = "token.actions.githubusercontent.com"
    assert statement["Principal"]["Federated"].endswith(f":oidc-provider/{issuer}")
    conditions = statement["Condition"]["StringEquals"]
    assert conditions[f"{issuer}:aud"] == "sts.amazonaws.com"
    assert conditions[f"{issuer}:sub"] == "repo:OWNER/REPOSITORY:environment:dev"


def test_the_role_changes_nothing_by_itself() -> None:
    """It assumes the bootstrap's roles; everything else is a look, or a call that the API judges."""
    for statement in policy("permissions-policy.json"):
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        for action in actions:
            verb = action.partition(":")[2]
            looks = verb.startswith(("Describe", "List", "Get", "BatchGet", "Query", "Scan"))
            assert looks or action in {"sts:AssumeRole", "execute-api:Invoke"}, action
            assert "*" not in action
