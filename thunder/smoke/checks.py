"""What is looked at. Each check returns what it saw, or raises Failed; one that only an account can answer says why."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from thunder.smoke.configuration import LEASE_SECONDS, THROTTLE_PER_SECOND
from thunder.smoke.place import Place
from thunderagent.metrics import NAMESPACE

MIB = 1024 * 1024


class Verdict(StrEnum):
    OK = "ok"
    FAILED = "FAILED"
    NOT_SEEN = "not seen"
    SKIPPED = "skipped"


class Failed(Exception):
    """What was seen is not what must be."""


class NotSeen(Exception):
    """It did not come within the time that was waited. That proves nothing either way."""


@dataclass(frozen=True)
class Check:
    """`only_aws` says why the embedded AWS cannot answer; None: it can."""

    name: str
    look: Callable[[Place], str]
    only_aws: str | None = None


@dataclass(frozen=True)
class Result:
    name: str
    verdict: Verdict
    detail: str
    seconds: float


def require(condition: bool, what: str) -> None:
    if not condition:
        raise Failed(what)


def run_check(check: Check, place: Place) -> Result:
    begun = place.monotonic()
    if check.only_aws and not place.is_aws:
        return Result(check.name, Verdict.SKIPPED, check.only_aws, 0)
    try:
        verdict, detail = Verdict.OK, check.look(place)
    except NotSeen as error:
        verdict, detail = Verdict.NOT_SEEN, str(error)
    except Failed as error:
        verdict, detail = Verdict.FAILED, str(error)
    except Exception as error:  # noqa: BLE001  one check must not keep the others from being made, nor the clean-up
        verdict, detail = Verdict.FAILED, f"{type(error).__name__}: {error}"
    return Result(check.name, verdict, detail, place.monotonic() - begun)


# ---- the path --------------------------------------------------------------------------------------------------------


def round_trip(place: Place) -> str:
    begun = place.monotonic()
    task = place.client.submit("demo.echo", {"smoke": True})
    done = place.client.wait(task.task_id, timeout_seconds=place.patience_seconds)
    require(done.succeeded and done.result == {"smoke": True}, f"the task ended {done.status}")
    return f"submitted, run and read in {place.monotonic() - begun:.1f} s"


def table_settings(place: Place) -> str:
    dynamodb, table = place.aws("dynamodb"), place.target.table_name
    ttl = dynamodb.describe_time_to_live(TableName=table)["TimeToLiveDescription"]
    require(ttl.get("AttributeName") == "expiresAt" and ttl["TimeToLiveStatus"].startswith("ENABL"), f"TTL is {ttl}")
    backups = dynamodb.describe_continuous_backups(TableName=table)["ContinuousBackupsDescription"]
    recovery = backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"]
    require(recovery == "ENABLED", f"point-in-time recovery is {recovery}")
    return "TTL on expiresAt, point-in-time recovery on"


def unsigned_is_refused(place: Place) -> str:
    status = place.unsigned("health")
    require(status == 403, f"GET /health without a signature answered {status}")
    return "403"


def operator_may_not_submit(place: Place) -> str:
    """IAM's answer, path by path: the operator's role may look and operate, and may not submit."""
    role = place.outputs()["OperatorRoleArn"]
    given = place.aws("sts").assume_role(RoleArn=role, RoleSessionName="smoke")["Credentials"]
    key = Credentials(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
    allowed = place.wait_for(lambda: place.call("GET", "stats", key=key).status == 200, seconds=60)
    require(allowed, "GET /stats as operator is refused")
    refused = place.call("POST", "tasks", b'{"type": "demo.echo"}', key=key).status
    require(refused == 403, f"POST /tasks as operator answered {refused}")
    return "operator: GET /stats 200, POST /tasks 403"


# ---- limits ----------------------------------------------------------------------------------------------------------


def body_limits(place: Place) -> str:
    fits = json.dumps({"type": "nobody.knows", "delaySeconds": 3600, "payload": "x" * (MIB - 2)}).encode()
    too_large = json.dumps({"type": "nobody.knows", "payload": "x" * (2 * MIB)}).encode()
    stored, refused = place.call("POST", "tasks", fits), place.call("POST", "tasks", too_large)
    require(stored.status == 201, f"a payload of 1 MiB answered {stored.status}")
    require(refused.status == 413, f"a body over 2 MiB answered {refused.status}")
    return "payload of 1 MiB 201, body over 2 MiB 413"


def large_result(place: Place) -> str:
    """Beyond what a Lambda may answer (6 MB): the API sends the reader to S3."""
    task = place.client.submit("demo.big", {"bytes": 7 * MIB})
    done = place.client.wait(task.task_id, timeout_seconds=place.patience_seconds)
    require(done.succeeded, f"the task ended {done.status}")
    answer = place.call("GET", f"tasks/{task.task_id}/result")
    require(answer.status == 303, f"GET …/result answered {answer.status}")
    location = {name.lower(): value for name, value in answer.headers.items()}["location"]
    with urllib.request.urlopen(location, timeout=60) as found:
        size = len(found.read())
    require(size >= 7 * MIB, f"the presigned URL gave {size} bytes")
    return f"303 to a presigned URL, {size:,} bytes"


def gateway_limit(place: Place) -> str:
    status = place.call("POST", "tasks", b'{"type": "x", "payload": "' + b"x" * (10 * MIB) + b'"}').status
    require(status == 413, f"10 MiB answered {status}")
    return "a request over 10 MB: 413"


def async_limit(place: Place) -> str:
    """Batches carry ids only, so no event of ours comes near; the limit itself is AWS's."""
    event = json.dumps({"padding": "x" * (MIB + 1)}).encode()
    try:
        place.aws("lambda").invoke(FunctionName=place.function("Executor"), InvocationType="Event", Payload=event)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        require("TooLarge" in code, f"refused with {code}")
        return f"an event over 1 MB: {code}"
    raise Failed("an event over 1 MB was accepted")


