"""Values given on the command line: JSON from the argument itself, a file or stdin; tags; confirmations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, BinaryIO

import click

from thunder.cli.errors import Failed, Refused
from thunder.cli.inert import inert

READ_BYTES = 32 * 2**20  # of JSON text; the space in it does not count against the API's 1 MiB


def read_json(argument: str, what: str = "payload") -> Any:
    """The JSON value of an argument: itself, `@file` (or `file://…`), or `-` for stdin.

    Strict, so that what is submitted is what was written: repeated keys, NaN and the like are refused with their path.
    """
    from thunderagent import jsontext
    from thunderagent.errors import InvalidInput

    try:
        return jsontext.loads(_text(argument, what), root=what)
    except InvalidInput as error:
        hint = "; a string needs its quotes: '\"text\"'" if argument[:1].isalpha() else ""
        raise Refused(f"{inert(str(error))}{hint}") from error


def _text(argument: str, what: str) -> bytes | str:
    if argument == "-":
        return _bounded(sys.stdin.buffer, what)
    for mark in ("@", "file://"):
        if argument.startswith(mark):
            path = Path(argument.removeprefix(mark)).expanduser()
            try:
                with path.open("rb") as file:
                    return _bounded(file, what)
            except OSError as error:
                raise Refused(f"{what}: {path} cannot be read: {error.strerror}") from error
    return argument


def _bounded(file: BinaryIO, what: str) -> bytes:
    """What can never be accepted is not read to its end, which it may not have."""
    data = file.read(READ_BYTES + 1)
    if len(data) > READ_BYTES:
        raise Refused(f"{what}: more than {READ_BYTES // 2**20} MiB, and the API takes 1 MiB")
    return data


def parse_tags(pairs: tuple[str, ...]) -> dict[str, str]:
    """`name=value` each."""
    tags: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Refused(f"--tag {inert(pair)}: it must be name=value")
        tags[name] = value
    return tags


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal unless `yes`. Without a terminal there is nobody to ask, and nothing is done."""
    if yes:
        return
    if not is_interactive():
        raise Refused(f"{question} There is no terminal to ask on: say --yes, or look first with --dry-run.")
    click.echo(f"{question} [y/N] ", err=True, nl=False)
    agreed = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not agreed:
        raise Failed("nothing was done")


def is_interactive() -> bool:
    return sys.stdin.isatty()
