"""Promela as graphs of steps, one for each process: what `explore` searches.

Reads the part of Promela that `lease.pml` uses: macros and conditions of the C preprocessor, global and local bytes,
bools and mtypes, arrays, proctypes, `atomic`, `if`, `do`, `goto`, `assert`, `else`, `timeout`, inlines, and `run` (in
`init` only). An atomic sequence is one step, as with Spin.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

Token = tuple[str, int]  # text, line
Macro = tuple[list[str] | None, list[str]]  # parameters, body
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|->|::|&&|\|\||[=!<>]=|\+\+|--|[-+=<>!()\[\]{};:,]")
_PYTHON = {"&&": " and ", "||": " or ", "!": " not ", "true": "1", "false": "0"}
_KINDS = ("byte", "bool", "mtype")


# ---- the preprocessor -----------------------------------------------------------------------------------------------


def expanded(source: str, given: Mapping[str, str]) -> list[Token]:
    """What the preprocessor leaves of a model."""
    source = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), source, flags=re.DOTALL)
    macros: dict[str, Macro] = {name: (None, _TOKEN.findall(value)) for name, value in given.items()}
    tokens: list[Token] = []
    taken = [True]
    for number, line in enumerate(source.splitlines(), 1):
        word, _, rest = line.strip().partition(" ")
        if word in ("#ifdef", "#ifndef"):
            taken.append((rest.strip() in macros) is (word == "#ifdef"))
        elif word == "#if":
            taken.append(_holds_now(rest, macros))
        elif word == "#else":
            taken[-1] = not taken[-1]
        elif word == "#endif":
            taken.pop()
        elif all(taken) and word == "#define":
            match = re.match(r"(\w+)(?:\((\w+)\))?\s*(.*)", rest)
            assert match is not None
            macros[match[1]] = ([match[2]] if match[2] else None, _TOKEN.findall(match[3]))
        elif all(taken):
            tokens += _replaced([(text, number) for text in _TOKEN.findall(line)], macros)
    return tokens


def _holds_now(condition: str, macros: Mapping[str, Macro]) -> bool:
    tokens = _replaced([(text, 0) for text in _TOKEN.findall(condition)], macros)
    return bool(eval("".join(_PYTHON.get(text, text) for text, _ in tokens)))


def _replaced(tokens: list[Token], macros: Mapping[str, Macro]) -> list[Token]:
    done: list[Token] = []
    at = 0
    while at < len(tokens):
        text, line = tokens[at]
        at += 1
        if text not in macros:
            done.append((text, line))
            continue
        parameters, body = macros[text]
        argument: list[str] = []
        if parameters is not None:
            end = at + [each for each, _ in tokens[at:]].index(")")
            argument, at = [each for each, _ in tokens[at + 1 : end]], end + 1
        filled = [new for each in body for new in (argument if parameters and each in parameters else [each])]
        done += _replaced([(each, line) for each in filled], macros)
    return done


# ---- the syntax: a graph of steps for each process ------------------------------------------------------------------


@dataclass
class Node:
    """A place in a process. `is_inside`: of an atomic sequence that has begun."""

    is_inside: bool = False
    steps: list[Step] = field(default_factory=list)
    options: list[Node] = field(default_factory=list)
    number: int = -1

    def all_steps(self) -> Iterator[Step]:
        yield from self.steps
        for each in self.options:
            yield from each.all_steps()


@dataclass
class Step:
    line: int
    guard: str  # Python; "" is always, "else" and "timeout" are themselves
    effect: str
    target: Node


class Model:
    """Declarations, and the code of each kind of process."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens, self.at = tokens, 0
        self.constants: dict[str, int] = {}
        self.places: dict[str, int] = {}
        self.initial: list[int] = []
        self.bodies: dict[str, tuple[str | None, list[Token]]] = {}
        inlines: dict[str, Macro] = {}
        while self.at < len(tokens):
            word = self._next()
            if word == "mtype" and self._peek() == "=":
                names = [text for text in self._until("}") if text not in "={,"]
                self.constants |= {name: number for number, name in enumerate(names, 1)}
            elif word in _KINDS:
                self._global()
            elif word == "inline":
                name, parameters = self._next(), [text for text in self._until(")") if text not in "(,"]
                inlines[name] = (parameters, [text for text, _ in self._block()])
            elif word in ("proctype", "init"):
                name = "init" if word == "init" else self._next()
                parameters = [] if word == "init" else [text for text in self._until(")") if text not in "(,"]
                self.bodies[name] = (parameters[1] if parameters else None, _replaced(self._block(), inlines))

    def _peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def _next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][0]

    def _until(self, end: str) -> list[str]:
        found = []
        while (text := self._next()) != end:
            found.append(text)
        return found

    def _block(self) -> list[Token]:
        start = self.at = self.at + 1
        depth = 1
        while depth:
            depth += {"{": 1, "}": -1}.get(self._next(), 0)
        return self.tokens[start : self.at - 1]

    def _global(self) -> None:
        name, size, value = self._next(), 1, 0
        if self._peek() == "[":
            size = int(eval("".join(self._until("]")[1:])))
        if self._peek() == "=":
            self._next()
            text = self._next()
            value = self.constants.get(text, {"true": 1, "false": 0}.get(text, -1))
            value = int(text) if value < 0 else value
        self._next()
        self.places[name] = len(self.initial)
        self.initial += [value] * size


