"""What the documentation tells a reader to type: its shell blocks, its inline commands and its code, with their places.

A shell block is fenced as `sh`, `bash`, `shell` or `console`, or indented by four spaces and without a fence.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELLS = frozenset({"sh", "bash", "shell", "console"})
PROGRAMS = ("thunder", "make", "python", "aws", "cdk", "git", "pip", "npx")
FENCE = re.compile(r"^([ ]*)```([\w-]*)[^\n]*\n(.*?)^[ ]*```[ ]*$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?<=\n\n)((?: {4}(?! *[-*|] ).*\n)+)")
INLINE = re.compile(r"`([^`\n]+)`")
SUBSTITUTION = re.compile(r"\$\(([^()]*)\)")
SEPARATORS = frozenset({"|", "||", "&&", ";", "&"})
REDIRECTIONS = frozenset({">", ">>", "<", "2>", ">&"})
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")


@dataclass(frozen=True)
class Block:
    """One fenced or indented piece of a page."""

    page: str
    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """One program with its arguments, as a reader would type it. `inline`: named in a sentence, perhaps in part."""

    page: str
    line: int
    words: tuple[str, ...]
    inline: bool = False

    @property
    def program(self) -> str:
        """`thunder` for `.venv/bin/thunder` too."""
        return Path(self.words[0]).name

    @property
    def arguments(self) -> tuple[str, ...]:
        return self.words[1:]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def pages() -> list[Path]:
    """Every page a reader may follow."""
    fixed = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md")
    return [*fixed, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    for found in FENCE.finditer(text):
        indent, language, body = found.groups()
        body = re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)
        yield Block(name, _line(text, found.start(3)), language, body)
    unfenced = FENCE.sub(lambda found: "\n" * found.group(0).count("\n"), text)
    for found in INDENTED.finditer(unfenced):
        body = re.sub(r"^ {4}", "", found.group(1), flags=re.MULTILINE)
        if body.split()[0].split("/")[-1] in (*PROGRAMS, "eval", "$"):
            yield Block(name, _line(text, found.start(1)), "sh", body)


def all_blocks(language: str) -> list[Block]:
    return [block for page in pages() for block in blocks(page) if block.language == language]


def commands() -> list[Command]:
    """Every command of every shell block."""
    found = []
    for page in pages():
        for block in blocks(page):
            if block.language in SHELLS:
                found += commands_of(block)
    return found


def inline_commands() -> list[Command]:
    """Commands that stand in sentences, as far as they are written there."""
    found = []
    for page in pages():
        name, text = page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8")
        unfenced = FENCE.sub(lambda each: "\n" * each.group(0).count("\n"), text)
        for code in INLINE.finditer(unfenced):
            words = code.group(1).removeprefix(".venv/bin/").split()
            if len(words) > 1 and words[0] in PROGRAMS and not any(word in "=+|" for word in words):
                line = _line(text, code.start())
                found += [Command(name, line, tuple(each), inline=True) for each in _split(shlex.split(code.group(1)))]
    return found


def commands_of(block: Block) -> Iterator[Command]:
    """The commands of one block."""
    for offset, line in _logical_lines(block):
        for text in (*SUBSTITUTION.findall(line), SUBSTITUTION.sub("SUBSTITUTED", line)):
            for words in _split(_words(text)):
                if words[0] != "eval":
                    yield Command(block.page, block.line + offset, tuple(words))


def _logical_lines(block: Block) -> Iterator[tuple[int, str]]:
    """Lines with their continuations; of a console's, those behind a prompt."""
    start, gathered = 0, ""
    for number, line in enumerate(block.text.splitlines()):
        if block.language == "console" and not gathered:
            if not line.startswith("$ "):
                continue
            line = line.removeprefix("$ ")
        start = start if gathered else number
        if line.endswith("\\"):
            gathered += line[:-1] + " "
            continue
        if (gathered + line).strip():
            yield start, gathered + line
        gathered = ""


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words = []
    for word in lexer:
        if word.startswith("#"):
            break
        words.append(word)
    return words


def _split(words: Sequence[str]) -> Iterator[list[str]]:
    """The single commands of a line, without assignments before them and without redirections."""
    current: list[str] = []
    skip = False
    for word in [*words, ";"]:
        if skip:
            skip = False
        elif word in SEPARATORS:
            while current and ASSIGNMENT.fullmatch(current[0]):
                current.pop(0)
            if current:
                yield current
            current = []
        elif word in REDIRECTIONS:
            skip = True
        else:
            current.append(word)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
