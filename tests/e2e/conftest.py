"""The real stack on the embedded AWS. `stack` is shared by the session; `own_stack` is a test's own, fresh copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_stack import UpStack, copy_up, deployed_state
from thunder.local.checkout import Checkout
from thunder.local.progress import SILENT, Progress


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this directory, and moves them behind all others: what is wrong anywhere shows soonest."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
    items.sort(key=lambda item: here in item.path.parents)


@pytest.fixture(scope="session")
def deployed() -> Path:
    """A state directory with the stack deployed; not running."""
    return deployed_state(Checkout.of_this_installation(), Progress())


@pytest.fixture(scope="session")
def stack(deployed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpStack]:
    """The stack, up, with whatever earlier tests left in it: name your own tasks, count nothing of others."""
    up = copy_up(deployed, tmp_path_factory.mktemp("stack") / "state", SILENT)
    yield up
    up.local.down()


@pytest.fixture
def own_stack(deployed: Path, tmp_path: Path) -> Iterator[UpStack]:
    """A stack of the test's own, up and empty; a second or so."""
    up = copy_up(deployed, tmp_path / "state", SILENT)
    yield up
    up.local.down()
