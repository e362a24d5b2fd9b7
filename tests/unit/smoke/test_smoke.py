"""A smoke run asks first, tells what it saw, and removes what it made, whatever happens. No account is needed here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from thunder.deployment import Target
from thunder.local.checkout import Checkout
from thunder.smoke import __main__ as smoke
from thunder.smoke.account import Account
from thunder.smoke.checks import CHECKS, Check, Failed, NotSeen, Verdict, run_check
from thunder.smoke.configuration import config
from thunder.smoke.place import Place, unique_name

TARGET = Target(account="111122223333", region="eu-central-1", identity="arn:aws:iam::111122223333:user/somebody")


class Nothing:
    """An account in which nothing is found, or `remains`; every call is noted."""

    def __init__(self, remains: Sequence[str] = ()) -> None:
        self.remains = remains
        self.exceptions = self
        self.ClientError = LookupError

    def __call__(self, service: str) -> Any:
        return self

    def describe_stack_resources(self, StackName: str) -> Any:
        raise LookupError("does not exist")

    def get_paginator(self, operation: str) -> Any:
        page = {
            "get_resources": {"ResourceTagMappingList": [{"ResourceARN": arn} for arn in self.remains]},
            "describe_log_groups": {"logGroups": []},
        }[operation]
        return type("Paginator", (), {"paginate": lambda self, **arguments: [page]})()


@dataclass
class Cdk:
    """Notes what it is asked; `codes` are its exit codes by verb."""

    codes: dict[str, int] = field(default_factory=dict)
    asked: list[list[str]] = field(default_factory=list)
    environments: list[Mapping[str, str]] = field(default_factory=list)

    def __call__(self, command: Sequence[str], env: Mapping[str, str]) -> int:
        self.asked.append(list(command[2:]))
        self.environments.append(env)
        return self.codes.get(command[2], 0)


def account(cdk: Cdk, remains: Sequence[str] = ()) -> Account:
    return Account(
        Checkout.of_this_installation(), TARGET, "ThunderSmokeabc", run=cdk, clients=lambda target: Nothing(remains)
    )


def place(**more: Any) -> Place:
    return Place(target=None, stack="S", is_aws=True, sleep=lambda seconds: None, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("raised", "verdict"), [(None, Verdict.OK), (Failed("x"), Verdict.FAILED), (NotSeen("x"), Verdict.NOT_SEEN)]
)
def test_a_check_ends_in_a_word(raised: Exception | None, verdict: Verdict) -> None:
    def look(place: Place) -> str:
        if raised:
            raise raised
        return "seen"

    assert run_check(Check("c", look), place()).verdict is verdict


def test_a_check_that_breaks_fails_and_stops_no_other() -> None:
    result = run_check(Check("c", lambda place: str(1 / 0)), place())
    assert (result.verdict, result.detail) == (Verdict.FAILED, "ZeroDivisionError: division by zero")


def test_what_only_an_account_can_answer_is_skipped_with_its_reason() -> None:
    here = Place(target=None, stack="S", is_aws=False)  # type: ignore[arg-type]
    for check in CHECKS:
        if check.only_aws:
            result = run_check(check, here)
            assert (result.verdict, result.detail) == (Verdict.SKIPPED, check.only_aws)


def test_it_keeps_nothing_and_two_runs_do_not_meet() -> None:
    chosen = config(unique_name())
    assert not chosen.is_protected
    assert unique_name() != unique_name()


def test_nothing_is_deployed_without_a_yes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(smoke, "run_in_account", lambda *arguments: pytest.fail("it was deployed"))
    assert smoke.main([], find_target=lambda: TARGET, ask=lambda question: "yes") == 1
    said = capsys.readouterr().err
    assert "111122223333" in said
    assert "nothing was deployed" in said


def test_it_removes_what_it_deployed_when_the_deployment_fails(capsys: pytest.CaptureFixture[str]) -> None:
    cdk = Cdk({"deploy": 1})
    assert smoke.run_in_account(account(cdk), 0) == 1
    assert [words[0] for words in cdk.asked] == ["deploy", "destroy", "destroy"]
    assert [words[1] for words in cdk.asked[1:]] == ["ThunderSmokeabc-smoke", "ThunderSmokeabc-smoke-Data"]
    assert {env["THUNDER_SMOKE_NAME"] for env in cdk.environments} == {"ThunderSmokeabc"}
    assert "is the account bootstrapped?" in capsys.readouterr().out


def test_it_removes_what_it_deployed_when_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    cdk, undone = Cdk(), []

    def interrupted(place: Place, results: list[Any]) -> None:
        place.undo.append(lambda: undone.append("queue"))
        raise KeyboardInterrupt

    monkeypatch.setattr(Account, "place", lambda self, ttl_minutes: place())
    monkeypatch.setattr(smoke, "look", interrupted)
    assert smoke.run_in_account(account(cdk), 0) == 1
    assert [words[0] for words in cdk.asked] == ["deploy", "destroy", "destroy"]
    assert undone == ["queue"]


def test_what_is_left_is_told_and_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Account, "place", lambda self, ttl_minutes: place())
    monkeypatch.setattr(smoke, "look", lambda place, results: None)
    assert smoke.run_in_account(account(Cdk({"destroy": 1}), ["arn:aws:sqs:eu-central-1:1:q"]), 0) == 1
    said = capsys.readouterr().out
    assert "LEFT      arn:aws:sqs:eu-central-1:1:q" in said
    assert "cdk destroy ThunderSmokeabc-smoke-Data ended with 1" in said


def test_a_clean_run_ends_with_zero(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Account, "place", lambda self, ttl_minutes: place())
    monkeypatch.setattr(smoke, "look", lambda place, results: None)
    assert smoke.run_in_account(account(Cdk()), 0) == 0
    assert "nothing is left" in capsys.readouterr().out
