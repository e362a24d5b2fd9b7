"""The seams over botocore: one request, one answer, errors translated. No retries here (see store).

The one place that knows botocore in the functions. Importing it does not import botocore; building a seam does. `send`
and `invoke` have a second form without the SDK, in `direct`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from thunderagent.errors import (
    ConditionFailed,
    DispatchError,
    OutcomeUnknown,
    StoreRefused,
    StoreThrottled,
    TransactionCancelled,
)

if TYPE_CHECKING:
    from botocore.client import BaseClient

    from thunderagent.sigv4 import Keys
    from thunderagent.store import Send

THROTTLES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "TooManyRequestsException",
    }
)
CONNECT_SECONDS, READ_SECONDS = 2, 8
_BUILDING = threading.Lock()  # a botocore session is not thread-safe; its clients are

Invoke = Callable[[str, bytes], None]


def boto_client(service: str, *, region: str, endpoint_url: str | None = None, **options: Any) -> BaseClient:
    """A botocore client that sends every request exactly once. The default session is per process and kept."""
    from botocore.config import Config
    from botocore.session import get_session

    config = Config(
        retries={"total_max_attempts": 1},
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=64,
        tcp_keepalive=True,
        parameter_validation=False,
        # Left alone, botocore presigns S3's URLs by version 2 where the region still knows it; S3 refuses that for
        # objects under a KMS key, whatever the region.
        signature_version="s3v4" if service == "s3" else None,
    )
    with _BUILDING:
        session = get_session()
        return session.create_client(service, region_name=region, endpoint_url=endpoint_url, config=config, **options)


def boto_send(client: BaseClient) -> Send:
    """`send` over a DynamoDB client of botocore."""
    from botocore import xform_name
    from botocore.exceptions import BotoCoreError, ClientError

    def send(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = getattr(client, xform_name(operation))(**arguments)
        except ClientError as error:
            raise translate(operation, error.response) from error
        except BotoCoreError as error:
            raise OutcomeUnknown(operation, type(error).__name__, str(error)) from error
        return answer

    return send


def translate(operation: str, response: Mapping[str, Any]) -> Exception:
    """DynamoDB's error answer as one of ours."""
    error = response.get("Error", {})
    code, message = str(error.get("Code", "")), str(error.get("Message", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(operation, response.get("Item"))
    if code == "TransactionCanceledException":
        reasons = response.get("CancellationReasons", [])
        return TransactionCancelled(operation, [(str(r.get("Code")), r.get("Item")) for r in reasons])
    if code in THROTTLES:
        return StoreThrottled(operation, code, message)
    if status >= 500:
        return OutcomeUnknown(operation, code, message)
    return StoreRefused(operation, code, message)


def boto_invoke(client: Any) -> Invoke:
    """`invoke(function, event)` asynchronously over a Lambda client. Raises DispatchError; accepted proves nothing."""
    from botocore.exceptions import BotoCoreError, ClientError

    def invoke(function: str, event: bytes) -> None:
        try:
            client.invoke(FunctionName=function, InvocationType="Event", Payload=event)
        except ClientError as error:
            status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 400))
            code = str(error.response.get("Error", {}).get("Code", ""))
            raise DispatchError(function, code, accepted=None if status >= 500 else False) from error
        except BotoCoreError as error:
            raise DispatchError(function, type(error).__name__, accepted=None) from error

    return invoke


class BotoKeys:
    """The keys of botocore's whole chain (profiles, SSO, containers, instance roles), renewed by botocore before they
    expire. Importing botocore waits for the first request."""

    def __init__(self) -> None:
        self._credentials: Any = None

    def keys(self) -> Keys:
        """Raises NoAnswer when the chain has none, or could not get them."""
        from botocore.exceptions import BotoCoreError

        from thunderagent.connections import NoAnswer
        from thunderagent.sigv4 import Keys

        try:
            if self._credentials is None:
                self._credentials = self._load()
            if self._credentials is None:
                raise NoAnswer("NoCredentials", "botocore finds no AWS keys", sent=False)
            frozen = self._credentials.get_frozen_credentials()
        except BotoCoreError as error:
            raise NoAnswer(type(error).__name__, str(error), sent=False) from error
        return Keys(frozen.access_key, frozen.secret_key, frozen.token or None)

    def renewed(self, refused: Keys) -> bool:
        """Whether the chain, asked anew, has other keys than those."""
        if self.keys() == refused:  # unless another thread has been here
            self._credentials = None
        return self.keys() != refused

    def _load(self) -> Any:
        from botocore.session import get_session

        with _BUILDING:
            return self._credentials or get_session().get_credentials()


