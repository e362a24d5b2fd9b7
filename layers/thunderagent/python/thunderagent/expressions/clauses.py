"""The clauses rights are made of: who may make a change, and of which task."""

from __future__ import annotations

from thunderagent.conditions import Clause, absent, either, equals, more, not_more
from thunderagent.model import LeaseToken
from thunderagent.schema import FORMAT_VERSION
from thunderagent.states import Status

PENDING, RUNNING = Status.PENDING.value, Status.RUNNING.value


def held_by(token: LeaseToken) -> list[Clause]:
    """RUNNING, and under this token: the holder's right, and the reaper's premise."""
    return [equals("status", RUNNING), equals("leaseToken", token)]


def not_cancelled() -> Clause:
    """An acknowledged cancel is decisive: no exit from RUNNING but CANCEL_END may overtake it."""
    return absent("cancelRequested")


def not_blocked() -> Clause:
    return either(absent("blockedCount"), equals("blockedCount", 0))


def before_deadline(now: float) -> Clause:
    return either(absent("deadline"), more("deadline", now))


def of_region(region: str) -> Clause:
    return either(absent("homeRegion"), equals("homeRegion", region))


def of_known_format() -> Clause:
    """Written by this version of the library or an earlier one. What a newer one wrote is the newer one's to move."""
    return not_more("formatVersion", FORMAT_VERSION)
