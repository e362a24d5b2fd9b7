"""`make destroy`: removes an environment that does not keep its data, the objects in its bucket first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from infra.config import ConfigError, EnvironmentConfig, load_config, read_context
from thunder.deployment import REFUSED, USAGE, NoTarget, Target, answered, current_target, environments, refuse, say
from thunder.local.checkout import Checkout

YES = "--yes"
Client = Callable[[str], Any]


@dataclass(frozen=True)
class Data:
    """What the data stack of a deployment holds; nothing where it is not deployed."""

    tables: Sequence[str] = ()
    buckets: Sequence[str] = ()


def data_of(client: Client, stack: str) -> Data:
    """The tables and buckets of a deployed stack, by their physical names."""
    cloudformation = client("cloudformation")
    try:
        resources = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    except cloudformation.exceptions.ClientError as error:
        if "does not exist" in str(error):
            return Data()
        raise

    def of_type(*types: str) -> list[str]:
        return [each["PhysicalResourceId"] for each in resources if each["ResourceType"] in types]

    return Data(
        tables=of_type("AWS::DynamoDB::GlobalTable", "AWS::DynamoDB::Table"), buckets=of_type("AWS::S3::Bucket")
    )


def protected_tables(client: Client, data: Data) -> list[str]:
    """Those that DynamoDB refuses to delete, whatever the configuration says by now."""
    dynamodb = client("dynamodb")
    return [
        table
        for table in data.tables
        if dynamodb.describe_table(TableName=table)["Table"].get("DeletionProtectionEnabled", False)
    ]


def empty_bucket(client: Client, bucket: str) -> int:
    """Delete every version of every object; how many there were. S3 deletes no bucket that holds any."""
    s3 = client("s3")
    deleted = 0
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        versions = list(_versions(page))
        if versions:
            answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": versions, "Quiet": True})
            if errors := answer.get("Errors"):
                raise RuntimeError(f"{bucket}: {errors[0].get('Key')}: {errors[0].get('Message')}")
            deleted += len(versions)
    return deleted


def _versions(page: dict[str, Any]) -> Iterator[dict[str, str]]:
    for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
        yield {"Key": each["Key"], "VersionId": each["VersionId"]}


def kept_by(config: EnvironmentConfig) -> list[str]:
    """The keys of the environment that keep its data."""
    protection = config.protection
    keys = {"retainData": protection.retain, "deletionProtection": protection.deletion_protection}
    return [f"environments.{config.environment}.{key}" for key, is_on in keys.items() if is_on]


def aws_clients(target: Target) -> Client:
    """Clients of the account that the current AWS configuration points at."""
    import botocore.session

    session = botocore.session.get_session()
    return lambda service: session.create_client(service, region_name=target.region)


def cdk_destroy(checkout: Checkout, environment: str, stack: str, target: Target) -> int:
    """Runs `cdk destroy` for one stack; returns its exit code."""
    command = [str(checkout.node), str(checkout.cdk_cli), "destroy", stack, "--exclusively", "--force"]
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(checkout.venv / "bin"), os.environ.get("PATH", "")]),
        "CDK_DEFAULT_ACCOUNT": target.account,
        "CDK_DEFAULT_REGION": target.region,
    }
    return subprocess.run(
        [*command, "--context", f"env={environment}"], cwd=checkout.root, env=env, check=False
    ).returncode


def main(
    arguments: Sequence[str],
    *,
    find_target: Callable[[], Target] = current_target,
    ask: Callable[[str], str] = input,
    clients: Callable[[Target], Client] = aws_clients,
    destroy: Callable[[Checkout, str, str, Target], int] = cdk_destroy,
) -> int:
    """Shows account, region and what would be lost, and destroys only when the environment's name is typed, or
    with `--yes`. An environment that keeps its data, by its configuration or as it is deployed, is refused."""
    checkout = Checkout.of_this_installation()
    known = environments(checkout)
    names = [argument for argument in arguments if argument != YES]
    if len(names) != 1 or names[0] not in known:
        return refuse(f"say which environment: {' or '.join(known)}", USAGE)
    environment = names[0]
    try:
        config = load_config(read_context(checkout.root), environment)
        if keys := kept_by(config):
            return refuse(_kept(environment, f"{' and '.join(keys)} say so in cdk.json"), REFUSED)
        target = find_target()
    except (ConfigError, NoTarget) as error:
        return refuse(str(error), REFUSED)
    client = clients(target)
    data = data_of(client, config.data_stack_name)
    if tables := protected_tables(client, data):
        return refuse(_kept(environment, f"the deployed table {tables[0]} is protected"), REFUSED)
    say(f"account     {target.account}", f"region      {target.region}", f"identity    {target.identity}")
    say(*(f"is lost     {each}" for each in (*data.tables, *data.buckets)))
    if YES not in arguments and answered(ask, f"Type {environment} to destroy it: ") != environment:
        return refuse("nothing was destroyed", REFUSED)
    # The functions first: what still runs would write into the bucket that is being emptied.
    if code := destroy(checkout, environment, config.service_stack_name, target):
        return code
    for bucket in data.buckets:
        say(f"{empty_bucket(client, bucket)} objects deleted from {bucket}")
    return destroy(checkout, environment, config.data_stack_name, target)


def _kept(environment: str, why: str) -> str:
    return (
        f"{environment} keeps its data: {why}. To destroy it all the same, set retainData and deletionProtection to "
        f"false there, deploy that (make deploy ENV={environment}), and say this again"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
