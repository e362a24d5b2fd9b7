"""Everything the documentation tells a reader to type can be typed: programs, verbs, options, targets, names.

What can run against the stack of this machine is also run: `tests/e2e/test_documentation.py`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import botocore.session
import click
import pytest

from tests.support.documented import ROOT, Block, Command, all_blocks, commands, inline_commands
from thunder.cli.main import main

MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = frozenset(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
COMMANDS, INLINE = commands(), inline_commands()

# Programs that are not ours: what is checked of them is that they are the ones meant.
OTHERS = {
    "echo": "the shell's own",
    "cd": "the shell's own",
    "export": "the shell's own",
    "source": "the shell's own",
    "git": "clones and looks: nothing of ours is named",
    "pip": "installs from a registry",
    "openssl": "draws random bytes",
    "trap": "the shell's own",
    "jq": "reads JSON that a checked command printed",
}


def check(command: Command) -> None:
    """Raises AssertionError where the command could not be typed as it stands."""
    checker = CHECKERS.get(command.program)
    if checker is None:
        assert command.program in OTHERS, f"{command}: say in OTHERS why {command.program} needs no check"
    else:
        checker(command)


def check_thunder(command: Command) -> None:
    try:
        _parse(main, "thunder", command.arguments, None)
    except click.exceptions.Exit:
        pass  # --help, --version
    except click.UsageError as error:
        raise AssertionError(f"{command}: {error.format_message()}") from error


def _parse(command: click.Command, name: str, arguments: Sequence[str], parent: click.Context | None) -> None:
    """Reads the arguments as the command would, and invokes nothing."""
    context = command.make_context(name, list(arguments), parent=parent)
    if isinstance(command, click.Group):
        found, verb, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert verb is not None
        _parse(verb, found or "", rest, context)


def check_thunder_in_part(command: Command) -> None:
    """The nouns and verbs are there, and the options are theirs; arguments may be missing."""
    current: click.Command = main
    known = set(_options(current))
    words = list(command.arguments)
    while isinstance(current, click.Group) and words and not words[0].startswith("-"):
        verb = current.get_command(click.Context(current), words.pop(0))
        assert verb is not None, f"{command}: there is no such command"
        current = verb
        known |= _options(current)
    named = {word.split("=")[0] for word in words if re.match(r"-{1,2}[a-z]", word)}
    assert named <= known, f"{command}: unknown {sorted(named - known)}"


def _options(command: click.Command) -> set[str]:
    params = [param for param in command.params if isinstance(param, click.Option)]
    return {name for param in params for name in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}


def check_make(command: Command) -> None:
    for word in command.arguments:
        if "=" in word:
            variable = word.partition("=")[0]
            assert f"$({variable}" in MAKEFILE, f"{command}: the Makefile reads no {variable}"
        elif not word.startswith("-"):
            assert word in TARGETS, f"{command}: there is no target {word}"


def check_python(command: Command) -> None:
    """A module of ours that there is, with options its help shows; or a script."""
    first, *rest = command.arguments
    if first != "-m":
        assert (ROOT / first).exists(), f"{command}: there is no {first}"
        return
    module = rest[0]
    assert importlib.util.find_spec(module) is not None, f"{command}: there is no module {module}"
    options = {word.split("=")[0] for word in rest[1:] if word.startswith("--")}
    if options and module != "venv":
        assert options <= _help_options(module), f"{command}: unknown {sorted(options - _help_options(module))}"


@cache
def _help_options(module: str) -> frozenset[str]:
    shown = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return frozenset(re.findall(r"--[a-z][a-z-]*", shown))


AWS_GLOBAL = frozenset({"--region", "--profile", "--query", "--output", "--endpoint-url", "--cli-input-json"})


def check_aws(command: Command) -> None:
    """Service, operation and parameters are those of the service's own model, as the SDK has it."""
    service, operation, *rest = command.arguments
    named = {word.split("=")[0] for word in rest if word.startswith("--")} - AWS_GLOBAL
    if (service, operation) == ("s3", "cp"):
        assert named <= {"--recursive"}, str(command)
        return
    known = _operations(service)
    assert operation in known, f"{command}: {service} has no {operation}"
    members = known[operation]
    unknown = {name for name in named if not {name, name.replace("--no-", "--", 1)} & members}
    assert not unknown, f"{command}: unknown {sorted(unknown)}"


@cache
def _operations(service: str) -> dict[str, frozenset[str]]:
    model = botocore.session.get_session().get_service_model(service)
    found = {}
    for name in model.operation_names:
        shape = model.operation_model(name).input_shape
        found[_dashed(name)] = frozenset(f"--{_dashed(member)}" for member in (shape.members if shape else ()))
    return found


def _dashed(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def check_cdk(command: Command) -> None:
    assert command.arguments[0] in {"synth", "deploy", "destroy", "bootstrap", "diff", "ls"}, str(command)


CHECKERS: dict[str, Callable[[Command], None]] = {
    "thunder": check_thunder,
    "make": check_make,
    "python": check_python,
    "python3": check_python,
    "aws": check_aws,
    "cdk": check_cdk,
}


@pytest.mark.parametrize("page", sorted({command.page for command in COMMANDS}))
def test_every_command_of_a_shell_block_can_be_typed(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for command in COMMANDS:
        if command.page == page:
            check(command)


@pytest.mark.parametrize("page", sorted({command.page for command in INLINE}))
def test_every_command_in_a_sentence_exists(page: str) -> None:
    for command in INLINE:
        if command.page == page:
            check_thunder_in_part(command) if command.program == "thunder" else check(command)


@pytest.mark.parametrize(
    "text",
    [
        "thunder task lst",
        "thunder task list --stats PENDING",
        "thunder queue pause",
        "make nothing",
        "make deploy ENVIRONMENT=dev",
        "python -m bench.nothing",
        "python -m bench.latency --rat 10",
        "aws dynamodb restore-table",
        "aws dynamodb describe-table --table tasks",
        "terraform apply",
    ],
)
def test_what_cannot_be_typed_is_noticed(text: str) -> None:
    with pytest.raises(AssertionError):
        check(Command("page.md", 1, tuple(text.split())))


# ---- code and data ---------------------------------------------------------------------------------------------------


def place(block: Block) -> str:
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", all_blocks("python"), ids=place)
def test_python_compiles_and_what_it_imports_is_there(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text, place(block))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module not in OF_THE_READER:
            module: Any = importlib.import_module(node.module or "")
            missing = [alias.name for alias in node.names if not hasattr(module, alias.name)]
            assert not missing, f"{place(block)}: {node.module} has no {missing}"


OF_THE_READER = frozenset({"my_application"})


@pytest.mark.parametrize("block", all_blocks("json"), ids=place)
def test_json_is_json(block: Block) -> None:
    """Fragments of an object, as they would stand in cdk.json, are JSON inside braces."""
    text = block.text.strip()
    json.loads(text if text.startswith(("{", "[")) else "{" + text + "}")
