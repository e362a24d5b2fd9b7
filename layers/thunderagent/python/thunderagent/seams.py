"""What reaches outside the library, as a deployed process has it: DynamoDB, Lambda, S3, set up when first used.

`TRANSPORT` chooses how DynamoDB and Lambda are reached. `direct`: signed requests without the SDK, a quarter of its CPU
time (docs/performance.md). `boto`: botocore, which knows every way AWS can be configured. `auto`: direct in a Lambda
function whose environment asks for nothing that only botocore knows, botocore everywhere else. S3 is botocore's always.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from thunderagent.aws_environment import endpoint_of, in_function, keys_in, needs_the_sdk
from thunderagent.clock import Clock, Randomness, SystemClock
from thunderagent.errors import ConfigurationError
from thunderagent.transport import BotoKeys, BotoObjects, Invoke, boto_client, boto_invoke, boto_send

if TYPE_CHECKING:
    from thunderagent.bodies import Objects
    from thunderagent.settings import Settings
    from thunderagent.store import Send
    from thunderagent.threads import Threads

Value = TypeVar("Value")


@dataclass(frozen=True)
class Seams:
    """What reaches outside the library. Tests, the simulator and the benchmark give their own."""

    send: Send
    invoke: Invoke
    clock: Clock
    randomness: Randomness
    threads: Threads
    objects: Objects | None = None


def aws_seams(settings: Settings, *, randomness: Randomness, threads: Threads) -> Seams:
    """The seams to AWS, as settings and the process's environment say. Raises ConfigurationError."""
    clock = SystemClock()
    transport = _direct if is_direct(settings) else _boto
    send, invoke = transport(settings.region, clock)
    return Seams(
        send=_lazy_send(send),
        invoke=_lazy_invoke(invoke),
        clock=clock,
        randomness=randomness,
        threads=threads,
        objects=_LazyObjects(settings.region, settings.bucket_name) if settings.bucket_name else None,
    )


def is_direct(settings: Settings) -> bool:
    """Whether requests go without the SDK. Raises ConfigurationError when that was demanded and cannot be."""
    if settings.transport == "boto" or (settings.transport == "auto" and not in_function()):
        return False
    reason = needs_the_sdk(settings.region)
    if reason is not None and settings.transport == "direct":
        raise ConfigurationError(f"TRANSPORT=direct: {reason}, which only TRANSPORT=boto can heed")
    return reason is None


def _boto(region: str, clock: Clock) -> tuple[Callable[[], Send], Callable[[], Invoke]]:
    return (
        lambda: boto_send(boto_client("dynamodb", region=region)),
        lambda: boto_invoke(boto_client("lambda", region=region)),
    )


def _direct(region: str, clock: Clock) -> tuple[Callable[[], Send], Callable[[], Invoke]]:
    from thunderagent.direct import Endpoint, EnvironmentKeys, KeyRing, direct_invoke, direct_send

    keys: KeyRing = EnvironmentKeys() if keys_in() else BotoKeys()

    def endpoint(service: str) -> Endpoint:
        return Endpoint(endpoint_of(service, region), service=service, region=region, keys=keys, clock=clock)

    return lambda: direct_send(endpoint("dynamodb")), lambda: direct_invoke(endpoint("lambda"))


# ---- at the first use -----------------------------------------------------------------------------------------------


class Once(Generic[Value]):
    """Builds a value at the first call and keeps it. Threads that call at the same time wait for the one that builds;
    after a failure the next call builds again."""

    def __init__(self, build: Callable[[], Value]) -> None:
        self._build = build
        self._built: list[Value] = []
        self._lock = threading.Lock()

    def __call__(self) -> Value:
        if not self._built:
            with self._lock:
                if not self._built:
                    self._built.append(self._build())
        return self._built[0]


def deferred(build: Callable[[], Value]) -> Value:
    """What stands for a value whose module is imported, and which is built, when an attribute is first used."""
    return cast(Value, _Deferred(build))


class _Deferred:
    def __init__(self, build: Callable[[], object]) -> None:
        self._value = Once(build)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._value(), name)


def _lazy_send(build: Callable[[], Send]) -> Send:
    """Functions that answer without the table (a health check) set up no way to it."""
    once = Once(build)

    def send(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return once()(operation, arguments)

    return send


def _lazy_invoke(build: Callable[[], Invoke]) -> Invoke:
    """Most functions never invoke."""
    once = Once(build)

    def invoke(function: str, event: bytes) -> None:
        once()(function, event)

    return invoke


class _LazyObjects:
    """Most tasks need no S3: the client (some 0.2 s of cold start) is built at the first body that does."""

    def __init__(self, region: str, bucket: str) -> None:
        self._objects = Once(lambda: BotoObjects(boto_client("s3", region=region), bucket))

    def put(self, key: str, data: bytes) -> None:
        self._objects().put(key, data)

    def get(self, key: str) -> bytes | None:
        return self._objects().get(key)

    def delete(self, key: str) -> None:
        self._objects().delete(key)

    def url(self, key: str, *, seconds: int) -> str:
        return self._objects().url(key, seconds=seconds)
