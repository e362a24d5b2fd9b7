"""One API over one table for each test."""

from __future__ import annotations

import pytest

from functions.api import handler
from tests.support.api import Api


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(handler, "service", lambda: made.service)
    return made