class Code:
    """The graph of one process. `base` of the state is its place in the graph; its locals follow."""

    def __init__(self, model: Model, name: str, base: int) -> None:
        self.name, self.base = name, base
        self._model = model
        parameter, self._tokens = model.bodies[name]
        self._at, self._is_atomic = 0, False
        self.locals: dict[str, int] = {parameter: base + 1} if parameter is not None else {}
        self.local_values = [0] * len(self.locals)
        self._labels: dict[str, Node] = {}
        self.runs: list[tuple[str, str]] = []
        end = Node()
        self.start = self._sequence(end, None, inside=False)
        self.nodes: list[Node] = []
        self._number(self.start)

    def _number(self, node: Node) -> None:
        if node.number >= 0:
            return
        node.number = len(self.nodes)
        self.nodes.append(node)
        for step in node.all_steps():
            self._number(step.target)

    # ---- expressions -------------------------------------------------------------------------------------------------

    def _value(self, tokens: list[Token]) -> str:
        """An expression in Python: `x` is s[place], `x[i]` is s[place + i]."""
        made: list[str] = []
        for at, (text, _) in enumerate(tokens):
            is_array = at + 1 < len(tokens) and tokens[at + 1][0] == "["
            if text == "[":
                continue
            if text in _PYTHON or not re.match(r"[A-Za-z_]", text):
                made.append(_PYTHON.get(text, text))
            elif text in self._model.constants:
                made.append(str(self._model.constants[text]))
            else:
                place = self.locals[text] if text in self.locals else self._model.places[text]
                made.append(f"s[{place} + " if is_array else f"s[{place}]")
        return "".join(made).strip()

    # ---- statements --------------------------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _take(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _sequence(self, then: Node, out: Node | None, *, inside: bool) -> Node:
        """Statements up to the end of this block or option, built from the last to the first."""
        built: list[Callable[[Node], Node]] = []
        while self._peek() not in ("", "}", "::", "fi", "od"):
            if self._peek() in (";", "->"):
                self._take()
                continue
            built.append(self._statement(out, inside=inside or (bool(built) and self._is_atomic)))
        for each in reversed(built):
            then = each(then)
        return then

    def _statement(self, out: Node | None, *, inside: bool) -> Callable[[Node], Node]:
        text, line = self._take()
        if self._peek() == ":" and re.match(r"[A-Za-z_]", text):
            self._take()
            label = self._labels.setdefault(text, Node())
            label.is_inside = inside
            return lambda then: _alias(label, then)
        if text == "goto":
            goal = self._labels.setdefault(self._take()[0], Node())
            return lambda then: goal
        if text == "break":
            assert out is not None
            return lambda then: out
        if text == "atomic":
            return self._atomic(out)
        if text in ("if", "do"):
            return self._choice(text, out, inside=inside)
        if text in _KINDS:
            self._local()
            return lambda then: then
        statement = [(text, line)]
        depth = int(text == "(")
        while self._peek() not in (";", "->", "::", "}", "fi", "od", "") or depth:
            depth += {"(": 1, ")": -1}.get(self._peek(), 0)
            statement.append(self._take())
        guard, effect = self._step(statement)
        return lambda then: Node(inside, [Step(line, guard, effect, then)])

    def _atomic(self, out: Node | None) -> Callable[[Node], Node]:
        self._take()
        start = self._at
        self._skip("{", "}")

        def build(then: Node) -> Node:
            resume, self._at = self._at, start
            was, self._is_atomic = self._is_atomic, True
            entry = self._sequence(then, out, inside=False)
            self._is_atomic, self._at = was, resume
            return entry

        return build

    def _skip(self, opening: str, closing: str) -> None:
        """To behind what closes the block we are in."""
        depth = 1
        while depth:
            text = self._take()[0]
            depth += (text in opening.split()) - (text in closing.split())

    def _choice(self, word: str, out: Node | None, *, inside: bool) -> Callable[[Node], Node]:
        start = self._at
        self._skip("if do", "fi od")

        def build(then: Node) -> Node:
            resume, self._at = self._at, start
            node = Node(inside)
            while self._peek() == "::":
                self._take()
                goes_on, leave = (node, then) if word == "do" else (then, out)
                node.options.append(self._sequence(goes_on, leave, inside=inside))
            self._at = resume
            return node

        return build

    def _local(self) -> None:
        name = self._take()[0]
        value = 0
        if self._peek() == "=":
            self._take()
            value = {"true": 1, "false": 0}.get(self._peek(), -1)
            value = int(self._peek()) if value < 0 else value
            self._take()
        if name not in self.locals:
            self.locals[name] = self.base + 1 + len(self.locals)
            self.local_values.append(value)

    def _step(self, tokens: list[Token]) -> tuple[str, str]:
        words = [text for text, _ in tokens]
        if words[0] in ("skip", "else", "timeout"):
            return ("" if words[0] == "skip" else words[0]), ""
        if words[0] == "assert":
            told = " ".join(words[1:])
            return "", f"if not {self._value(tokens[1:])}: raise Broken({told!r})"
        if words[0] == "run":
            return "", f"runs.append(({words[1]!r}, {self._value(tokens[3:-1]) or 0}))"
        if words[-1] in ("++", "--"):
            return "", f"{self._value(tokens[:-1])} {words[-1][0]}= 1"
        if "=" in words:
            at = words.index("=")
            return "", f"{self._value(tokens[:at])} = {self._value(tokens[at + 1 :])}"
        return self._value(tokens), ""


def _alias(label: Node, then: Node) -> Node:
    label.options.append(then)
    return label
