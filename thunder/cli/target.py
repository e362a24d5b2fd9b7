"""Which stack a command talks to, and how: the local one, one named by its CloudFormation name, or an API's URL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from thunder.cli.errors import NotFound, Refused
from thunder.cli.inert import inert
from thunder.cli.options import Options

if TYPE_CHECKING:
    from thunderagent.client import ThunderClient
    from thunderagent.signed_http import Exchange
    from thunderagent.store import Store

STATE_DIR_VARIABLE = "THUNDER_STATE_DIR"
STACK_VARIABLE = "THUNDER_STACK"
API_URL_VARIABLE = "THUNDER_API_URL"
ATTEMPTS = 4  # of a call: an operator would rather be told than wait for a minute
NOTHING_UP = "no local stack is up: start it with `thunder local up`"
NO_STACK = (
    f"which stack? Name it with --stack (or {STACK_VARIABLE}), give its --api-url (or {API_URL_VARIABLE}), "
    "or start one on this machine with `thunder local up`"
)
_API_ID = re.compile(r"https?://(?P<api>[a-z0-9]+)\.execute-api\.")


@dataclass(frozen=True)
class Target:
    """One deployed stack. `service` is its name and the metric dimension Service; it and `table_name` are None when
    only the API's URL is known. `record` is the local stack's, whose endpoint and keys are used instead of AWS's."""

    api_url: str
    options: Options
    service: str | None = None
    table_name: str | None = None
    record: Mapping[str, Any] | None = None

    @property
    def is_local(self) -> bool:
        return self.record is not None

    @property
    def label(self) -> str:
        """As people call it."""
        name = self.service or self.api_url
        if self.is_local:
            return f"{name} on this machine"
        return f"{name} in {self.region}" if self.region else name

    @property
    def region(self) -> str | None:
        from thunderagent.signed_http import region_of

        if self.record is not None:
            return str(self.record["region"])
        return self.options.region or region_of(self.api_url) or self.session.get_config_variable("region")

    @cached_property
    def session(self) -> Any:
        return aws_session(self.options)

    def aws(self, service: str) -> Any:
        """A botocore client of one of the stack's AWS services."""
        if self.record is not None:
            from thunder.local.aws import client

            return client(service, self.record["endpoint"])
        return aws_client(self.session, service, self.options, region=self.region)

    def client(self, wrap: Callable[[Exchange], Exchange] = lambda exchange: exchange) -> ThunderClient:
        """The API's client. `wrap` may look at each request and answer."""
        from thunderagent.client import ThunderClient
        from thunderagent.errors import ConfigurationError
        from thunderagent.signed_http import sigv4_exchange

        credentials = self._credentials()
        if credentials is None:
            raise ConfigurationError("there are no AWS credentials: name a profile with --profile, or set AWS_PROFILE")
        if not self.region:
            raise ConfigurationError("there is no region: say --region, or set AWS_REGION")
        exchange = wrap(sigv4_exchange(credentials, self.region))
        return ThunderClient(self.api_url, exchange=exchange, attempts=ATTEMPTS)

    def store(self) -> Store:
        """The table itself, past the API, with the operator's own rights. Raises Refused when its name is not known."""
        from thunderagent.clock import SystemClock, SystemRandomness
        from thunderagent.schema import Layout
        from thunderagent.store import Store
        from thunderagent.transport import boto_send

        if self.table_name is None:
            raise Refused("this looks at the table itself: say --stack instead of --api-url")
        return Store(
            table=self.table_name,
            send=boto_send(self.aws("dynamodb")),
            clock=SystemClock(),
            randomness=SystemRandomness(),
            layout=Layout(region=self.region or ""),
        )

    def _credentials(self) -> Any:
        if self.record is None:
            return self.session.get_credentials()
        from botocore.credentials import Credentials

        return Credentials(self.record["accessKeyId"], self.record["secretAccessKey"])


def connect(options: Options) -> ThunderClient:
    """The client of the stack these options mean."""
    return locate(options).client()


