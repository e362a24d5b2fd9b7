"""The managed policies of callers, resource by resource: one call stops being let through, or one body stops being
denied, when it goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from botocore.credentials import Credentials

from infra.assets import Project
from infra.routes import SCOPES_OF_ROLE, Route, read_routes
from tests.least_privilege.found import Found
from tests.support.api_access import sample_path
from tests.support.local_stack import UpStack

WITHIN_ANOTHER = (
    "IAM's `*` goes past slashes, so another path of the policy covers it; it is named for who reads the policy."
)
REFUSED_BODY = {"bogus": 1}
"""No call accepts it: what is let through does nothing."""


@dataclass
class Caller:
    """A user with a copy of one role's managed policy, to take parts of it away."""

    up: UpStack
    role: str
    document: dict[str, Any]
    key: Credentials

    @staticmethod
    def of(up: UpStack, role: str) -> Caller:
        iam, name = up.client("iam"), f"least-privilege-{role}"
        described = up.client("cloudformation").describe_stacks(StackName="ThunderAgent-local")["Stacks"][0]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}
        arn = outputs[f"{role.capitalize()}PolicyArn"]
        version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
        document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        iam.create_user(UserName=name)
        made = iam.create_access_key(UserName=name)["AccessKey"]
        return Caller(up, role, document, Credentials(made["AccessKeyId"], made["SecretAccessKey"]))

    def resources(self) -> Iterator[tuple[str, str]]:
        for statement in self.document["Statement"]:
            given = statement["Resource"]
            for resource in given if isinstance(given, list) else [given]:
                yield statement["Effect"], resource

    def let_through_without(self, gone: str | None) -> set[Route]:
        """The calls the gateway passes on when this resource is in no statement."""
        self._put(gone)
        return {route for route in ROUTES if self._passes(route)}

    def _passes(self, route: Route) -> bool:
        body = None if route.method in ("GET", "DELETE") else REFUSED_BODY
        answer = self.up.call(route.method, sample_path(route), body, key=self.key)
        assert answer.status < 500, (route, answer.body)
        return answer.status != 403

    def _put(self, gone: str | None) -> None:
        statements = []
        for statement in self.document["Statement"]:
            given = statement["Resource"]
            left = [each for each in (given if isinstance(given, list) else [given]) if each != gone]
            if left:
                statements.append({**statement, "Resource": left})
        iam, user = self.up.client("iam"), f"least-privilege-{self.role}"
        if statements:
            policy = json.dumps({**self.document, "Statement": statements})
            iam.put_user_policy(UserName=user, PolicyName="p", PolicyDocument=policy)
        else:
            iam.delete_user_policy(UserName=user, PolicyName="p")


ROUTES = read_routes(Project().openapi)


def look_at_callers(up: UpStack, only: str) -> Iterator[Found]:
    """Each allowed or denied path of each role, and the calls that changed when it was gone."""
    for role in SCOPES_OF_ROLE:
        if only.lower() not in role:
            continue
        caller = Caller.of(up, role)
        whole = caller.let_through_without(None)
        for effect, resource in caller.resources():
            path = resource.partition("/$default/")[2]
            left = caller.let_through_without(resource)
            lost, won = sorted(whole - left), sorted(left - whole)
            changed = lost if effect == "Allow" else won
            said = ", ".join(f"{route.method} {route.path}" for route in changed)
            effects = "is refused" if effect == "Allow" else "is let through"
            covered = any(
                effect == other_effect and other != resource and fnmatchcase(resource, other)
                for other_effect, other in caller.resources()
            )
            reason = WITHIN_ANOTHER if covered and not changed else None
            yield Found(role, effect, path, f"{said} {effects}" if said else None, reason)