class BotoObjects:
    """The S3 seam of `bodies`: whole objects in one bucket. Errors are StoreRefused or OutcomeUnknown."""

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def put(self, key: str, data: bytes) -> None:
        self._call("put_object", Key=key, Body=data)

    def get(self, key: str) -> bytes | None:
        """The object, or None when it is surely not there."""
        try:
            return bytes(self._call("get_object", Key=key)["Body"].read())
        except StoreRefused as refused:
            if refused.code in {"NoSuchKey", "404"} or (refused.code in {"AccessDenied", "403"} and self._lacks(key)):
                return None
            raise

    def _lacks(self, key: str) -> bool:
        """Whether the bucket surely has no such key. S3 says 403 for a missing object to whom it takes for somebody who
        may not list; who may list its prefix can look. False when that is refused too."""
        try:
            listed = self._call("list_objects_v2", Prefix=key, MaxKeys=1)
        except StoreRefused:
            return False
        return all(entry["Key"] != key for entry in listed.get("Contents", []))

    def delete(self, key: str) -> None:
        self._call("delete_object", Key=key)

    def url(self, key: str, *, seconds: int) -> str:
        """A signed URL to read one object. Made without a request: it says nothing of whether the object is there."""
        url: str = self._client.generate_presigned_url(
            "get_object", Params={"Bucket": self._bucket, "Key": key}, ExpiresIn=seconds
        )
        return url

    def _call(self, operation: str, **arguments: Any) -> Any:
        return _called(self._client, operation, Bucket=self._bucket, **arguments)


def boto_put_events(client: Any) -> Callable[[Sequence[Mapping[str, Any]]], list[str | None]]:
    """PutEvents over an EventBridge client: an error code for each entry, None where it was accepted.

    Raises StoreRefused, StoreThrottled or OutcomeUnknown for the call as a whole.
    """

    def put_events(entries: Sequence[Mapping[str, Any]]) -> list[str | None]:
        answer = _called(client, "put_events", Entries=list(entries))
        return [entry.get("ErrorCode") for entry in answer["Entries"]]

    return put_events


@dataclass(frozen=True)
class Message:
    """One message of a queue; `handle` is what deletes it."""

    body: str
    handle: str


class BotoQueue:
    """One SQS queue. Errors are StoreRefused, StoreThrottled or OutcomeUnknown."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, body: str) -> None:
        _called(self._client, "send_message", QueueUrl=self._url, MessageBody=body)

    def receive(self) -> list[Message]:
        """Up to ten messages, without waiting for any."""
        answer = _called(self._client, "receive_message", QueueUrl=self._url, MaxNumberOfMessages=10, WaitTimeSeconds=0)
        return [Message(each["Body"], each["ReceiptHandle"]) for each in answer.get("Messages", [])]

    def delete(self, message: Message) -> None:
        _called(self._client, "delete_message", QueueUrl=self._url, ReceiptHandle=message.handle)


def _called(client: Any, operation: str, **arguments: Any) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return getattr(client, operation)(**arguments)
    except ClientError as error:
        raise translate(operation, error.response) from error
    except BotoCoreError as error:
        raise OutcomeUnknown(operation, type(error).__name__, str(error)) from error


class Meter(Protocol):
    """Who is told what each request consumed."""

    def add(self, operation: str, answer: Mapping[str, Any]) -> None: ...


def metered(send: Send, meter: Meter) -> Send:
    """The same seam, asking DynamoDB what each request consumed. Refused writes cost too, but report nothing."""

    def measured(operation: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = send(operation, {**arguments, "ReturnConsumedCapacity": "TOTAL"})
        meter.add(operation, answer)
        return answer

    return measured
