"""What takes grants away, over made-up policies; and that its page speaks of the grants the stack has."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.infra.test_permissions import ALLOWED
from tests.least_privilege.found import Found, page
from tests.least_privilege.grants import Grant, Roles, grants_of, kind_of, without
from tests.least_privilege.probes import PROBES
from tests.least_privilege.reasons import REASONS, reason_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "least-privilege.md"
TABLE = "arn:aws:dynamodb:us-east-1:000000000000:table/T"
DOCUMENT: dict[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:PutItem"], "Resource": TABLE},
        {"Effect": "Allow", "Action": "dynamodb:Query", "Resource": f"{TABLE}/index/i"},
    ],
}
GET, PUT = Grant("Api", "dynamodb:GetItem", "table"), Grant("Api", "dynamodb:PutItem", "table")
QUERY = Grant("Api", "dynamodb:Query", "index")


class Iam:
    """One role with one inline policy."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = DOCUMENT

    def list_role_policies(self, **_: Any) -> Any:
        return {"PolicyNames": ["p"]}

    def list_attached_role_policies(self, **_: Any) -> Any:
        return {"AttachedPolicies": []}

    def get_role_policy(self, **_: Any) -> Any:
        return {"PolicyDocument": DOCUMENT}

    def put_role_policy(self, *, PolicyDocument: str, **_: Any) -> None:
        self.document = json.loads(PolicyDocument)

    def delete_role_policy(self, **_: Any) -> None:
        self.document = None

    @property
    def grants(self) -> set[Grant]:
        return set(grants_of("Api", self.document)) if self.document else set()


def test_a_grant_is_one_action_on_one_resource() -> None:
    assert list(grants_of("Api", DOCUMENT)) == [GET, PUT, QUERY]


@pytest.mark.parametrize("gone", [GET, PUT, QUERY])
def test_one_grant_goes_and_no_other(gone: Grant) -> None:
    assert set(grants_of("Api", without(DOCUMENT, "Api", [gone]))) == {GET, PUT, QUERY} - {gone}


def test_what_is_taken_comes_back_in_whatever_order_and_however_it_ends() -> None:
    iam = Iam()
    roles = Roles(iam, {"Api": "role"})
    with roles.lacking(GET):
        with suppress(ZeroDivisionError), roles.lacking(PUT):
            assert iam.grants == {QUERY}
            raise ZeroDivisionError
        assert iam.grants == {PUT, QUERY}
    assert iam.grants == {GET, PUT, QUERY}
    with roles.lacking(GET, PUT, QUERY):
        assert iam.grants == set()
    assert iam.grants == {GET, PUT, QUERY}


def test_a_resource_without_a_word_is_an_error() -> None:
    with pytest.raises(LookupError):
        kind_of("arn:aws:kinesis:us-east-1:1:stream/s")


def test_a_grant_that_nobody_missed_is_told_from_one_with_a_reason() -> None:
    unneeded = Found("Api", "a:B", "table", None, None)
    assert [unneeded.is_unneeded, Found("Api", "a:B", "table", None, "AWS only").is_unneeded] == [True, False]
    assert "not needed" in page([unneeded], [])


def test_the_page_speaks_of_every_grant_of_the_stack_and_of_no_other() -> None:
    words = {"{table}/index/dispatch-index": "index"}
    granted = {
        Grant(
            function.capitalize(),
            action,
            words.get(resource, resource.rpartition("}/")[2].strip("{}").removesuffix("/*")),
        )
        for function, resources in ALLOWED.items()
        for resource, actions in resources.items()
        for action in actions
    }
    assert granted == documented()
    for grant in granted:
        assert reason_of(grant) or PROBES[grant.function]
    assert {(grant.action, grant.resource) for grant in granted} >= set(REASONS)


def documented() -> set[Grant]:
    found, role = set(), ""
    for line in PAGE.read_text().partition("## Callers")[0].splitlines():
        if line.startswith("### "):
            role = line.removeprefix("### ")
        elif line.startswith("| `"):
            action, resource = line.split("|")[1:3]
            found.add(Grant(role, action.strip(" `"), resource.strip()))
            assert "not needed" not in line
    return found
