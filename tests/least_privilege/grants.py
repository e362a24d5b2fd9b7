"""What the deployed roles may do, grant by grant, and how to take single grants away and give them back.

A grant is one action on one resource in the inline policy of a function's role. Roles are edited through the IAM API:
the embedded AWS judges each call by the policy as it stands, so nothing is deployed anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

FUNCTIONS = ("Api", "Poller", "Doorbell", "Executor", "Reaper", "Recorder")
KINDS = (
    ("index", r":dynamodb:.*/index/"),
    ("stream", r":dynamodb:.*/stream/"),
    ("table", r":dynamodb:"),
    ("bodies", r":s3:.*/bodies/"),
    ("reports", r":s3:.*/reports/"),
    ("archive", r":s3:.*/archive/"),
    ("bucket", r":s3:"),
    ("logs", r":logs:"),
    ("executor", r":lambda:.*Executor"),
    ("undelivered", r":sqs:.*Undelivered"),
    ("failures", r":sqs:.*Failures"),
    ("bus", r":events:"),
)
"""A resource by its ARN, in a word that does not depend on generated names. The first that fits counts."""


@dataclass(frozen=True, order=True)
class Grant:
    """One action on one resource for one function. `resource` is a word of KINDS."""

    function: str
    action: str
    resource: str

    def __str__(self) -> str:
        return f"{self.function} {self.action} on {self.resource}"


def kind_of(arn: str) -> str:
    """Raises LookupError for a resource that has no word yet."""
    for kind, pattern in KINDS:
        if re.search(pattern, arn):
            return kind
    raise LookupError(f"no word for the resource {arn}")


def grants_of(function: str, document: dict[str, Any]) -> Iterator[Grant]:
    for statement in document["Statement"]:
        for action in _listed(statement["Action"]):
            for resource in _listed(statement["Resource"]):
                yield Grant(function, action, kind_of(resource))


def without(document: dict[str, Any], function: str, removed: Iterable[Grant]) -> dict[str, Any]:
    """The policy document less these grants. A statement keeps what is left of it; an empty one goes."""
    gone = set(removed)
    statements = []
    for statement in document["Statement"]:
        for resource in _listed(statement["Resource"]):
            kept = [
                action
                for action in _listed(statement["Action"])
                if Grant(function, action, kind_of(resource)) not in gone
            ]
            if kept:
                statements.append({**statement, "Action": kept, "Resource": resource})
    return {**document, "Statement": statements}


@dataclass
class Roles:
    """The roles of the functions of a running stack, and what is taken from them at the moment."""

    iam: Any
    role_names: dict[str, str]
    _policies: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    _removed: list[Grant] = field(default_factory=list)

    def __post_init__(self) -> None:
        for function, role in self.role_names.items():
            names = self.iam.list_role_policies(RoleName=role)["PolicyNames"]
            attached = self.iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
            assert not attached, f"{role} has managed policies: their grants would be missed"
            self._policies[function] = {
                name: self.iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names
            }

    def grants(self) -> list[Grant]:
        return sorted(
            {
                grant
                for function, policies in self._policies.items()
                for document in policies.values()
                for grant in grants_of(function, document)
            }
        )

    @contextmanager
    def lacking(self, *grants: Grant) -> Iterator[None]:
        """These grants are gone while the block runs, beside those that enclosing blocks have taken."""
        self._removed += grants
        self._apply({grant.function for grant in grants})
        try:
            yield
        finally:
            for grant in grants:
                self._removed.remove(grant)
            self._apply({grant.function for grant in grants})

    def _apply(self, functions: Iterable[str]) -> None:
        for function in functions:
            for name, document in self._policies[function].items():
                left = without(document, function, self._removed)
                role = self.role_names[function]
                if left["Statement"]:
                    self.iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(left))
                else:
                    self.iam.delete_role_policy(RoleName=role, PolicyName=name)


def _listed(value: Any) -> Sequence[str]:
    return value if isinstance(value, list) else [value]
