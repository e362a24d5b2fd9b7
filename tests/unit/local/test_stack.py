"""`up` and `down` around the embedded AWS: what is started, kept and ended, with the CDK left out."""

from __future__ import annotations

import os
import shutil
import time

import pytest

from thunder.local import stack as module
from thunder.local.aws import LOOPBACK, client
from thunder.local.checkout import Checkout
from thunder.local.errors import LocalError
from thunder.local.processes import Child, group_members, open_addresses
from thunder.local.progress import SILENT, Progress
from thunder.local.stack import LocalStack, local_api_url
from thunder.local.state import StateDir, read_json, write_json


@pytest.fixture
def stack(tmp_path, monkeypatch):
    """A stack whose deployment only marks itself as done."""

    def deploy(self, running):
        self._mark_deployed(running, module.fingerprint(self.checkout))

    monkeypatch.setattr(LocalStack, "_deploy", deploy)
    monkeypatch.setattr(LocalStack, "_record", lambda self, running: {"pid": running.child.pid})
    local = LocalStack(Checkout.of_this_installation(), StateDir(tmp_path / "state"), SILENT)
    yield local
    local.down()


def bridge_of(stack):
    return next(child for child in read_json(stack.state.processes_file)["children"] if child["name"] == "bridge")


def told(stack):
    """What the stack says from now on."""
    said = []
    object.__setattr__(stack, "progress", Progress(write=said.append))
    return said


def kill(pid):
    os.killpg(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def eventually_not(condition):
    deadline = time.monotonic() + 10
    while condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def refusing_deployment(self, running):
    raise LocalError("cdk deploy failed")


def test_a_first_deployment_that_fails_leaves_nothing_running(stack, monkeypatch):
    children = []

    def refuse(self, running):
        children.append(running.child)
        raise LocalError("cdk deploy failed")

    monkeypatch.setattr(LocalStack, "_deploy", refuse)

    with pytest.raises(LocalError, match="cdk deploy failed"):
        stack.up()

    assert group_members(children[0].pid) == set()
    assert stack.status() is None


def test_an_update_that_fails_leaves_what_was_up(stack, monkeypatch):
    before = stack.up()
    monkeypatch.setattr(module, "fingerprint", lambda checkout: "changed")
    monkeypatch.setattr(LocalStack, "_deploy", refusing_deployment)

    with pytest.raises(LocalError, match="cdk deploy failed"):
        stack.up()

    assert stack.status() == {**before, "bridge": True}


def test_changed_sources_are_deployed_and_unchanged_ones_are_not(stack, monkeypatch):
    deployed = []
    mark = LocalStack._deploy
    monkeypatch.setattr(LocalStack, "_deploy", lambda self, aws: (deployed.append(aws.port), mark(self, aws)))

    stack.up()
    stack.up()
    assert len(deployed) == 1

    monkeypatch.setattr(module, "fingerprint", lambda checkout: "changed")
    stack.up()
    stack.up()
    assert len(deployed) == 2


def test_what_was_deployed_is_remembered_across_down_and_up(stack, monkeypatch):
    stack.up()
    stack.down()
    monkeypatch.setattr(LocalStack, "_deploy", refusing_deployment)

    assert stack.up()


def test_the_remains_of_a_dead_one_are_ended_before_another_is_started(stack):
    first = stack.up()
    recorded = read_json(stack.state.processes_file)
    embedded, bridge = recorded["children"]
    stale = [{**embedded, "started": "another time"}, bridge]
    write_json(stack.state.processes_file, {**recorded, "children": stale})
    os.kill(first["pid"], 9)

    second = stack.up()

    assert second["pid"] != first["pid"]
    assert group_members(bridge["pid"]) == set()


def test_a_first_run_that_was_killed_is_set_aside(stack):
    said = told(stack)
    first = stack.up()
    client("s3", f"http://{LOOPBACK}:{stack.state.port_file.read_text().strip()}").create_bucket(Bucket="orphan")
    kill(first["pid"])

    stack.up()

    assert any("first run was killed" in line for line in said)
    assert list((stack.state.path / "set-aside" / "s3").rglob("orphan"))
    assert not list(stack.state.objects.rglob("orphan"))


def test_a_later_run_that_was_killed_goes_on_with_what_was_saved(stack):
    said = told(stack)
    stack.up()
    stack.down()
    assert any("it saves what it holds" in line for line in said)
    kill(stack.up()["pid"])

    stack.up()

    assert sum("last run was killed" in line for line in said) == 1
    assert not (stack.state.path / "set-aside").exists()


def test_a_bridge_that_died_is_told_of_and_started_again(stack):
    first = stack.up()
    os.kill(bridge_of(stack)["pid"], 9)
    eventually_not(lambda: group_members(bridge_of(stack)["pid"]))

    assert stack.status() == {**first, "bridge": False}
    assert stack.up() == first
    assert stack.status() == first


def test_down_ends_the_bridge_too(stack):
    stack.up()
    pid = bridge_of(stack)["pid"]

    stack.down()

    assert group_members(pid) == set()


def test_the_bridge_listens_on_nothing(stack):
    stack.up()

    assert open_addresses(group_members(bridge_of(stack)["pid"])) in (set(), None)


def test_down_does_not_touch_a_process_that_merely_has_the_id_now(stack):
    stack.state.create()
    somebody = Child(name="aws", pid=os.getpid(), started="another time")
    write_json(stack.state.processes_file, {"port": 1, "children": [somebody.as_record()]})

    assert stack.down()  # and we are still here to say so


def test_a_checkout_without_its_tools_says_how_to_get_them(tmp_path):
    with pytest.raises(LocalError, match="make setup"):
        LocalStack(Checkout(tmp_path), StateDir(tmp_path / "state"), SILENT).up()


def test_the_fingerprint_changes_with_any_source_and_only_with_sources(tmp_path):
    checkout = Checkout(tmp_path)
    (tmp_path / "functions").mkdir()
    source = tmp_path / "functions" / "handler.py"
    source.write_text("1")
    (tmp_path / "README.md").write_text("not deployed")
    before = module.fingerprint(checkout)

    (tmp_path / "README.md").write_text("still not deployed")
    (tmp_path / "functions" / "__pycache__").mkdir()
    (tmp_path / "functions" / "__pycache__" / "handler.pyc").write_text("bytecode")
    assert module.fingerprint(checkout) == before

    source.write_text("2")
    changed = module.fingerprint(checkout)
    assert changed != before

    shutil.move(source, source.with_name("moved.py"))
    assert module.fingerprint(checkout) not in (before, changed)


@pytest.mark.parametrize(
    "url",
    [
        "https://3ff70966.execute-api.us-east-1.amazonaws.com/",
        "http://3ff70966.execute-api.localhost.localstack.cloud:4566/",
    ],
)
def test_the_api_is_reached_on_loopback(url):
    assert local_api_url(4000, {"ApiUrl": url}) == "http://127.0.0.1:4000/_aws/execute-api/3ff70966/"


def test_an_api_url_of_another_form_is_refused():
    with pytest.raises(LocalError, match=r"https://api\.example\.com"):
        local_api_url(4000, {"ApiUrl": "https://api.example.com/"})
