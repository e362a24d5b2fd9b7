"""A smoke run's stacks in the caller's account: deployed, found, removed, and what is left of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder.deployment import Target
from thunder.destruction import Client, aws_clients, data_of, empty_bucket
from thunder.local.checkout import Checkout
from thunder.smoke.configuration import ENVIRONMENT, NAME_VARIABLE, config
from thunder.smoke.place import Place

Run = Callable[[Sequence[str], Mapping[str, str]], int]


def run_command(command: Sequence[str], env: Mapping[str, str]) -> int:
    """In a process group of its own, so that Ctrl-C reaches us and not CloudFormation's half-done work."""
    return subprocess.run(command, env=env, check=False, start_new_session=True).returncode


@dataclass
class Account:
    """The stacks of one run, by their unique name."""

    checkout: Checkout
    target: Target
    name: str
    run: Run = run_command
    clients: Callable[[Target], Client] = field(default=aws_clients, repr=False)

    @property
    def service_stack(self) -> str:
        return config(self.name).service_stack_name

    @property
    def stacks(self) -> tuple[str, str]:
        """The functions first: what still runs would write into a bucket that is being emptied."""
        return self.service_stack, config(self.name).data_stack_name

    def deploy(self) -> None:
        """Raises RuntimeError when the CDK does not succeed."""
        if code := self._cdk("deploy", "--all", "--require-approval", "never"):
            raise RuntimeError(f"cdk deploy ended with {code}: is the account bootstrapped?")

    def place(self, ttl_minutes: float) -> Place:
        from thunder.cli.options import Options
        from thunder.cli.target import locate

        target = locate(Options(stack=self.service_stack, region=self.target.region))
        return Place(target, self.service_stack, is_aws=True, ttl_minutes=ttl_minutes)

    def remove(self) -> list[str]:
        """Both stacks and the bucket's objects. What could not be removed, and what is still there, in words."""
        client, left = self.clients(self.target), []
        service, data = self.stacks
        for step in (
            lambda: self._destroyed(service),
            lambda: [empty_bucket(client, bucket) for bucket in data_of(client, data).buckets],
            lambda: self._destroyed(data),
        ):
            try:
                step()
            except Exception as error:  # noqa: BLE001  the next step may still remove something
                left.append(f"{type(error).__name__}: {error}")
        return [*left, *self._remains(client)]

    def _destroyed(self, stack: str) -> None:
        if code := self._cdk("destroy", stack, "--exclusively", "--force"):
            raise RuntimeError(f"cdk destroy {stack} ended with {code}")

    def _remains(self, client: Client) -> list[str]:
        """Whatever still bears the run's name or tag."""
        found: list[str] = []
        try:
            pages = client("resourcegroupstaggingapi").get_paginator("get_resources")
            for page in pages.paginate(TagFilters=[{"Key": "ThunderAgent", "Values": [self.service_stack]}]):
                found += [each["ResourceARN"] for each in page["ResourceTagMappingList"]]
            groups = client("logs").get_paginator("describe_log_groups")
            for page in groups.paginate(logGroupNamePrefix=f"/aws/lambda/{self.name}"):
                found += [each["logGroupName"] for each in page["logGroups"]]
        except Exception as error:  # noqa: BLE001  then nobody knows, and that is said
            found.append(f"could not look for remains: {type(error).__name__}: {error}")
        return found

    def _cdk(self, verb: str, *arguments: str) -> int:
        app = f"{sys.executable} -m thunder.smoke.app"
        command = [str(self.checkout.node), str(self.checkout.cdk_cli), verb, *arguments, "--app", app]
        env: dict[str, Any] = {
            **os.environ,
            "PATH": os.pathsep.join([str(self.checkout.venv / "bin"), os.environ.get("PATH", "")]),
            "CDK_DEFAULT_ACCOUNT": self.target.account,
            "CDK_DEFAULT_REGION": self.target.region,
            "PYTHONPATH": str(self.checkout.root),
            NAME_VARIABLE: self.name,
        }
        return self.run([*command, "--output", f"build/{ENVIRONMENT}/cdk.out"], env)
