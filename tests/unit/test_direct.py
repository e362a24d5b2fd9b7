"""The direct transport against a server on this machine: what is sent, what is kept, what answers and losses mean."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from botocore.exceptions import CredentialRetrievalError
from botocore.serialize import create_serializer
from botocore.session import get_session
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes import FakeClock, FakeRandomness
from tests.support.http_server import CLOSE, Request, ScriptedServer, answer, error, scripted_server
from thunderagent.conditions import put
from thunderagent.connections import IDLE_SECONDS, NoAnswer
from thunderagent.direct import Endpoint, EnvironmentKeys, KeyRing, decoded, direct_invoke, direct_send, encoded
from thunderagent.errors import (
    ConditionFailed,
    DispatchError,
    OutcomeUnknown,
    StoreRefused,
    StoreThrottled,
    TransactionCancelled,
)
from thunderagent.schema import Layout
from thunderagent.sigv4 import Keys, Signer
from thunderagent.store import ATTEMPTS, Send, Store, Written
from thunderagent.transport import BotoKeys, boto_client, boto_invoke, boto_send

REGION = "eu-central-1"
KEYS = Keys("AKID", "secret")


class Ring:
    """Keys that are as given until they are refused, then those that follow."""

    def __init__(self, *keys: Keys) -> None:
        self._keys = list(keys)
        self.renewals = 0

    def keys(self) -> Keys:
        return self._keys[0]

    def renewed(self, refused: Keys) -> bool:
        self.renewals += 1
        if len(self._keys) > 1:
            del self._keys[0]
        return self._keys[0] != refused


def endpoint_to(
    server: ScriptedServer,
    *,
    ring: KeyRing | None = None,
    clock: FakeClock | None = None,
    service: str = "dynamodb",
    **timeouts: float,
) -> Endpoint:
    return Endpoint(
        server.url, service=service, region=REGION, keys=ring or Ring(KEYS), clock=clock or FakeClock(), **timeouts
    )


def send_to(server: ScriptedServer, **options: Any) -> Send:
    return direct_send(endpoint_to(server, **options))


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


def store_over(send: Send) -> Store:
    return Store(table="t", send=send, clock=FakeClock(), randomness=FakeRandomness(), layout=Layout())


WRITE = put("put", {"taskId": "a", "owner": "me"}, require=[], applied=lambda old: old.get("owner") == "me")

# ---- what is sent ----------------------------------------------------------------------------------------------------


def test_a_request_is_dynamodbs_json_signed_with_the_session_token(server: ScriptedServer) -> None:
    send_to(server, ring=Ring(Keys("AKID", "secret", "token")))("GetItem", {"TableName": "tasks"})
    (request,) = server.requests
    assert request.line == "POST / HTTP/1.1"
    assert request.json == {"TableName": "tasks"}
    assert request.headers["x-amz-target"] == "DynamoDB_20120810.GetItem"
    assert request.headers["content-type"] == "application/x-amz-json-1.0"
    assert request.headers["accept-encoding"] == "identity"
    assert "x-amzn-trace-id" not in request.headers
    names = ["content-type", "host", "x-amz-date", "x-amz-security-token", "x-amz-target"]
    signed = {name: request.headers[name] for name in names}
    assert signed["host"] == f"127.0.0.1:{server.port}"
    assert signed["x-amz-security-token"] == "token"
    signer = Signer(service="dynamodb", region=REGION)
    own = signer.authorization(Keys("AKID", "secret"), path="/", headers=signed, body=request.body)
    assert request.headers["authorization"] == own


def test_the_trace_of_the_invocation_goes_along_unsigned(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "poller")
    monkeypatch.setenv("_X_AMZN_TRACE_ID", "Root=1-5759e988;Lineage=a:\r\nx: y")
    send_to(server)("GetItem", {})
    (request,) = server.requests
    assert request.headers["x-amzn-trace-id"] == "Root=1-5759e988;Lineage=a:%0D%0Ax:%20y"
    assert "trace" not in request.headers["authorization"]


VALUES = st.recursive(
    st.one_of(
        st.builds(lambda text: {"S": text}, st.text(max_size=5)),
        st.builds(lambda data: {"B": data}, st.binary(max_size=5)),
        st.builds(lambda data: {"BS": data}, st.lists(st.binary(min_size=1, max_size=3), min_size=1, max_size=2)),
        st.just({"NULL": True}),
        st.just({"N": "12"}),
    ),
    lambda inner: (
        st.builds(lambda entries: {"L": entries}, st.lists(inner, max_size=3))
        | st.builds(lambda entries: {"M": entries}, st.dictionaries(st.sampled_from(["B", "BS", "x"]), inner))
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def serialized() -> Callable[[Any], Any]:
    """PutItem's arguments as botocore puts them into a request."""
    model = get_session().get_service_model("dynamodb")
    serializer = create_serializer("json", include_validation=False)
    return lambda arguments: serializer.serialize_to_request(arguments, model.operation_model("PutItem"))["body"]


