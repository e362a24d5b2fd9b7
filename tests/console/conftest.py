"""One console over one API and one table for each test."""

from __future__ import annotations

import pytest

from functions.api import handler
from tests.support.api import Api
from tests.support.console import Site, make_site


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    made = Api()
    monkeypatch.setattr(handler, "service", lambda: made.service)
    return made


@pytest.fixture
def site(api: Api) -> Site:
    return make_site(api)


@pytest.fixture
def read_only_site(api: Api) -> Site:
    return make_site(api, read_only=True)
