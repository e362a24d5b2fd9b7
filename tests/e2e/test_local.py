"""The real stack on this machine: what `thunder local` promises, seen from outside."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.support.local_stack import UpStack, copy_up
from thunder.local.aws import LOOPBACK
from thunder.local.checkout import Checkout
from thunder.local.logs import FunctionLogs
from thunder.local.processes import group_members, open_addresses
from thunder.local.progress import SILENT, Progress
from thunder.local.stack import LocalStack
from thunder.local.state import StateDir

THUNDER = str(Checkout.of_this_installation().venv / "bin" / "thunder")
FIELDS = {
    "endpoint",
    "apiUrl",
    "tableName",
    "bucketName",
    "region",
    "accessKeyId",
    "secretAccessKey",
    "stateDir",
    "pid",
}


def thunder(verb: str, state: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [THUNDER, "local", verb, "--state-dir", str(state), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)


def state_of(stack: UpStack) -> Path:
    return Path(stack.record["stateDir"])


def test_status_tells_everything_needed_to_use_the_stack(stack):
    answer = thunder("status", state_of(stack), "--output", "json")

    assert answer.returncode == 0
    record = json.loads(answer.stdout)
    assert record.keys() >= FIELDS
    assert record == stack.record
    assert stack.client("dynamodb").describe_table(TableName=record["tableName"])
    assert stack.client("s3").head_bucket(Bucket=record["bucketName"])


@pytest.mark.parametrize("path", ["health", "tasks?status=PENDING", "no/such/path"])
def test_unsigned_calls_are_refused(stack, path):
    assert stack.call("GET", path, signed=False).status == 403


def test_signed_calls_are_answered(stack):
    assert stack.call("GET", "health").status == 200


def test_everything_listens_on_loopback_only(stack):
    stack.call("GET", "health")  # so that a Lambda worker runs

    opened = open_addresses(group_members(stack.record["pid"]))

    assert {address for address, _ in opened} == {LOOPBACK}


def test_functions_see_nothing_of_the_shell(stack):
    """Checked on the workers' own environment: what hides there would be missing on AWS."""
    stack.call("GET", "health")

    workers = group_members(stack.record["pid"]) - {stack.record["pid"]}
    environments = [(Path("/proc") / str(pid) / "environ").read_text() for pid in workers]

    assert environments
    for environment in environments:
        names = {entry.partition("=")[0] for entry in environment.split("\0")}
        assert not names & {"VIRTUAL_ENV", "PYTHONPATH", "AWS_PROFILE", "USER", "PWD", "PYTEST_CURRENT_TEST"}
        assert "AWS_ACCESS_KEY_ID=testing" not in environment


def test_what_cloudformation_dropped_is_there(stack):
    table, bucket = {"TableName": stack.record["tableName"]}, {"Bucket": stack.record["bucketName"]}
    dynamodb, s3 = stack.client("dynamodb"), stack.client("s3")

    time_to_live = dynamodb.describe_time_to_live(**table)["TimeToLiveDescription"]
    assert time_to_live == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expiresAt"}
    assert s3.get_bucket_lifecycle_configuration(**bucket)["Rules"]
    assert s3.get_bucket_tagging(**bucket)["TagSet"]


def test_a_second_up_changes_nothing(own_stack):
    before = own_stack.record

    again = thunder("up", state_of(own_stack), "--output", "json")

    assert again.returncode == 0
    assert json.loads(again.stdout) == before
    assert "deploy" not in again.stderr


def test_two_stacks_are_up_at_once_on_their_own_ports(stack, own_stack):
    assert stack.record["endpoint"] != own_stack.record["endpoint"]
    assert stack.call("GET", "health").status == own_stack.call("GET", "health").status == 200


def test_down_leaves_no_process_no_port_and_nothing_unpacked(own_stack):
    own_stack.call("GET", "health")

    assert thunder("down", state_of(own_stack)).returncode == 0

    assert group_members(own_stack.record["pid"]) == set()
    assert list(StateDir(state_of(own_stack)).scratch.iterdir()) == []
    with pytest.raises(OSError, match="refused"):
        own_stack.call("GET", "health")
    assert thunder("status", state_of(own_stack)).returncode == 3


def test_what_was_stored_outlives_down_and_up(own_stack):
    own_stack.client("dynamodb").put_item(TableName=own_stack.record["tableName"], Item={"taskId": {"S": "kept"}})
    own_stack.local.down()

    record = own_stack.local.up()

    again = UpStack(own_stack.local, record)
    found = again.client("dynamodb").get_item(TableName=record["tableName"], Key={"taskId": {"S": "kept"}})
    assert "Item" in found
    assert again.call("GET", "health").status == 200


def test_a_killed_stack_is_not_up_and_comes_up_again(own_stack):
    os.kill(own_stack.record["pid"], signal.SIGKILL)
    os.waitid(os.P_PID, own_stack.record["pid"], os.WEXITED | os.WNOWAIT)  # the kernel ends it when it gets to it
    assert own_stack.local.status() is None

    record = own_stack.local.up()

    assert record["pid"] != own_stack.record["pid"]
    assert group_members(own_stack.record["pid"]) == set()
    assert UpStack(own_stack.local, record).call("GET", "health").status == 200


def test_concurrent_ups_of_one_checkout_start_one_stack(deployed, tmp_path):
    state = tmp_path / "state"
    shutil.copytree(deployed, state)
    said: list[str] = []
    stacks = [LocalStack(Checkout.of_this_installation(), StateDir(state), Progress(said.append)) for _ in range(3)]
    records = []
    threads = [threading.Thread(target=lambda one=one: records.append(one.up())) for one in stacks]

    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        stacks[0].down()

    assert len({record["pid"] for record in records}) == 1
    assert len([line for line in said if "starting" in line]) == 1


def test_logs_show_what_the_functions_said(stack):
    stack.call("GET", "health")

    shown = thunder("logs", state_of(stack), "--lines", "5", "api")

    assert shown.returncode == 0
    assert 1 <= len(shown.stdout.splitlines()) <= 5


def test_following_the_logs_goes_on_with_what_comes(stack):
    logs = stack.client("logs")
    group = f"/aws/lambda/follow-{os.getpid()}"
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="s")

    def write(*messages: str) -> None:
        entries = [{"timestamp": 1_800_000_000_000 + len(message), "message": message} for message in messages]
        logs.put_log_events(logGroupName=group, logStreamName="s", logEvents=entries)

    write("a", "bb")
    following = FunctionLogs(stack.record["endpoint"], named=group).follow(1)
    first = next(following)
    write("ccc")
    second = next(following)

    assert [first.message, second.message] == ["bb", "ccc"]


def test_a_copy_of_the_state_directory_is_a_deployed_stack(deployed, tmp_path):
    copy = copy_up(deployed, tmp_path / "copy", SILENT)
    try:
        assert copy.call("GET", "health").status == 200
    finally:
        copy.local.down()