@settings(deadline=None, max_examples=50)
@given(item=st.dictionaries(st.sampled_from(["B", "BS", "taskId"]), VALUES))
def test_values_travel_as_a_low_level_client_has_them(item: dict[str, Any], serialized: Callable[[Any], Any]) -> None:
    """Binary ones included, and attributes that are named like a type."""
    assert decoded(encoded({"Item": item})) == {"Item": item}
    assert json.loads(encoded({"Item": item})) == json.loads(serialized({"Item": item}))


def test_text_given_for_binary_is_its_bytes_as_in_botocore() -> None:
    assert decoded(encoded({"a": {"B": "é"}, "b": {"BS": ["x", b"y"]}})) == {
        "a": {"B": "é".encode()},
        "b": {"BS": [b"x", b"y"]},
    }


@pytest.mark.parametrize("value", [{1, 2}, object(), 1j])
def test_what_json_cannot_hold_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        encoded({"N": value})


# ---- what is kept ----------------------------------------------------------------------------------------------------


def test_requests_of_one_thread_share_one_connection(server: ScriptedServer) -> None:
    send = send_to(server)
    for _ in range(5):
        send("GetItem", {})
    assert [request.connection for request in server.requests] == [1] * 5


def test_requests_at_once_have_a_connection_each_and_leave_them_to_others(server: ScriptedServer) -> None:
    together = threading.Barrier(4, timeout=10)

    def slow(request: Request) -> bytes:
        together.wait()
        return answer(body={"n": request.json["n"]})

    server.script.extend([slow] * 8)
    send, got = send_to(server), []
    for _ in range(2):
        threads = [threading.Thread(target=lambda n=n: got.append((n, send("Query", {"n": n})["n"]))) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert len(got) == 8
    assert all(asked == answered for asked, answered in got)
    assert {request.connection for request in server.requests} == {1, 2, 3, 4}


def test_a_connection_closed_at_rest_is_not_used_again(server: ScriptedServer) -> None:
    """The usual way a kept connection ends: nothing is sent into it, so nothing is in doubt."""
    send = send_to(server)
    send("GetItem", {})
    server.close_all()
    send("PutItem", {})
    assert [request.connection for request in server.requests] == [1, 2]


def test_a_connection_at_rest_for_long_is_not_used_again(server: ScriptedServer) -> None:
    clock = FakeClock()
    send = send_to(server, clock=clock)
    for pause in (IDLE_SECONDS - 1, IDLE_SECONDS + 1, 0):
        send("GetItem", {})
        clock.advance(pause)
    assert [request.connection for request in server.requests] == [1, 1, 2]


@pytest.mark.parametrize(
    "first",
    [
        answer(connection="close"),
        answer().replace(b"HTTP/1.1", b"HTTP/1.0"),
        answer() + b"HTTP/1.1 200 unasked",
        b"HTTP/1.1 200 OK\r\n\r\n{}" + CLOSE,
    ],
    ids=["close", "HTTP/1.0", "more than was asked for", "up to the end"],
)
def test_a_connection_that_may_not_be_kept_is_not(first: bytes, server: ScriptedServer) -> None:
    server.script.append(first)
    send = send_to(server)
    assert send("GetItem", {}) == {}
    assert send("GetItem", {}) == {}
    assert [request.connection for request in server.requests] == [1, 2]


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_an_answer_in_pieces_is_read_whole(cut: int, server: ScriptedServer) -> None:
    whole = b"HTTP/1.1 100 Continue\r\n\r\n" + answer(body={"Count": 3})

    def in_pieces(request: Request) -> bytes:
        connection = server.open_connections[-1]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(whole[:-cut])
        return whole[-cut:]

    server.script.extend([in_pieces, answer(body={"Count": 4})])
    send = send_to(server)
    assert (send("Query", {}), send("Query", {})) == ({"Count": 3}, {"Count": 4})
    assert [request.connection for request in server.requests] == [1, 1]


def test_an_answer_in_chunks_is_read_whole(server: ScriptedServer) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    server.script.append(head + b'5;x=y\r\n{"Cou\r\nA\r\nnt":123456\r\n1\r\n}\r\n0\r\nTrailer: 1\r\n\r\n')
    send = send_to(server)
    assert send("Query", {}) == {"Count": 123456}
    send("Query", {})
    assert [request.connection for request in server.requests] == [1, 1]


# ---- what an answer means --------------------------------------------------------------------------------------------

OLD = {"taskId": {"S": "a"}, "owner": {"S": "me"}}
REASONS = [{"Code": "None"}, {"Code": "ConditionalCheckFailed", "Item": OLD, "Message": "no"}]
ANSWERS = {
    "condition": error("ConditionalCheckFailedException", message="no", Item=OLD),
    "condition without an item": error("ConditionalCheckFailedException"),
    "transaction": error("TransactionCanceledException", CancellationReasons=REASONS),
    "throughput": error("ProvisionedThroughputExceededException"),
    "throttling": error("ThrottlingException", Message="slow down"),
    "request limit": error("RequestLimitExceeded"),
    "validation": error("ValidationException", message="no such attribute"),
    "collection": error("ItemCollectionSizeLimitExceededException"),
    "conflict": error("TransactionConflictException"),
    "in progress": error("TransactionInProgressException"),
    "token reused": error("IdempotentParameterMismatchException"),
    "no table": error("ResourceNotFoundException"),
    "denied": error("AccessDeniedException", status=400),
    "server": error("InternalServerError", status=500),
    "unavailable": answer(503, b"<html>no JSON</html>"),
    "a proxy's": answer(403, b"forbidden"),
    "empty": answer(400, b""),
    "damaged": answer(body={"Item": OLD}, x_amz_crc32="1"),
    "damaged refusal": error("ValidationException").replace(b"Val", b"Vol"),
    "read and granted": answer(body={"Attributes": {**OLD, "raw": {"B": "aGVsbG8="}}}),
}


class BesideBotocore:
    """A server with a client of botocore's to it, for as many tests as ask (a client takes 0.3 s to make)."""

    def __init__(self, service: str) -> None:
        self._running = scripted_server()
        self.server = self._running.__enter__()
        self.client: Any = boto_client(
            service,
            region=REGION,
            endpoint_url=self.server.url,
            aws_access_key_id="AKID",
            aws_secret_access_key="secret",
        )

    def close(self) -> None:
        self.client.close()
        self._running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[BesideBotocore]:
    beside = BesideBotocore("dynamodb")
    yield beside
    beside.close()


@pytest.fixture(scope="module")
def functions() -> Iterator[BesideBotocore]:
    beside = BesideBotocore("lambda")
    yield beside
    beside.close()


def outcome_of(send: Send) -> Any:
    try:
        found = send("UpdateItem", {"TableName": "t"})
    except (StoreRefused, StoreThrottled, OutcomeUnknown, ConditionFailed, TransactionCancelled) as failed:
        facts = {name: getattr(failed, name, None) for name in ("operation", "code", "item", "reasons", "applied")}
        return type(failed), facts
    return {name: value for name, value in found.items() if name != "ResponseMetadata"}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_means_what_it_means_over_botocore(name: str, dynamodb: BesideBotocore) -> None:
    server = dynamodb.server
    server.script.extend([ANSWERS[name]] * 2)
    assert outcome_of(send_to(server)) == outcome_of(boto_send(dynamodb.client))
    assert not server.script


def test_a_damaged_answer_is_no_answer(server: ScriptedServer) -> None:
    server.script.append(ANSWERS["damaged"])
    with pytest.raises(OutcomeUnknown, match="ChecksumError"):
        send_to(server)("GetItem", {})


def test_a_message_is_kept(server: ScriptedServer) -> None:
    server.script.append(ANSWERS["validation"])
    with pytest.raises(StoreRefused, match="ValidationException: no such attribute"):
        send_to(server)("Query", {})


@pytest.mark.parametrize(
    "broken",
    [
        None,
        CLOSE,
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}" + CLOSE,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}" + CLOSE,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}xx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n{}" + CLOSE,
        b"HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}" + CLOSE,
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
        answer(body=b"no JSON"),
        answer(body=b"[]"),
    ],
    ids=str,
)
def test_what_is_no_answer_leaves_the_outcome_unknown_and_is_not_repeated(
    broken: bytes | None, server: ScriptedServer
) -> None:
    server.script.append(broken)
    send = send_to(server)
    with pytest.raises(OutcomeUnknown):
        send("PutItem", {"n": 1})
    assert len(server.requests) == 1
    assert send("PutItem", {"n": 2}) == {}  # over another connection, or one that was left clean


