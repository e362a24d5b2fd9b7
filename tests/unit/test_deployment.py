"""A deployment shows where it goes and asks; only the environment's own name is a yes."""

from __future__ import annotations

import pytest

from thunder.deployment import NoTarget, Target, main

TARGET = Target(account="123456789012", region="eu-west-1", identity="arn:aws:iam::123456789012:user/me")


class Terminal:
    """Answers the question with the given text, and remembers what was deployed."""

    def __init__(self, answer, exit_code=0):
        self._answer = answer
        self._exit_code = exit_code
        self.deployed = []

    def ask(self, question):
        if self._answer is None:
            raise EOFError
        return self._answer

    def run(self, checkout, environment, target):
        self.deployed.append((environment, target))
        return self._exit_code


def deploy(terminal, *arguments, find_target=lambda: TARGET):
    return main(arguments, find_target=find_target, ask=terminal.ask, run=terminal.run)


def test_the_environments_name_typed_in_answer_deploys_it(capsys):
    terminal = Terminal("dev")

    assert deploy(terminal, "dev") == 0
    assert terminal.deployed == [("dev", TARGET)]
    shown = capsys.readouterr().err
    assert all(part in shown for part in (TARGET.account, TARGET.region, TARGET.identity))


@pytest.mark.parametrize("answer", ["", "y", "yes", "prod", None], ids=repr)
def test_any_other_answer_deploys_nothing(answer):
    terminal = Terminal(answer)

    assert deploy(terminal, "dev") == 1
    assert terminal.deployed == []


@pytest.mark.parametrize("arguments", [[], ["staging"], ["local"], ["dev", "prod"]], ids=repr)
def test_an_environment_that_is_not_for_an_account_is_refused_before_anything_else(arguments, capsys):
    terminal = Terminal("dev")

    assert deploy(terminal, *arguments, find_target=lambda: pytest.fail("asked AWS")) == 2
    assert "dev or prod" in capsys.readouterr().err


def test_without_credentials_nothing_is_asked(capsys):
    def nobody():
        raise NoTarget("no region: set AWS_REGION, or `region` in the profile")

    assert deploy(Terminal("dev"), "dev", find_target=nobody) == 1
    assert "no region" in capsys.readouterr().err


def test_the_exit_code_of_the_cdk_is_passed_on():
    assert deploy(Terminal("dev", exit_code=7), "dev") == 7