def stage_throttling(place: Place) -> str:
    with ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda _: place.call("GET", "health").status, range(20 * THROTTLE_PER_SECOND)))
    refused = statuses.count(429)
    require(refused > 0, f"{len(statuses)} calls, none refused")
    return f"{refused} of {len(statuses)} calls at once: 429"


# ---- dispatch --------------------------------------------------------------------------------------------------------


def stream_filters(place: Place) -> str:
    """The doorbell starts tasks within seconds while the sweep is off, and is not rung by a change that must not."""
    events, rules = place.aws("events"), list(place.resources("AWS::Events::Rule").items())
    (sweep,) = [name.rpartition("|")[2] for id, name in rules if id.startswith("Poller")]
    events.disable_rule(Name=sweep)
    place.undo.append(lambda: events.enable_rule(Name=sweep))
    place.sleep(60 if place.is_aws else 0)  # a poller at work ends its minute
    begun = place.monotonic()
    task = place.client.submit("demo.echo", "by the doorbell")
    done = place.client.wait(task.task_id, timeout_seconds=60)
    events.enable_rule(Name=sweep)
    require(done.succeeded, f"with the sweep off the task stayed {done.status}")
    return f"started by the stream, the sweep off: ended after {place.monotonic() - begun:.1f} s"


def throttled_async(place: Place) -> str:
    """An executor without concurrency: the event outlives its lease in Lambda's queue, and the task is not charged."""
    functions, name = place.aws("lambda"), place.function("Executor")
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    place.undo.append(lambda: functions.delete_function_concurrency(FunctionName=name))
    task = place.client.submit("demo.echo", "late")
    place.wait_for(lambda: place.client.get(task.task_id).status == "RUNNING", seconds=120)
    came_back = place.wait_for(
        lambda: place.client.get(task.task_id).fields["fence"] >= 2,
        seconds=LEASE_SECONDS + place.patience_seconds,
        every=5,
    )
    functions.delete_function_concurrency(FunctionName=name)
    require(bool(came_back), "its lease was not taken back")
    done = place.client.wait(task.task_id, timeout_seconds=place.patience_seconds)
    require(done.succeeded and done.retry_count == 0, f"it ended {done.status} after {done.retry_count} retries")
    return f"throttled past its lease, taken back, {done.fields['fence']} claims, no retry charged"


def crash(place: Place) -> str:
    task = place.client.submit("demo.crash", max_retry_number=0)
    done = place.client.wait(task.task_id, timeout_seconds=LEASE_SECONDS + place.patience_seconds)
    reason = (done.error or {}).get("reason")
    require(done.status == "FAILED" and reason == "worker_lost", f"it ended {done.status}, {reason}")
    return "a process that ended: FAILED, worker_lost"


# ---- what comes by itself --------------------------------------------------------------------------------------------