def test_an_answer_that_does_not_come_is_a_lost_one(server: ScriptedServer) -> None:
    come = threading.Event()

    def late(request: Request) -> bytes:
        come.wait(10)
        return answer()

    server.script.append(late)
    with pytest.raises(OutcomeUnknown, match="ReadTimeout"):
        send_to(server, answer_seconds=0.05)("PutItem", {})
    come.set()


def test_an_answer_that_trickles_ends_at_the_deadline(server: ScriptedServer) -> None:
    """Each piece comes in time, the whole does not. The clock is moved, nobody waits."""
    clock, ended = FakeClock(), threading.Event()

    def trickle(request: Request) -> bytes:
        clock.advance(20)
        server.open_connections[-1].sendall(answer()[:20])
        ended.wait(10)
        return answer()[20:]

    server.script.append(trickle)
    with pytest.raises(OutcomeUnknown, match="ReadTimeout: the answer took too long"):
        send_to(server, clock=clock)("PutItem", {})
    ended.set()


def test_nobody_there_is_surely_not_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nobody = ScriptedServer(port)
    with pytest.raises(OutcomeUnknown, match="ConnectError"):
        send_to(nobody)("PutItem", {})
    with pytest.raises(NoAnswer) as caught:
        endpoint_to(nobody).post("/", {}, b"")
    assert caught.value.sent is False


