"""The command line's frame: lazy nouns, global options wherever they stand, exit codes, stdout for data only."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from thunder.cli import target
from thunder.cli.errors import Conflict, Failed, NotFound
from thunder.cli.main import NOUNS, main
from thunder.cli.options import Command, Noun, Options
from thunder.cli.output import print_list, print_object

HEAVY = ("botocore", "boto3", "rich", "thunder.local.stack", "aws_cdk", "thunderagent")


@pytest.fixture
def runner():
    return CliRunner()


@click.group(cls=Noun)
def noun():
    pass


@noun.command()
@click.pass_obj
def verb(options):
    click.echo(json.dumps(vars(options)))


def options_of(runner, *arguments):
    return Options(**json.loads(runner.invoke(noun, arguments).stdout))


def test_help_lists_every_noun_and_imports_none_of_them():
    code = f"""
import sys
from thunder.cli.main import main
try:
    main(["--help"])
except SystemExit as end:
    heavy = [name for name in {HEAVY!r} if name in sys.modules]
    sys.exit(f"imported {{heavy}}" if heavy or end.code else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert all(f"  {name} " in done.stdout for name in NOUNS)


@pytest.mark.parametrize("name", NOUNS)
def test_every_noun_in_the_table_exists_and_explains_its_verbs(runner, name):
    shown = runner.invoke(main, [name, "--help"])

    assert shown.exit_code == 0
    command = main.get_command(click.Context(main), name)
    assert command.name == name
    assert command.get_short_help_str()
    assert all(verb.get_short_help_str() for verb in getattr(command, "commands", {}).values())


@pytest.mark.parametrize("name", NOUNS)
def test_completing_a_nouns_verbs_and_options_imports_nothing_heavy(name):
    """What a shell asks for at each press of Tab."""
    code = f"""
import sys
from importlib import import_module
from thunder.cli.main import NOUNS
import_module(NOUNS[{name!r}][0])
sys.exit(f"imported {{heavy}}" if (heavy := [each for each in {HEAVY!r} if each in sys.modules]) else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert name in ("local", "registry") or done.returncode == 0, done.stderr


def test_help_is_instant():
    """Under 0.3 s of processor time, whatever else the machine does; the best of three."""

    def spent() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "thunder.cli", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    assert min(spent() for _ in range(3)) < 0.3


def test_a_locale_that_cannot_show_a_character_gets_its_escape():
    code = """
import click
from thunder.cli.main import main
from thunder.cli.output import print_json, print_object
def shown():
    print_object({"a": "\u4e16"}, "text")
    print_json("\U0001f680")
main.get_command = lambda ctx, name: click.Command("x", callback=shown)
main(["x"])
"""
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)

    assert done.stdout == 'a\t\\u4e16\n"\\ud83d\\ude80"\n'


def test_every_command_of_the_contract_is_there():
    verbs = {
        "task": {"submit", "submit-many", "get", "list", "wait", "cancel", "redrive", "ack", "why", "delete"},
        "queue": {"list", "pause", "resume", "set"},
        "dlq": {"list", "redrive"},
        "schedule": {"list", "put", "delete", "run"},
        "local": {"up", "down", "status", "logs"},
        "registry": {"build", "show"},
    }
    context = click.Context(main)
    for noun_name, wanted in verbs.items():
        assert set(main.get_command(context, noun_name).commands) == wanted
    assert {"stats", "top", "doctor", "completion"} <= set(main.list_commands(context))


def test_an_interrupt_ends_quietly(runner, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(target, "locate", interrupted)
    ended = runner.invoke(main, ["stats"])

    assert (ended.exit_code, ended.stdout, ended.stderr) == (130, "", "")


def test_our_own_defects_show_their_trace(runner, monkeypatch):
    def broken(*_):
        raise TypeError("a defect")

    monkeypatch.setattr(target, "locate", broken)

    assert isinstance(runner.invoke(main, ["stats"]).exception, TypeError)


def test_global_options_are_understood_by_the_noun_and_by_the_verb(runner):
    given = ["--profile", "p", "--region", "eu-west-1", "--endpoint-url", "http://x", "--output", "json"]
    given += ["--stack", "s", "--api-url", "https://a", "--local"]
    expected = Options("p", "eu-west-1", "http://x", "json", local=True, stack="s", api_url="https://a")

    assert options_of(runner, *given, "verb") == expected
    assert options_of(runner, "verb", *given) == expected
    assert options_of(runner, *given[:4], "verb", *given[4:]) == expected
    assert options_of(runner, "verb") == Options()


def test_the_innermost_global_option_wins(runner):
    assert options_of(runner, "--output", "json", "verb", "--output", "text").output == "text"


def test_an_unknown_output_form_is_a_usage_error(runner):
    assert runner.invoke(noun, ["verb", "--output", "xml"]).exit_code == 2


@pytest.mark.parametrize("arguments", [["bogus"], ["--bogus"], ["local", "bogus"], ["local", "status", "extra"]])
def test_what_is_not_understood_is_a_usage_error(runner, arguments):
    refused = runner.invoke(main, arguments)

    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "Usage:" in refused.stderr


@pytest.mark.parametrize(("error", "code"), [(Failed, 1), (NotFound, 3), (Conflict, 4)])
def test_failures_have_their_exit_codes_and_speak_on_stderr(runner, error, code):
    @click.command(cls=Command)
    def failing():
        raise error("because")

    ended = runner.invoke(failing)

    assert (ended.exit_code, ended.stdout, ended.stderr) == (code, "", "Error: because\n")


def test_an_object_is_printed_in_each_form(capsys):
    print_object({"a": 1, "b": None, "c": "text"}, "json")
    assert json.loads(capsys.readouterr().out) == {"a": 1, "b": None, "c": "text"}

    print_object({"a": 1, "b": None, "c": "text"}, "text")
    assert capsys.readouterr().out == "a\t1\nb\t\nc\ttext\n"

    print_object({"a": 1, "c": "text"}, "table")
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["a", "1"], ["c", "text"]]


def test_a_long_value_stays_on_its_line(capsys):
    print_object({"apiUrl": "x" * 300, "n": 1}, "table")

    assert capsys.readouterr().out.splitlines() == ["apiUrl  " + "x" * 300, "n       1"]


def test_a_list_is_printed_in_each_form(capsys):
    rows = [{"id": "x", "n": 1, "more": [1]}, {"id": "y"}]

    print_list(rows, ["id", "n"], "json")
    assert json.loads(capsys.readouterr().out) == rows

    print_list(rows, ["id", "n"], "text")
    assert capsys.readouterr().out == "x\t1\ny\t\n"

    print_list(rows, ["id", "n"], "table")
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("ID", "N", "x", "y", "1"))
    assert "more" not in printed


def test_text_that_looks_like_markup_is_printed_as_it_is(capsys):
    print_list([{"id": "[red]x[/red]"}], ["id"], "table")

    assert "[red]x[/red]" in capsys.readouterr().out


def test_a_table_has_no_colours_when_they_are_not_wanted(capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")

    print_list([{"id": "x"}], ["id"], "table")

    assert "\x1b[3" not in capsys.readouterr().out