def metrics_arrive(place: Place) -> str:
    cloudwatch = place.aws("cloudwatch")

    def submitted() -> float:
        now = time.time()
        found = cloudwatch.get_metric_statistics(
            Namespace=NAMESPACE,
            MetricName="Submitted",
            Dimensions=[{"Name": "Service", "Value": place.stack}],
            StartTime=now - 3600,
            EndTime=now + 60,
            Period=60,
            Statistics=["Sum"],
        )
        return float(sum(point["Sum"] for point in found["Datapoints"]))

    count = place.wait_for(submitted)
    if not count:
        raise NotSeen(f"no Submitted of {place.stack} within {place.patience_seconds:.0f} s")
    return f"Submitted counts {count:.0f}"


def alarm_is_heard(place: Place) -> str:
    """Alarm → SNS topic → a queue of ours."""
    sqs, sns, cloudwatch = place.aws("sqs"), place.aws("sns"), place.aws("cloudwatch")
    topic = place.outputs()["AlarmTopicArn"]
    queue = sqs.create_queue(QueueName=f"{place.stack}-heard")["QueueUrl"]
    place.undo.append(lambda: sqs.delete_queue(QueueUrl=queue))
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": policy})
    subscription = sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, ReturnSubscriptionArn=True)
    place.undo.append(lambda: sns.unsubscribe(SubscriptionArn=subscription["SubscriptionArn"]))
    (alarm, *_) = sorted(place.resources("AWS::CloudWatch::Alarm").values())
    for state in ("OK", "ALARM"):
        cloudwatch.set_alarm_state(AlarmName=alarm, StateValue=state, StateReason="smoke test")

    def heard() -> bool:
        messages = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1).get("Messages", [])
        return any(alarm in message["Body"] for message in messages)

    if not place.wait_for(heard, seconds=min(place.patience_seconds, 120), every=0.5):
        raise NotSeen(f"{alarm} was not heard through the topic")
    return f"{alarm} came through the topic"


def removed_by_ttl(place: Place) -> str:
    """A task past its time to live, removed by DynamoDB and archived. AWS promises a few days, not minutes."""
    task = place.client.submit("demo.echo", "to be removed")
    place.client.wait(task.task_id, timeout_seconds=place.patience_seconds)
    place.aws("dynamodb").update_item(
        TableName=place.target.table_name,
        Key={"taskId": {"S": task.task_id}},
        UpdateExpression="SET expiresAt = :t",
        ExpressionAttributeValues={":t": {"N": str(int(time.time()) - 60)}},
    )
    bucket, s3 = place.outputs()["ArchiveBucketName"], place.aws("s3")

    def archived() -> bool:
        return bool(s3.list_objects_v2(Bucket=bucket, Prefix="archive/", MaxKeys=1).get("Contents"))

    if not place.wait_for(archived, seconds=60 * place.ttl_minutes, every=15):
        raise NotSeen(f"not removed within {place.ttl_minutes:g} min; DynamoDB removes within a few days")
    return "removed by DynamoDB, and in the archive"


def jwt(place: Place) -> str:
    raise NotSeen("the stack is deployed with IAM; a JWT authorizer needs an issuer of yours")


CHECKS = (
    Check("a task's path", round_trip),
    Check("settings of the table", table_settings),
    Check("no signature", unsigned_is_refused),
    Check("IAM denials", operator_may_not_submit),
    Check("limits of a body", body_limits),
    Check("a result beyond Lambda's answer", large_result),
    Check("API Gateway's 10 MB", gateway_limit, "the embedded AWS takes bodies of any size"),
    Check("Lambda's 1 MB of an event", async_limit, "the embedded AWS takes events of any size"),
    Check("stream filters", stream_filters),
    Check("an alarm, heard", alarm_is_heard),
    Check("metrics from log lines", metrics_arrive),
    Check("a process that dies", crash, "proved here by tests/e2e; its leases are five minutes long"),
    Check("throttled asynchronous calls", throttled_async, "the embedded AWS drops what AWS keeps"),
    Check("throttling of the stage", stage_throttling, "the embedded AWS shows the setting and does not obey it"),
    Check("tokens (JWT)", jwt, "the stack is deployed with IAM; a JWT authorizer needs an issuer of yours"),
    Check("removal by TTL", removed_by_ttl, "the embedded AWS removes without a record on the stream"),
)
"""In this order: what takes long stands last."""
