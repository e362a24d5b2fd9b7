"""`thunder doctor`: look at everything a working stack needs, and say what to do about what is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from thunder.cli import target
from thunder.cli.errors import Failed
from thunder.cli.inert import inert
from thunder.cli.options import Command, Options
from thunder.cli.output import Column, print_json, print_list, styled

if TYPE_CHECKING:
    from thunder.cli.checks import Check
    from thunder.cli.target import Target
    from thunderagent.audit import Audit

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
FINDINGS_SHOWN = 20


@click.command(cls=Command)
@click.option("--audit", "audits", is_flag=True, help="Also look at every item of the table (a scan, and it costs).")
@click.pass_obj
def doctor(options: Options, audits: bool) -> None:
    """Look for what is wrong: credentials, stack, table and index, API, clock, poller and reaper, queues.

    Exit code 1 when something is. Warnings alone leave it 0.
    """
    checks, found = examine(options)
    audit = _audit(found) if audits and found is not None else None
    if audit is not None:
        checks.append(_audit_check(audit))
    _print(checks, audit, options.output)
    bad = [check for check in checks if check.verdict == "fail"]
    if bad:
        raise Failed(f"{len(bad)} of {len(checks)} checks failed")


def examine(options: Options) -> tuple[list[Check], Target | None]:
    """Every check there can be. What cannot even be asked is a failed check, not the end of the others."""
    from thunder.cli.checks import ALL, Check, Verdict
    from thunder.cli.explain import explained

    checks: list[Check] = []

    def guarded(name: str, look: Iterable[Check]) -> None:
        try:
            for check in look:
                checks.append(check)  # one by one: what came before a failure counts
        except Exception as error:
            failure = explained(error)
            if failure is None:
                raise
            first, _, rest = failure.message.partition("\n")
            checks.append(Check(name, Verdict.FAIL, first, rest or None))

    def located() -> Iterable[Check]:
        where.append(target.locate(options))
        return ()

    where: list[Target] = []
    guarded("stack", _lazily(located))
    if not where:
        return checks, None
    for name, look in ALL.items():
        guarded(name, look(where[0]))
    return checks, where[0]


def _lazily(call: Any) -> Iterable[Check]:
    yield from call()


def _print(checks: Sequence[Check], audit: Audit | None, output: str) -> None:
    rows = [check.as_answer() for check in checks]
    if output == "json":
        answer: dict[str, Any] = {"checks": rows}
        if audit is not None:
            answer["findings"] = [finding.as_fields() for finding in audit.findings]
        print_json(answer)
        return
    print_list(rows, _COLUMNS, output)
    for check in checks:
        if check.remedy and check.verdict in ("warn", "fail"):
            click.echo(f"{styled(check.name, COLOURS[check.verdict])}: {inert(check.remedy)}", err=True)
    for finding in audit.findings[:FINDINGS_SHOWN] if audit is not None else ():
        # Ids of slots and buckets hold a tag's value, which is a submitter's own text.
        click.echo(f"invariant {finding.invariant}: {inert(finding.shown_id)}: {inert(finding.problem)}", err=True)


_COLUMNS = (
    Column("check", lambda row: row["check"]),
    Column("verdict", lambda row: row["verdict"], colour=lambda row: COLOURS.get(row["verdict"])),
    Column("detail", lambda row: row["detail"], may_be_cut=True),
)


# ---- the whole audit ------------------------------------------------------------------------------------------------


def _audit(found: Target) -> Audit:
    """With the operator's own right to read the table, past the API: it sees what the API does not show."""
    from thunder.cli.bulk import bar
    from thunderagent.audit import audit

    with bar("items looked at", None) as advance:
        seen = 0

        def progress(items: int) -> None:
            nonlocal seen
            advance(items - seen)
            seen = items

        return audit(found.store(), progress=progress)


def _audit_check(audit: Audit) -> Check:
    from thunder.cli.checks import Check, Verdict

    if not audit.findings:
        return Check("audit", Verdict.OK, f"{audit.items:,} items, no invariant is broken")
    remedy = "`thunder task why` and docs/audit.md tell what each one means; keep the rows for a report"
    return Check("audit", Verdict.FAIL, f"{audit.items:,} items, {len(audit.findings)} findings", remedy)
