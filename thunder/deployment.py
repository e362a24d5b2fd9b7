"""`make deploy`: says where a deployment would go, asks, and hands over to the CDK."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.local.checkout import Checkout

REFUSED = 1
USAGE = 2


@dataclass(frozen=True)
class Target:
    """The account and region that the current AWS configuration points at."""

    account: str
    region: str
    identity: str


class NoTarget(Exception):
    """The AWS configuration names no account or no region; the message says what is missing."""


def current_target() -> Target:
    """Asks AWS who we are. Raises NoTarget without usable credentials or without a region."""
    import botocore.exceptions
    import botocore.session

    session = botocore.session.get_session()
    region = session.get_config_variable("region")
    if not region:
        raise NoTarget("no region: set AWS_REGION, or `region` in the profile")
    try:
        sts: Any = session.create_client("sts", region_name=region)
        caller = sts.get_caller_identity()
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise NoTarget(f"no usable AWS credentials: {error}") from error
    return Target(account=caller["Account"], region=region, identity=caller["Arn"])


def environments(checkout: Checkout) -> Sequence[str]:
    """The environments of cdk.json that are meant for an account."""
    from infra.config import read_context

    return [name for name in read_context(checkout.root)["environments"] if name != "local"]


def deploy(checkout: Checkout, environment: str, target: Target) -> int:
    """Runs `cdk deploy` for the environment, with the terminal its own; returns its exit code."""
    command = [str(checkout.node), str(checkout.cdk_cli), "deploy", "--all", "--context", f"env={environment}"]
    env = {
        **os.environ,
        "PATH": os.pathsep.join([str(checkout.venv / "bin"), os.environ.get("PATH", "")]),
        "CDK_DEFAULT_ACCOUNT": target.account,
        "CDK_DEFAULT_REGION": target.region,
    }
    return subprocess.run(command, cwd=checkout.root, env=env, check=False).returncode


def main(
    arguments: Sequence[str],
    *,
    find_target: Callable[[], Target] = current_target,
    ask: Callable[[str], str] = input,
    run: Callable[[Checkout, str, Target], int] = deploy,
) -> int:
    """Shows account, region and identity, and deploys only when the environment's name is typed in answer."""
    checkout = Checkout.of_this_installation()
    known = environments(checkout)
    if len(arguments) != 1 or arguments[0] not in known:
        return refuse(f"say which environment: {' or '.join(known)}", USAGE)
    environment = arguments[0]
    try:
        target = find_target()
    except NoTarget as error:
        return refuse(str(error), REFUSED)
    say(f"account     {target.account}", f"region      {target.region}", f"identity    {target.identity}")
    if answered(ask, f"Type {environment} to deploy to this account: ") != environment:
        return refuse("nothing was deployed", REFUSED)
    return run(checkout, environment, target)


def answered(ask: Callable[[str], Any], question: str) -> str:
    """The operator's answer; no terminal is no answer."""
    try:
        return str(ask(question)).strip()
    except EOFError:
        return ""


def say(*lines: str) -> None:
    """To the operator; data of a command go elsewhere."""
    print(*lines, sep="\n", file=sys.stderr)


def refuse(why: str, code: int) -> int:
    """Say why; the exit code to end with."""
    say(why)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
