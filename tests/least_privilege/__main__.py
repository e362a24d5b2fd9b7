"""`make least-privilege`: take every grant of the stack away once, and say which probe notices.

Exits with 1 when a grant is not needed, when a probe fails with all grants in place, or when one does not recover.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.least_privilege.callers import look_at_callers
from tests.least_privilege.driven import DrivenStack
from tests.least_privilege.found import Found, page
from tests.least_privilege.grants import Grant
from tests.least_privilege.probes import PROBES, Probe
from tests.least_privilege.reasons import reason_of
from tests.support.local_stack import copy_up, deployed_state
from thunder.local.checkout import Checkout
from thunder.local.progress import SILENT, Progress

PAGE = Path(__file__).resolve().parents[2] / "docs" / "least-privilege.md"
TRIES = 3


def main() -> int:
    arguments = argparse.ArgumentParser(prog="make least-privilege")
    arguments.add_argument("--only", default="", help="a function, a role or a part of an action's name")
    only = arguments.parse_args().only
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="thunder-least-privilege-") as scratch:
        deployed = deployed_state(Checkout.of_this_installation(), Progress())
        up = copy_up(deployed, Path(scratch) / "state", SILENT)
        try:
            functions = [_told(found) for found in look_at_functions(DrivenStack.of(up), only)]
            callers = [_told(found) for found in look_at_callers(up, only)]
        finally:
            up.local.down()
    if not only:
        PAGE.write_text(page(functions, callers))
    unneeded = [found for found in functions + callers if found.is_unneeded]
    for found in unneeded:
        print(f"not needed: {found.role} {found.action} on {found.resource}", file=sys.stderr)
    print(f"{len(functions) + len(callers)} grants in {time.monotonic() - started:.0f} s, {len(unneeded)} not needed")
    return 1 if unneeded else 0


def _told(found: Found) -> Found:
    noticed = found.noticed_by or found.reason or "NOTHING"
    print(f"{found.role:10} {found.action:26} {found.resource:28} {noticed}", flush=True)
    return found


def look_at_functions(stack: DrivenStack, only: str) -> Iterator[Found]:
    """Every grant of every function's role, with the probe that failed without it."""
    wanted = [grant for grant in stack.roles.grants() if only.lower() in str(grant).lower()]
    for function in dict.fromkeys(grant.function for grant in wanted):
        for probe in PROBES[function]:
            require(probe, stack, "with every grant in place")
        for grant in (each for each in wanted if each.function == function):
            reason = reason_of(grant)
            noticed = None if reason else noticed_by(stack, grant)
            yield Found(function, grant.action, grant.resource, noticed, reason)


def noticed_by(stack: DrivenStack, grant: Grant) -> str | None:
    """The first probe that fails without the grant, and passes with it again."""
    for probe in PROBES[grant.function]:
        with stack.roles.lacking(grant):
            problem = failure(probe, stack)
        if problem is None:
            continue
        require(probe, stack, f"with {grant} given back")
        return probe.__name__
    return None


def require(probe: Probe, stack: DrivenStack, when: str) -> None:
    """Raises SystemExit when the probe keeps failing; a machine under load may make it late once."""
    problems = []
    while len(problems) < TRIES:
        problem = failure(probe, stack)
        if problem is None:
            return
        problems.append(problem)
    raise SystemExit(f"{probe.__name__} fails {when}: {problems[-1]}")


def failure(probe: Probe, stack: DrivenStack) -> str | None:
    """How the probe failed, on a table that holds nothing else; None when it passed."""
    stack.empty()
    try:
        probe(stack)
    except Exception as error:  # noqa: BLE001  # whatever it fails with is the answer
        return f"{type(error).__name__}: {str(error)[:300]}"
    return None


if __name__ == "__main__":
    sys.exit(main())
