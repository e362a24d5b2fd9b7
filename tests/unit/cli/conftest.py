"""Commands over the real API function, in memory."""

from __future__ import annotations

import pytest

from functions.api import handler
from tests.support.api import Api
from tests.support.cli import FakeTarget, Terminal
from thunder.cli import target


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(handler, "service", lambda: made.service)
    return made


@pytest.fixture
def thunder(api: Api, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """The command, with the API in memory as its stack."""
    found = FakeTarget(api)
    monkeypatch.setattr(target, "locate", lambda options: found)
    return Terminal(api, found)