# ---- with the store's retries ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [None, ANSWERS["server"], ANSWERS["throttling"], ANSWERS["damaged"]], ids=str)
def test_the_store_repeats_until_it_has_an_answer(trouble: bytes | None, server: ScriptedServer) -> None:
    server.script.extend([trouble] * (ATTEMPTS - 1))
    assert store_over(send_to(server)).apply(WRITE) == Written()
    assert len(server.requests) == ATTEMPTS


def test_a_lost_answer_is_recognised_by_the_item_it_left(server: ScriptedServer) -> None:
    server.script.extend([None, ANSWERS["condition"]])
    answered = store_over(send_to(server)).apply(WRITE)
    assert answered == Written({"taskId": "a", "owner": "me"}, replayed=True)


def test_what_is_sent_once_is_sent_once(server: ScriptedServer) -> None:
    server.script.append(None)
    with pytest.raises(OutcomeUnknown):
        store_over(send_to(server)).apply(WRITE, once=True)
    assert len(server.requests) == 1


def test_a_transaction_keeps_its_token(server: ScriptedServer) -> None:
    server.script.extend([None, ANSWERS["throttling"]])
    assert isinstance(store_over(send_to(server)).transact([WRITE], request_token="fresh"), Written)
    assert [request.json["ClientRequestToken"] for request in server.requests] == ["fresh"] * 3


