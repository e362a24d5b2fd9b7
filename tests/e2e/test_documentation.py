"""The documentation's commands, run as they stand against the stack of this machine, page by page."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.documented import ROOT, Command, blocks, commands
from tests.support.local_stack import UpStack
from thunder.cli.main import main

# Not run here: what the command's first words are, and who runs it instead or why nobody can.
ELSEWHERE = {
    ("thunder", "top"): "goes on until `q`: tests/unit/cli",
    ("thunder", "console"): "serves until it is interrupted: tests/console",
    ("thunder", "metrics"): "serves until it is interrupted: tests/e2e/test_observability.py",
    ("thunder", "agent"): "works until it is stopped: tests/e2e/test_agent.py",
    ("thunder", "local", "up"): "tests/e2e/test_local.py",
    ("thunder", "local", "down"): "tests/e2e/test_local.py",
    ("thunder", "registry", "build"): "before every test run, by `make test`",
    ("thunder", "doctor"): "takes its time to look twice: tests/e2e/test_audit.py, tests/e2e/test_observability.py",
}
QUEUES = ("bulk", "mail", "reports")  # which the pages take to be declared
TASKS = ("order-7",)  # and tasks that they name
WAITING = "docs-waiting"  # the task whose id stands where a page writes one


@pytest.fixture
def at_the_stack(own_stack: UpStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> UpStack:
    """A directory in which `.thunder` is this stack's state, as in a checkout after `make up`."""
    (tmp_path / ".thunder").symlink_to(own_stack.record["stateDir"])
    monkeypatch.setenv("THUNDER_STATE_DIR", own_stack.record["stateDir"])
    monkeypatch.setattr("thunder.cli.values.is_interactive", lambda: True)  # somebody sits there and answers
    monkeypatch.chdir(tmp_path)
    for queue in QUEUES:
        own_stack.call("PUT", f"/queues/{queue}", {})
    for task_id in (WAITING, *TASKS):
        own_stack.call("POST", "/tasks", {"type": "demo.echo", "taskId": task_id, "delaySeconds": 86_400})
    return own_stack


def runs_here(command: Command) -> bool:
    words = (command.program, *at_this_stack(command))
    words = tuple(word for word in words if word != "--local")
    return command.program == "thunder" and not any(words[: len(each)] == each for each in ELSEWHERE)


def at_this_stack(command: Command) -> list[str]:
    """The arguments with this machine's names: its stack, its region, an id there is."""
    words = []
    arguments = iter(command.arguments)
    for word in arguments:
        if word in {"--stack", "--region", "--profile"}:
            next(arguments)
            words += ["--local"] if word == "--stack" else []
        elif word in {"TASK_ID", "6f1c…"}:
            words.append(WAITING)
        else:
            words.append(word)
    return words


def test_every_command_that_ends_by_itself_ends_well(at_the_stack: UpStack) -> None:
    """One after another, as they stand: a page may use what an earlier line made."""
    failed = []
    for command in filter(runs_here, commands()):
        done = CliRunner().invoke(main, at_this_stack(command), input="y\n")
        if done.exit_code != 0:
            failed.append(f"{command}\n{done.output[-500:]}{done.exception or ''}")
    assert not failed, "\n\n".join(failed)


def test_the_readme_s_program_submits_and_prints_the_result(
    at_the_stack: UpStack, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = (block.text for block in blocks(ROOT / "README.md") if "ThunderClient" in block.text)
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    assert "seattle" in capsys.readouterr().out
