"""Tables: whole in a pipe, fitted to a terminal, with ids never cut; text that programs can split."""

from __future__ import annotations

import pytest

from thunder.cli.output import Column, cut, print_json, print_list, print_object, styled, table_lines

ID = "a" * 32
COLUMNS = (
    Column("id", lambda row: row["id"]),
    Column("count", lambda row: row["count"], right=True),
    Column("note", lambda row: row["note"], may_be_cut=True),
)
ROWS = [{"id": ID, "count": 5, "note": "n" * 200}, {"id": "b", "count": 1200, "note": ""}]


def test_a_table_in_a_pipe_is_never_cut() -> None:
    lines = table_lines(ROWS, COLUMNS, width=None)

    assert lines[1] == f"{ID}      5  {'n' * 200}"
    assert lines[2] == "b".ljust(32) + "   1200"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_fits_the_terminal_by_cutting_what_may_be_cut(width: int) -> None:
    lines = table_lines(ROWS, COLUMNS, width=width)

    assert max(map(len, lines[1:])) == width
    assert ID in lines[1]
    assert lines[1].endswith("…")


def test_a_row_too_wide_for_the_terminal_keeps_its_id() -> None:
    lines = table_lines(ROWS, COLUMNS, width=20)

    assert ID in lines[1]
    assert len(lines) == 3


def test_a_narrow_terminal_gets_brief_forms_and_then_loses_what_can_be_spared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    columns = (
        COLUMNS[0],
        Column("when", lambda row: "3m ago, 2026-11-30", brief=lambda row: "3m ago", spared=1),
        Column("queue", lambda row: "default", spared=2),
        COLUMNS[2],
    )

    def header(width: int) -> list[str]:
        lines = table_lines(ROWS, columns, width=width)
        assert all(len(line) <= width for line in lines)
        assert ID in lines[1]
        return lines[0].split()

    assert ("ago, 2026" in table_lines(ROWS, columns, width=300)[1], header(300)) == (True, header(80))
    assert "ago, 2026" not in table_lines(ROWS, columns, width=80)[1]
    assert header(60) == ["ID", "WHEN", "NOTE"]
    assert header(52) == ["ID", "NOTE"]


def test_wide_characters_take_two_columns() -> None:
    lines = table_lines(
        [{"id": "世界", "count": 1, "note": ""}, {"id": "abcd", "count": 1, "note": ""}], COLUMNS, width=80
    )

    assert lines[1] == "世界      1"
    assert lines[2] == "abcd      1"
    assert cut("世界世界", 5) == "世界…"


def test_a_row_of_a_list_is_one_line_whatever_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "x\ny", "count": 1, "note": "\x1b[31mred\tand [bold]x[/bold]"}]
    print_list(rows, COLUMNS, "table")
    print_list(rows, COLUMNS, "text")
    table, text = capsys.readouterr().out.splitlines()[1:]

    assert "\x1b" not in table
    assert r"\x1b[31mred\tand [bold]x[/bold]" in table
    assert text.split("\t") == [r"x\ny", "1", r"\x1b[31mred\tand [bold]x[/bold]"]


def test_an_objects_values_are_inert_too(capsys: pytest.CaptureFixture[str]) -> None:
    print_object({"a": "x\ty\nz"}, "text")
    print_object({"a": {"b": "\x1b"}}, "table")

    assert capsys.readouterr().out == 'a\tx\\ty\\nz\na  {"b": "\\u001b"}\n'


def test_json_is_whole_and_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"big": 10**30, "float": 1.0, "text": "\x9b2J\ud800é"})

    assert capsys.readouterr().out == (
        '{\n  "big": 1000000000000000000000000000000,\n  "float": 1.0,\n  "text": "\\u009b2J\\ud800é"\n}\n'
    )


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")  # empty means not set: https://no-color.org
    assert styled("x", "red") != "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("x", "red", bold=True) == "x"


def test_colour_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    columns = (Column("a", lambda row: row["a"], colour=lambda row: "red"), Column("b", lambda row: "end"))
    lines = table_lines([{"a": "x"}, {"a": "long"}, {"a": ""}], columns, width=80)

    assert lines[1:] == ["\x1b[31mx\x1b[0m     end", "\x1b[31mlong\x1b[0m  end", "      end"]
