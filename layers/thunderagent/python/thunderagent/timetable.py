"""When a cron expression fires, in a time zone with its changes of clock. Instants are epoch seconds. No I/O.

Five fields: minute, hour, day of month, month, day of week, as cronsim reads them (names, ranges, steps, `L`, `#`).
When the clocks change, as Debian's cron does it:
- a job whose minute or hour field begins with `*` follows elapsed time: an hourly job fires in both 01:00 hours of the
  long day, and not in the hour that the short day leaves out;
- a job at a fixed time fires once a day: at the first of two equal times on the long day, and on the short day, when
  its time does not exist, in the first minute after the gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, tzinfo
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from thunderagent.errors import InvalidInput

FIELDS = 5
MACHINE_ZONES = frozenset({"localtime", "posixrules", "posix", "right"})
HOUR, DAY = 3600, 86_400
LOOKS_BACK_SECONDS = (HOUR, DAY, 8 * DAY, 40 * DAY, 400 * DAY, 3000 * DAY)


def firings(cron: str, timezone: str, *, after: float) -> Iterator[float]:
    """Every firing later than `after`, in order, each instant once. Ends when there is none within 50 years.

    Raises InvalidInput naming the field, at once, for an expression or a time zone that is none.
    """
    zone = zone_of(timezone)
    if len(cron.split()) != FIELDS:
        raise InvalidInput("cron needs five fields: minute, hour, day of month, month, day of week", path="cron")
    try:
        moments = CronSim(cron, datetime.fromtimestamp(after, zone))
    except (CronSimError, AssertionError, ValueError) as error:
        problem = str(error) or "not understood"
        raise InvalidInput(f"cron: {problem} in {cron!r}", path="cron") from error
    return _rising(moments, after)


def _rising(moments: Iterator[datetime], after: float) -> Iterator[float]:
    """A fixed time in the repeated hour is found again from within it: only what is later counts."""
    latest = after
    for moment in moments:
        instant = moment.timestamp()
        if instant > latest:
            latest = instant
            yield instant


def next_firing(cron: str, timezone: str, *, after: float) -> float:
    """The first firing later than `after`. Raises InvalidInput when there is none, or for what is no expression."""
    found = next(firings(cron, timezone, after=after), None)
    if found is None:
        raise InvalidInput(f"cron: {cron!r} never fires", path="cron")
    return found


def last_firing(cron: str, timezone: str, *, since: float, until: float) -> float | None:
    """The latest firing in [since, until]. Found from windows that grow backwards: an outage of a year costs no
    more than one of an hour."""
    for span in LOOKS_BACK_SECONDS:
        start = max(since, until - span) - 1
        latest = None
        for instant in takewhile(lambda each: each <= until, firings(cron, timezone, after=start)):
            latest = instant
        if latest is not None or start < since:
            return latest
    return None


def zone_of(name: str) -> tzinfo:
    """The time zone of an IANA name. Raises InvalidInput; also for names that some machines' directories of zones hold
    beside those of IANA: what they mean depends on the machine, or counts leap seconds."""
    try:
        if name.partition("/")[0] in MACHINE_ZONES:
            raise ValueError(name)
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # unknown; not a name; a directory such as "America"
        raise InvalidInput(
            f"timezone: {name!r} is not an IANA time zone such as Europe/Berlin",
            path="timezone",
            code="invalid_timezone",
        ) from error
