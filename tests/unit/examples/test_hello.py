"""The handler that users copy from works as its page says."""

import pytest

from functions.executor.tasks.hello import greet
from tests.unit.examples.fakes import FakeContext
from thunderagent import Fail


def test_it_greets() -> None:
    assert greet({"name": " Ada "}, FakeContext()) == {"greeting": "Hello, Ada!"}


@pytest.mark.parametrize("payload", [None, {}, {"name": ""}, {"name": "  "}, {"name": 5}, "Ada"])
def test_without_a_name_it_fails_for_good(payload: object) -> None:
    with pytest.raises(Fail, match=r"payload\.name"):
        greet(payload, FakeContext())
