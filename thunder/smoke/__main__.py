"""Deploy under a name of its own, look, report, remove: on failure and Ctrl-C too.

    python -m thunder.smoke [--yes] [--local] [--ttl-minutes N]

Exit code 0: nothing FAILED and nothing is left. `--local` does the same on the embedded AWS of this machine, where what
only an account can answer is skipped, each with the reason.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from thunder.deployment import REFUSED, NoTarget, answered, current_target, refuse, say
from thunder.local.checkout import Checkout
from thunder.smoke.account import Account
from thunder.smoke.checks import CHECKS, Result, Verdict, run_check
from thunder.smoke.place import Place, unique_name


def look(place: Place, results: list[Result]) -> None:
    """Every check once, in order; each result is told at once."""
    for check in CHECKS:
        results.append(run_check(check, place))
        print(line(results[-1]), flush=True)


def line(result: Result) -> str:
    return f"{result.verdict.value:9} {result.name:32} {result.seconds:6.1f} s  {result.detail}"


def verdict_of(results: Sequence[Result], left: Sequence[str]) -> int:
    counts = {verdict: sum(each.verdict is verdict for each in results) for verdict in Verdict}
    print(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()))
    for each in left:
        print(f"LEFT      {each}")
    if not left:
        print("nothing is left")
    return 1 if counts[Verdict.FAILED] or left else 0


@contextmanager
def local_place() -> Iterator[Place]:
    """A stack of its own on the embedded AWS; gone afterwards."""
    from thunder.cli.options import Options
    from thunder.cli.target import Target
    from thunder.local.stack import LocalStack
    from thunder.local.state import StateDir

    with TemporaryDirectory(prefix="thunder-smoke-") as directory:
        stack = LocalStack(Checkout.of_this_installation(), StateDir(Path(directory) / "state"))
        try:
            record = stack.up()
            target = Target(record["apiUrl"], Options(), record=record, table_name=record["tableName"])
            yield Place(target, "ThunderAgent-local", is_aws=False, patience_seconds=90)
        finally:
            stack.down()


def run_local() -> int:
    with local_place() as place:
        results: list[Result] = []
        look(place, results)
        left = place.clean_up()
    return verdict_of(results, left)


def run_in_account(account: Account, ttl_minutes: float) -> int:
    """Whatever happens after the first line of it, the account is cleaned up."""
    results: list[Result] = []
    place: Place | None = None
    left: list[str] = []
    try:
        account.deploy()
        place = account.place(ttl_minutes)
        look(place, results)
    except KeyboardInterrupt:
        say("interrupted: removing what was made")
        results.append(Result("the run", Verdict.FAILED, "interrupted", 0))
    except Exception as error:  # noqa: BLE001  whatever it was, what was made is removed
        results.append(Result("the deployment", Verdict.FAILED, f"{type(error).__name__}: {error}", 0))
        print(line(results[-1]))
    finally:
        patient = signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C would leave the account as it is
        left += place.clean_up() if place else []
        left += account.remove()
        signal.signal(signal.SIGINT, patient)
    return verdict_of(results, left)


def main(arguments: Sequence[str], *, find_target: Callable[[], Any] = current_target, ask: Any = input) -> int:
    parser = argparse.ArgumentParser(prog="python -m thunder.smoke", description=__doc__.partition("\n")[0])
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--local", action="store_true", help="on the embedded AWS of this machine")
    parser.add_argument("--ttl-minutes", type=float, default=15, help="how long to wait for a removal by TTL")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.local:
        return run_local()
    try:
        target = find_target()
    except NoTarget as error:
        return refuse(str(error), REFUSED)
    account = Account(Checkout.of_this_installation(), target, unique_name())
    say(f"account     {target.account}", f"region      {target.region}", f"identity    {target.identity}")
    say(f"deploys     {', '.join(account.stacks)}", "and removes them again; it costs some cents")
    if not options.yes and answered(ask, f"Type {target.account} to go on: ") != target.account:
        return refuse("nothing was deployed", REFUSED)
    return run_in_account(account, options.ttl_minutes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
