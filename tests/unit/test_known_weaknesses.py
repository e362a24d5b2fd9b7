"""`make audit-dependencies` passes only when every pin was answered for: silence is not safety."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from infra import audit
from infra.audit import FOUND, NOT_SHOWN, Audited, asked, node_packages, said_by_npm, said_by_pip_audit, told

ROOT = Path(__file__).resolve().parents[2]


def known(name: str, *weaknesses: str) -> dict[str, Any]:
    vulns = [{"id": each, "fix_versions": ["2.1"], "aliases": [], "description": "."} for each in weaknesses]
    return {"name": name, "version": "2.0", "vulns": vulns}


def passed_over(name: str) -> dict[str, Any]:
    return {"name": name, "skip_reason": f"Dependency not found on PyPI and could not be audited: {name} (2.0)"}


def printed(value: Any, *, exit_code: int = 0, complaint: str = "") -> list[str]:
    """A command that prints so, as an audit would."""
    text = value if isinstance(value, str) else json.dumps(value)
    script = "import sys; print(sys.argv[1]); sys.stderr.write(sys.argv[2]); sys.exit(int(sys.argv[3]))"
    return [sys.executable, "-c", script, text, complaint, str(exit_code)]


def code_of(*dependencies: dict[str, Any]) -> int:
    report = {"dependencies": list(dependencies), "fixes": []}
    return told("r.txt", {"a", "b-c"}, asked(printed(report), said_by_pip_audit))


class TestPythonPackages:
    def test_all_answered_for_and_none_weak(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert code_of(known("a"), known("B_c")) == 0
        assert capsys.readouterr().out == "==> r.txt: 2 of 2 packages audited\n"

    def test_a_weakness_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert code_of(known("a", "PYSEC-2026-1"), known("b-c")) == FOUND
        assert "a 2.0: PYSEC-2026-1, mended in 2.1" in capsys.readouterr().out

    def test_what_the_service_does_not_know_is_not_audited(self, capsys: pytest.CaptureFixture[str]) -> None:
        """pip-audit ends with 0 then, and says «No known vulnerabilities found»."""
        assert code_of(known("a"), passed_over("b-c")) == NOT_SHOWN
        assert "r.txt: NOT AUDITED: b-c: the service does not know them" in capsys.readouterr().err

    def test_nor_is_what_no_answer_names(self) -> None:
        assert code_of(known("a")) == NOT_SHOWN

    def test_a_weakness_counts_beside_what_was_passed_over(self) -> None:
        assert code_of(known("a", "PYSEC-2026-1"), passed_over("b-c")) == FOUND


class TestNodePackages:
    def test_a_report_is_about_the_whole_lock_file(self) -> None:
        found = said_by_npm({"auditReportVersion": 2, "vulnerabilities": {}, "metadata": {}}, {"aws-cdk"})
        assert found == Audited(frozenset({"aws-cdk"}))

    def test_a_weakness_is_named(self) -> None:
        weak = {"aws-cdk": {"name": "aws-cdk", "severity": "high", "range": "<2.2", "via": [], "effects": []}}
        assert said_by_npm({"vulnerabilities": weak}, {"aws-cdk"}).weak == ("aws-cdk <2.2: high",)

    def test_a_refusal_is_no_report(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = said_by_npm({"message": "405 Method Not Allowed", "statusCode": 405}, {"aws-cdk"})
        assert told("package-lock.json", {"aws-cdk"}, found) == NOT_SHOWN
        assert "NOT AUDITED: aws-cdk: 405 Method Not Allowed" in capsys.readouterr().err

    def test_the_lock_file_names_them(self) -> None:
        assert "aws-cdk" in node_packages(ROOT)


@pytest.mark.parametrize("text", ["", "Traceback", "[]", "{}", '{"dependencies": 1}', '{"dependencies": [1]}', "null"])
def test_what_is_no_report_shows_nothing(text: str) -> None:
    found = asked(printed(text, exit_code=1, complaint="first\nConnectionError: no route"), said_by_pip_audit)
    assert found == Audited(problem="ConnectionError: no route")


def test_a_missing_tool_shows_nothing() -> None:
    assert "no-such-tool" in asked(["no-such-tool-of-audits"], said_by_pip_audit).problem


def test_the_whole_passes_only_when_every_part_does(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(audit, "asked", lambda command, read: Audited())
    monkeypatch.setattr(audit, "told", lambda what, wanted, found: codes.pop(0))
    for last, code in ((0, 0), (NOT_SHOWN, NOT_SHOWN), (FOUND, FOUND)):
        codes[:] = [0] * len(audit.PYTHON_FILES) + [last]
        assert audit.main() == code
    codes[:] = [FOUND] + [NOT_SHOWN] * len(audit.PYTHON_FILES)
    assert audit.main() == FOUND


def test_every_requirements_file_is_audited() -> None:
    written = {str(each.relative_to(ROOT)) for each in ROOT.glob("requirements*.txt")}
    assert written | {"layers/dependencies/requirements.txt"} == set(audit.PYTHON_FILES)