# ---- keys and clocks -------------------------------------------------------------------------------------------------

STALE = [
    error("ExpiredTokenException"),
    error("UnrecognizedClientException"),
    answer(403, {"message": "no"}, x_amzn_errortype="InvalidClientTokenId:http://x"),
]


@pytest.mark.parametrize("refusal", STALE, ids=["expired", "unrecognised", "invalid"])
def test_keys_that_are_refused_are_renewed_once(refusal: bytes, server: ScriptedServer) -> None:
    server.script.append(refusal)
    ring = Ring(KEYS, Keys("NEXT", "other"))
    assert send_to(server, ring=ring)("PutItem", {"n": 1}) == {}
    assert [request.headers["authorization"][:33] for request in server.requests] == [
        "AWS4-HMAC-SHA256 Credential=AKID/",
        "AWS4-HMAC-SHA256 Credential=NEXT/",
    ]
    assert server.requests[0].body == server.requests[1].body


def test_keys_that_are_refused_again_are_a_refusal(server: ScriptedServer) -> None:
    server.script.extend(STALE[:1] * 2)
    ring = Ring(KEYS, Keys("NEXT", "other"), Keys("THIRD", "other"))
    with pytest.raises(StoreRefused, match="ExpiredToken"):
        send_to(server, ring=ring)("PutItem", {})
    assert (len(server.requests), ring.renewals) == (2, 1)


def test_the_same_keys_are_not_tried_again(server: ScriptedServer) -> None:
    server.script.extend(STALE[:1])
    with pytest.raises(StoreRefused, match="ExpiredToken"):
        send_to(server)("PutItem", {})
    assert len(server.requests) == 1


