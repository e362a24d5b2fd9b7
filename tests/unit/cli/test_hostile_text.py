"""Whatever is typed or stored, what a command prints neither moves the cursor nor passes for another line.

Each command that asks the API is run with hostile text for each of its arguments and options in turn, as to a terminal:
in a pipe click takes some codes out by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from tests.functions.test_api_list import ended
from tests.support.api import Api
from tests.support.cli import Terminal
from tests.support.fakes import START
from thunder.cli import doctor
from thunder.cli.checks import Check, Verdict
from thunder.cli.main import main
from thunder.local.logs import LogLine
from thunder.local.stack import LocalStack
from thunderagent.audit import Audit
from thunderagent.audit_rules import Finding

HOSTILE = "x\x1b[2J\x1b]0;title\x07\x9b31m\u202e\u200b\rover"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e]")
START_MILLISECONDS = int(START * 1000)
NOUNS = ("task", "queue", "dlq", "schedule", "stats")
VALUES = {"--status": "FAILED", "--cron": "* * * * *", "--type": "demo.echo"}


def words_of(command: click.Command, hostile: click.Parameter) -> list[str]:
    """The parameters a command needs, harmless but for one."""
    words: list[str] = []
    for parameter in command.params:
        if not (parameter.required or parameter is hostile) or getattr(parameter, "is_flag", False):
            continue
        name = parameter.opts[-1]
        value = HOSTILE if parameter is hostile else VALUES.get(name, "demo.echo")
        words += [value] if isinstance(parameter, click.Argument) else [name, value]
    return words


def commands() -> Iterator[tuple[str, list[str]]]:
    context = click.Context(main)
    for noun in NOUNS:
        found = main.get_command(context, noun)
        assert found is not None
        verbs: dict[str, Any] = getattr(found, "commands", None) or {"": found}
        for verb, command in verbs.items():
            path = [noun, verb] if verb else [noun]
            for parameter in command.params:
                if not getattr(parameter, "is_flag", False):
                    yield f"{' '.join(path)} {parameter.name}", [*path, *words_of(command, parameter)]


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, color=True, env={"NO_COLOR": "1"})
    assert result.exit_code != 1 or isinstance(result.exception, SystemExit), result.exception
    return result.output


def test_no_argument_of_any_command_acts_on_the_terminal(thunder: Terminal) -> None:
    asked = dict(commands())
    assert len(asked) > 60
    found = {name: found[0] for name, words in asked.items() if (found := UNSAFE.search(printed(*words)))}
    assert found == {}


@pytest.mark.parametrize("argument", [f"@/{HOSTILE}", f"file:///{HOSTILE}", f'"{HOSTILE}', f"--{HOSTILE}"])
def test_nor_does_a_payload_that_cannot_be_read(thunder: Terminal, argument: str) -> None:
    assert not UNSAFE.search(printed("task", "submit", "demo.echo", argument))


def test_nor_does_a_name_of_a_command_or_of_a_stack(thunder: Terminal) -> None:
    for words in ([HOSTILE], ["task", HOSTILE], [f"--{HOSTILE}"], ["--stack", HOSTILE, "stats", HOSTILE]):
        assert not UNSAFE.search(printed(*words))


@pytest.mark.parametrize("output", ["table", "json", "text"])
def test_nor_does_anything_a_task_says(thunder: Terminal, api: Api, output: str) -> None:
    said = {"type": HOSTILE, "message": HOSTILE, "reason": HOSTILE, "at": START}
    attempt = {"attempt": 1, "startedAt": START, "endedAt": START, "outcome": HOSTILE, "message": HOSTILE}
    api.table.put(
        ended(
            "t",
            START,
            error=said,
            tags={HOSTILE: HOSTILE},
            attempts=[attempt],
            outcomeReason=HOSTILE,
            operator={"action": "cancel", "caller": HOSTILE, "reason": HOSTILE, "at": START},
            progress={"fraction": 0.5, "message": HOSTILE, "at": START},
            payload=f'"{HOSTILE[:1]}\\u202e"',
        )
    )
    for words in (["task", "get", "t"], ["task", "list", "--status", "FAILED"], ["task", "why", "t"], ["dlq", "list"]):
        shown = printed(*words, "--output", output)
        assert not UNSAFE.search(shown)
        assert "\\x1b[2J" in shown or "\\u001b[2J" in shown or words[:2] == ["task", "why"]


def test_nor_does_what_the_audit_finds(thunder: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    """The id of a slot holds the value of a tag: a submitter's own text."""
    found = Audit(findings=[Finding(9, f"slot#default#={HOSTILE}#0", f"it waits for {HOSTILE}")])
    check = Check("stack", Verdict("fail"), HOSTILE, HOSTILE)
    for output in ("table", "json", "text"):
        doctor._print([check], found, output)
    shown = capsys.readouterr()
    assert "slot#default#=x\\x1b[2J" in shown.err
    assert not UNSAFE.search(shown.out + shown.err)


def test_nor_does_what_a_function_has_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback quotes what a handler choked on; its lines stay its own."""
    line = LogLine(
        START_MILLISECONDS, "/aws/lambda/executor", "s", f"Traceback\n{HOSTILE}\n12:00:00.000 api all is well"
    )
    logs = SimpleNamespace(newest=lambda count: [line], follow=lambda count: iter([line]))
    monkeypatch.setattr("thunder.local.logs.FunctionLogs", lambda endpoint, named: logs)
    monkeypatch.setattr(LocalStack, "status", lambda self: {"endpoint": "http://127.0.0.1:1"})
    for words in (["local", "logs"], ["local", "logs", "--follow"]):
        shown = printed(*words)
        assert not UNSAFE.search(shown)
        assert [each[:4] == "    " for each in shown.splitlines()] == [False, True, True]
