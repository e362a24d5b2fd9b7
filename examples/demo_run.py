"""The demonstration run: `python -m examples.demo_run`, once a local stack is up (`make up`; `make demo` does both).

Submits several hundred real report tasks and some that misbehave on purpose through the API Gateway endpoint, follows
them, and judges the outcome. Ends with 0 exactly if every task ended as it should, each run once; with 1 and a list of
what differed otherwise; with 3 if nothing is up.
"""

import argparse
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.follow import Run, RunFailed
from examples.live import live
from examples.meter import WriteUnits, write_units_since
from examples.stack import RECORD, LocalStack, NothingIsUp
from examples.verdict import Finished, Verdict
from examples.workload import MOST_REPORTS, Workload
from thunderagent.client import ApiError, ThunderClient

MOST_DIFFERENCES = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit code."""
    options = _options(arguments)
    output, progress = Console(), Console(stderr=True)
    try:
        stack = LocalStack.of_record(options.record)
    except NothingIsUp as error:
        progress.print(Text(str(error)))
        return 3
    try:
        return _demonstrate(stack, options, output=output, progress=progress)
    except RunFailed as error:
        progress.print(Text(str(error)))
        return 1
    except (ApiError, BotoCoreError, ClientError) as error:
        progress.print(Text(f"the local stack refused or does not answer (`make up` starts it): {error}"))
        return 1
    except KeyboardInterrupt:
        progress.print("interrupted; what was submitted goes on running as long as the stack is up")
        return 130


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.demo_run", description="Run real tasks on the local stack."
    )
    parser.add_argument(
        "--reports", type=_report_count, default=300, help=f"report tasks, at most {MOST_REPORTS} (300)"
    )
    parser.add_argument("--timeout", type=float, default=150, help="seconds after which it gives up (150)")
    parser.add_argument("--record", type=Path, default=RECORD, help=f"the local stack's record ({RECORD})")
    return parser.parse_args(arguments)


def _report_count(text: str) -> int:
    count = int(text)
    if not 0 <= count <= MOST_REPORTS:
        raise argparse.ArgumentTypeError(f"from 0 to {MOST_REPORTS}: there are no more different reports")
    return count


def _demonstrate(stack: LocalStack, options: argparse.Namespace, *, output: Console, progress: Console) -> int:
    workload = Workload(run=secrets.token_hex(4), reports=options.reports, flaky=12, counted=20)
    works = workload.works()
    progress.print(Text(f"submitting {len(works)} tasks to {stack.api_url}"))
    stack.start_poller()
    began = time.time()
    with live(progress) as shown:
        run = Run(client_of(stack), shown, total=len(works), ends_at=time.monotonic() + options.timeout)
        finished = run.through(works)
    verdict = Verdict.of(
        finished, counted=stack.counts(workload.counters), missing_reports=stack.absent(_published(finished))
    )
    output.print(_figures(verdict, write_units_since(stack.endpoint, stack.table_name, began)))
    output.print(_where_to_look(_save(stack, finished, options.record.parent / "reports")), soft_wrap=True)
    return _conclude(verdict, output)


def client_of(stack: LocalStack) -> ThunderClient:
    """A client of the stack's API that signs as the embedded AWS's own user, whoever the operator is elsewhere."""
    return ThunderClient(
        stack.api_url,
        region=stack.region,
        credentials=Credentials(stack.access_key_id, stack.secret_access_key),
    )


def _published(finished: Sequence[Finished]) -> list[str]:
    """The keys that successful reports say they wrote."""
    results = [one.task.result for one in finished if one.work.type == "report.generate" and one.task.succeeded]
    return [result[part] for result in results for part in ("summary", "chart")]


def _save(stack: LocalStack, finished: Sequence[Finished], directory: Path) -> list[Path]:
    """Copy one chart of each station, of the longest period there is, to where it can be opened."""
    charts = {key for key in _published(finished) if key.endswith(".svg")}
    shortest_name_last = sorted(charts - set(stack.absent(charts)), key=lambda key: (len(key), key), reverse=True)
    by_station = {key.split("/")[1]: key for key in shortest_name_last}
    return [stack.save(key, directory) for _, key in sorted(by_station.items())]


def _figures(verdict: Verdict, units: WriteUnits) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for name, figure, remark in (
        ("submitted", str(verdict.submitted), ""),
        ("succeeded", str(verdict.succeeded), ""),
        ("retried", str(verdict.retried), "raised at first, as they should"),
        ("failed as intended", str(verdict.failed_as_intended), "now dead letters"),
        ("duplicates", str(verdict.duplicates), "by counters and attempts"),
        ("queue latency p50", _seconds(verdict.latency_p50), "submit to start, all at once"),
        ("queue latency p95", _seconds(verdict.latency_p95), ""),
        ("throughput", _rate(verdict.tasks_per_second), "first submit to last end"),
        ("write units per task", *_write_units(units, verdict.submitted)),
    ):
        table.add_row(name, figure, remark)
    return table


def _write_units(units: WriteUnits, tasks: int) -> tuple[str, str]:
    if not tasks or not units.total:
        return "-", "this stack does not meter them"
    remark = f"table {units.table / tasks:.1f}, index {units.index / tasks:.1f}, leases included"
    return f"{units.total / tasks:.1f}", remark


def _where_to_look(saved: Sequence[Path]) -> str:
    reports = [f"  a report      {path}" for path in saved]
    return "\n".join(
        [
            "",
            "Where to look next",
            *reports,
            "  the handler   examples/reports/tasks.py, your own go into functions/executor/tasks/",
            "  the stack     make up, then .venv/bin/thunder local status",
            "  what it says  .venv/bin/thunder local logs",
        ]
    )


def _conclude(verdict: Verdict, output: Console) -> int:
    if not verdict.differences:
        output.print("\nEvery task ended as it should.", style="green")
        return 0
    output.print(f"\n{len(verdict.differences)} things are not as they should be:", style="red")
    for difference in verdict.differences[:MOST_DIFFERENCES]:
        output.print(Text(f"  {difference}"))
    if len(verdict.differences) > MOST_DIFFERENCES:
        output.print(f"  and {len(verdict.differences) - MOST_DIFFERENCES} more")
    return 1


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} tasks/s"


if __name__ == "__main__":
    sys.exit(main())