def test_the_environments_keys_are_those_of_the_moment(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    send = send_to(server, ring=EnvironmentKeys())
    for key, token in (("FIRST", "one"), ("SECOND", "two")):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
        send("GetItem", {})
    assert [request.headers["x-amz-security-token"] for request in server.requests] == ["one", "two"]
    assert "Credential=SECOND/" in server.requests[1].headers["authorization"]
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(OutcomeUnknown, match="NoCredentials"):
        send("GetItem", {})


class Chain:
    """botocore's session, as far as keys go."""

    def __init__(self, *loads: Any) -> None:
        self.loads = list(loads)

    def get_credentials(self) -> Any:
        return self.loads.pop(0)


class Frozen:
    """Credentials that botocore renews by itself: each request may find others."""

    def __init__(self, *frozen: Any) -> None:
        self._frozen = list(frozen)

    def get_frozen_credentials(self) -> Any:
        from botocore.credentials import ReadOnlyCredentials

        key = self._frozen.pop(0) if len(self._frozen) > 1 else self._frozen[0]
        if isinstance(key, Exception):
            raise key
        return ReadOnlyCredentials(key, "secret", "token")


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(*loads: Any) -> None:
        found = Chain(*loads)
        monkeypatch.setattr("botocore.session.get_session", lambda: found)

    return install


def test_keys_of_botocores_chain_are_renewed_by_botocore(chain: Callable[..., None]) -> None:
    chain(Frozen("ONE", "TWO"))
    ring = BotoKeys()
    assert [ring.keys().access_key_id, ring.keys().access_key_id] == ["ONE", "TWO"]


def test_a_chain_whose_keys_are_refused_is_asked_anew(chain: Callable[..., None]) -> None:
    chain(Frozen("ONE"), Frozen("ONE"), Frozen("TWO"))
    ring = BotoKeys()
    assert not ring.renewed(ring.keys())
    assert ring.renewed(ring.keys())
    assert ring.keys() == Keys("TWO", "secret", "token")


@pytest.mark.parametrize(
    "loaded", [None, Frozen(CredentialRetrievalError(provider="imds", error_msg="busy"))], ids=["none", "busy"]
)
def test_a_chain_without_keys_is_asked_again_by_the_stores_next_attempt(
    loaded: Any, chain: Callable[..., None], server: ScriptedServer
) -> None:
    chain(loaded, Frozen("ONE"))
    ring = BotoKeys()
    with pytest.raises(OutcomeUnknown):
        send_to(server, ring=ring)("GetItem", {})
    assert server.requests == []


def _skewed(code: str, date: str) -> bytes:
    return answer(400, {"__type": f"x#{code}", "message": "Signature expired"}, date=date)


@pytest.mark.parametrize("code", ["RequestTimeTooSkewed", "InvalidSignatureException"])
def test_a_clock_that_is_wrong_is_corrected_by_the_answer(code: str, server: ScriptedServer) -> None:
    clock = FakeClock(now=1_800_000_000.0)
    server.script.append(_skewed(code, "Fri, 15 Jan 2027 10:00:00 GMT"))  # two hours ahead
    send = send_to(server, clock=clock)
    send("PutItem", {})
    send("PutItem", {})
    stamps = [request.headers["x-amz-date"] for request in server.requests]
    assert stamps == ["20270115T080000Z", "20270115T100000Z", "20270115T100000Z"]


@pytest.mark.parametrize("date", ["Fri, 15 Jan 2027 08:00:30 GMT", "yesterday", ""])
def test_a_signature_refused_for_something_else_is_a_refusal(date: str, server: ScriptedServer) -> None:
    server.script.append(_skewed("InvalidSignatureException", date))
    with pytest.raises(StoreRefused, match="InvalidSignature"):
        send_to(server, clock=FakeClock(now=1_800_000_000.0))("PutItem", {})
    assert len(server.requests) == 1


# ---- Lambda ----------------------------------------------------------------------------------------------------------

ARN = "arn:aws:lambda:eu-central-1:123456789012:function:exec:live"


@pytest.mark.parametrize("function", ["executor", ARN])
def test_an_invoke_is_that_of_botocore(function: str, functions: BesideBotocore) -> None:
    server = functions.server
    server.script.extend([answer(202, b"")] * 2)
    direct_invoke(endpoint_to(server, service="lambda"))(function, b'{"n":1}')
    boto_invoke(functions.client)(function, b'{"n":1}')
    own, theirs = server.requests[-2:]
    assert (own.line, own.body) == (theirs.line, theirs.body)
    assert own.headers["x-amz-invocation-type"] == theirs.headers["x-amz-invocation-type"] == "Event"


REFUSALS: Mapping[str, bytes | None] = {
    "throttled": answer(429, {"Type": "User", "message": "slow"}, x_amzn_errortype="TooManyRequestsException"),
    "not found": answer(404, {"Type": "User"}, x_amzn_errortype="ResourceNotFoundException:http://x/"),
    "server": answer(500, {"Type": "Service"}, x_amzn_errortype="ServiceException"),
    "lost": None,
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refused_invoke_is_told_as_over_botocore(name: str, functions: BesideBotocore) -> None:
    found = []
    for invoke in (direct_invoke(endpoint_to(functions.server, service="lambda")), boto_invoke(functions.client)):
        functions.server.script.append(REFUSALS[name])
        with pytest.raises(DispatchError) as caught:
            invoke("executor", b"{}")
        told = caught.value
        found.append((told.function, None if told.accepted is None else told.code, told.accepted))
    assert found[0] == found[1]
    assert not functions.server.script
