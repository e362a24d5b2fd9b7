"""The fault proxy in front of a service that notes what reaches it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from drills import fault_proxy
from drills.fault_proxy import FaultProxy
from thunder.local.checkout import Checkout
from thunderagent.errors import OutcomeUnknown, StoreThrottled
from thunderagent.transport import boto_client, boto_send


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.reached.append((self.headers["X-Amz-Target"].partition(".")[2], json.loads(body)))
        self.server.hosts.append(self.headers["Host"])
        answer = b'{"Attributes": {"a": {"S": "b"}}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def service():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.reached, server.hosts = [], []
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def started(service, tmp_path_factory):
    upstream = f"http://127.0.0.1:{service.server_port}"
    log = tmp_path_factory.mktemp("proxy") / "log"
    running = FaultProxy.start(
        Checkout.of_this_installation(), upstream=upstream, port=FaultProxy.reserve_port(), log=log
    )
    yield running
    running.stop()


@pytest.fixture
def proxy(started, service):
    started.forget()
    service.reached.clear()
    return started


@pytest.fixture
def update(proxy):
    """Sends one update of an item through the proxy."""
    client = boto_client(
        "dynamodb",
        region="us-east-1",
        endpoint_url=proxy.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    send = boto_send(client)
    yield lambda task_id: send("UpdateItem", {"TableName": "tasks", "Key": {"taskId": {"S": task_id}}})
    client.close()


def test_without_rules_everything_passes_with_the_host_that_was_signed(proxy, update, service):
    assert update("t1")["Attributes"] == {"a": {"S": "b"}}
    assert service.hosts[-1] == proxy.url.removeprefix("http://")
    assert proxy.fired() == []


def test_a_throttled_request_does_not_arrive(proxy, update, service):
    with proxy.breaking(fault_proxy.throttled()), pytest.raises(StoreThrottled):
        update("t1")

    assert service.reached == []
    assert update("t1")  # and afterwards they do


def test_updates_of_some_items_can_be_throttled_alone(proxy, update, service):
    with proxy.breaking(fault_proxy.updates_throttled("lease#")):
        with pytest.raises(StoreThrottled):
            update("lease#t1")
        assert update("t1")
        with proxy.breaking(fault_proxy.throttled()), pytest.raises(StoreThrottled):
            update("t2")

    assert [body["Key"]["taskId"]["S"] for _, body in service.reached] == ["t1"]


def test_a_dropped_reply_leaves_the_write_done_and_its_outcome_unknown(proxy, update, service):
    rule = fault_proxy.replies_dropped("UpdateItem", share=1, spare="counter#")
    with proxy.breaking(rule):
        with pytest.raises(OutcomeUnknown):
            update("t1")
        assert update("counter#t1")

    assert [body["Key"]["taskId"]["S"] for _, body in service.reached] == ["t1", "counter#t1"]
    assert [event["operation"] for event in proxy.fired()] == ["UpdateItem"]


def test_only_the_next_update_of_that_item_is_held(proxy, update, service):
    held = {**fault_proxy.next_update_held("t1"), "timeout_ms": 50}
    with proxy.breaking(held):
        assert update("t2")
        with pytest.raises(OutcomeUnknown):
            update("t1")
        assert update("t1")

    assert [body["Key"]["taskId"]["S"] for _, body in service.reached] == ["t2", "t1"]