def locate(options: Options) -> Target:
    """The stack these options mean. Raises Refused when they contradict each other or mean none, NotFound when the
    stack is not there. Talks to CloudFormation only for `--stack`.

    What is said on the command line goes before the environment, and both before a local stack that happens to be up;
    that one is taken only when neither a profile, nor a region, nor an endpoint was given.
    """
    if options.local:
        if options.stack or options.api_url:
            raise Refused("--local is a stack by itself: leave out --stack and --api-url")
        return _local(options)
    if options.stack and options.api_url:
        raise Refused("--stack and --api-url: one is enough")
    stack, api_url = options.stack, options.api_url
    if stack is None and api_url is None:
        stack, api_url = os.environ.get(STACK_VARIABLE), os.environ.get(API_URL_VARIABLE)
    if api_url:
        return Target(_checked_url(api_url), options)
    return _deployed(stack, options) if stack else _whatever_is_up(options)


# ---- the local stack ------------------------------------------------------------------------------------------------


def _whatever_is_up(options: Options) -> Target:
    record = None if options.profile or options.region or options.endpoint_url else local_record()
    if record is None:
        raise Refused(NO_STACK)
    target = _of_record(record, options)
    click.echo(f"using {inert(target.label)} (say --stack for another)", err=True)
    return target


def _local(options: Options) -> Target:
    record = local_record()
    if record is None:
        raise NotFound(NOTHING_UP)
    return _of_record(record, options)


def _of_record(record: Mapping[str, Any], options: Options) -> Target:
    # Loopback is never reached through a proxy, and botocore would ask the environment.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = ",".join(
        filter(None, [os.environ.get("NO_PROXY") or os.environ.get("no_proxy"), "127.0.0.1"])
    )
    services = [name for name in record.get("stacks", []) if not name.endswith("-Data")]
    service = services[0] if services else None
    return Target(str(record["apiUrl"]), options, service=service, table_name=record["tableName"], record=record)


def local_record() -> Mapping[str, Any] | None:
    """What `thunder local status` prints; None when nothing is up, or when this installation has no checkout."""
    from thunder.local.checkout import Checkout
    from thunder.local.errors import LocalError
    from thunder.local.stack import LocalStack
    from thunder.local.state import StateDir

    try:
        checkout = Checkout.of_this_installation()
    except LocalError:
        return None
    directory = Path(os.environ.get(STATE_DIR_VARIABLE) or checkout.root / ".thunder").absolute()
    return LocalStack(checkout, StateDir(directory)).status()


# ---- a stack on AWS -------------------------------------------------------------------------------------------------


def _deployed(stack: str, options: Options) -> Target:
    """By the stack's outputs. A stack without ours is named as what it is."""
    session = aws_session(options)
    outputs = stack_outputs(aws_client(session, "cloudformation", options), stack)
    if "ApiUrl" not in outputs:
        raise NotFound(f"stack {stack} has no output ApiUrl: name the service stack, like ThunderAgent-dev")
    api_url = outputs["ApiUrl"]
    if options.endpoint_url:
        api_url = _behind(options.endpoint_url, api_url)
    return Target(api_url, options, service=stack, table_name=outputs.get("TableName"))


def stack_outputs(cloudformation: Any, stack: str) -> Mapping[str, str]:
    """Raises NotFound when there is no such stack."""
    from botocore.exceptions import ClientError

    try:
        found = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
    except ClientError as error:
        if "does not exist" not in str(error):
            raise
        where = cloudformation.meta.region_name
        raise NotFound(
            f"there is no stack {stack} in {where} for these credentials: check --region and --profile, "
            "or deploy it with `make deploy ENV=dev`"
        ) from error
    return {output["OutputKey"]: output["OutputValue"] for output in found.get("Outputs", [])}


def aws_session(options: Options) -> Any:
    import botocore.session

    return botocore.session.Session(profile=options.profile)


def aws_client(session: Any, service: str, options: Options, *, region: str | None = None) -> Any:
    """With the endpoint asked for; unlike the functions, an operator's call may be repeated by the SDK."""
    return session.create_client(
        service, region_name=region or options.region, endpoint_url=options.endpoint_url or None
    )


def _behind(endpoint: str, api_url: str) -> str:
    """An emulator on loopback serves its APIs below a path; the names in its outputs resolve to AWS, or nowhere."""
    found = _API_ID.match(api_url)
    if found is None or urlsplit(endpoint).hostname not in ("127.0.0.1", "localhost", "::1"):
        return api_url
    return f"{endpoint.rstrip('/')}/_aws/execute-api/{found['api']}/"


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused(f"--api-url {url}: it must be a whole URL, like the stack's output ApiUrl")
    return url
