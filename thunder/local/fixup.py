"""What ministack's CloudFormation drops silently, applied after a deployment through the services' own APIs.

The deployed template says what was asked for: the table's TTL, point-in-time recovery and encryption, the bucket's
lifecycle and tags, the API's CORS and its stage's throttling. Each of them comes out as one API call, planned without
I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.local.aws import client
from thunder.local.errors import LocalError


@dataclass(frozen=True)
class Call:
    """One API call: the operation by its client method's name."""

    service: str
    operation: str
    arguments: dict[str, Any]


def fix_up(endpoint: str, stacks: Sequence[str]) -> list[Call]:
    """Applies to the deployed stacks what was dropped; repeatable. Returns the calls made."""
    cloudformation = client("cloudformation", endpoint)
    made = []
    for stack in stacks:
        template = _template(cloudformation, stack)
        ids = _physical_ids(cloudformation, stack)
        for name, resource in template["Resources"].items():
            properties = with_ids(resource.get("Properties", {}), ids)
            calls = list(dropped(resource["Type"], properties, ids.get(name, "")))
            for call in calls:
                _apply(endpoint, call)
            made += calls
    return made


def with_ids(value: Any, ids: Mapping[str, str]) -> Any:
    """A template's value with its references to resources of the stack resolved."""
    if isinstance(value, dict):
        if set(value) == {"Ref"} and value["Ref"] in ids:
            return ids[value["Ref"]]
        return {name: with_ids(part, ids) for name, part in value.items()}
    return [with_ids(part, ids) for part in value] if isinstance(value, list) else value


def dropped(resource_type: str, properties: Mapping[str, Any], physical_id: str) -> Iterator[Call]:
    """The calls that give this resource the properties ministack's CloudFormation drops."""
    planner = _PLANNERS.get(resource_type)
    if planner:
        yield from planner(properties, physical_id)


def _table(properties: Mapping[str, Any], table: str) -> Iterator[Call]:
    ttl = properties.get("TimeToLiveSpecification", {})
    if ttl.get("Enabled"):
        wanted = {"Enabled": True, "AttributeName": ttl["AttributeName"]}
        yield Call("dynamodb", "update_time_to_live", {"TableName": table, "TimeToLiveSpecification": wanted})
    if _recovery(properties).get("PointInTimeRecoveryEnabled"):
        recovery = {"PointInTimeRecoveryEnabled": True}
        arguments = {"TableName": table, "PointInTimeRecoverySpecification": recovery}
        yield Call("dynamodb", "update_continuous_backups", arguments)
    encryption = properties.get("SSESpecification", {})
    if encryption.get("SSEEnabled"):
        wanted = {"Enabled": True, "SSEType": encryption.get("SSEType", "KMS")}
        yield Call("dynamodb", "update_table", {"TableName": table, "SSESpecification": wanted})


def _recovery(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """A Table says it of itself, a GlobalTable of each replica; here there is one region, and so one replica."""
    replicas = properties.get("Replicas") or [properties]
    recovery: Mapping[str, Any] = replicas[0].get("PointInTimeRecoverySpecification", {})
    return recovery


def _bucket(properties: Mapping[str, Any], bucket: str) -> Iterator[Call]:
    if tags := properties.get("Tags"):
        yield Call("s3", "put_bucket_tagging", {"Bucket": bucket, "Tagging": {"TagSet": [dict(tag) for tag in tags]}})
    if rules := properties.get("LifecycleConfiguration", {}).get("Rules"):
        lifecycle = {"Rules": [lifecycle_rule(rule, number) for number, rule in enumerate(rules)]}
        arguments = {"Bucket": bucket, "LifecycleConfiguration": lifecycle}
        yield Call("s3", "put_bucket_lifecycle_configuration", arguments)


def _http_api(properties: Mapping[str, Any], api: str) -> Iterator[Call]:
    """It keeps the settings under CloudFormation's names, and looks for them under those of the service's own API."""
    if cors := properties.get("CorsConfiguration"):
        yield Call("apigatewayv2", "update_api", {"ApiId": api, "CorsConfiguration": dict(cors)})


def _stage(properties: Mapping[str, Any], stage: str) -> Iterator[Call]:
    """As with CORS. The settings are then shown; this ministack has no throttling of HTTP APIs that would obey them."""
    if throttling := properties.get("DefaultRouteSettings"):
        arguments = {"ApiId": properties["ApiId"], "StageName": stage, "DefaultRouteSettings": dict(throttling)}
        yield Call("apigatewayv2", "update_stage", arguments)


def lifecycle_rule(rule: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A lifecycle rule as CloudFormation writes it, in the form of S3's own API.

    Raises LocalError on a property without a known form: dropping it silently is the very thing mended here.
    """
    answer: dict[str, Any] = {"ID": f"rule-{number}", "Filter": {"Prefix": ""}}
    for name, value in rule.items():
        translate = _RULE_PROPERTIES.get(name)
        if translate is None:
            raise LocalError(f"the lifecycle property {name} has no translation for the embedded AWS yet")
        answer.update(translate(value))
    return answer


def _transition(transition: Mapping[str, Any]) -> dict[str, Any]:
    return {"Days": transition["TransitionInDays"], "StorageClass": transition["StorageClass"]}


_RULE_PROPERTIES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "Id": lambda value: {"ID": value},
    "Status": lambda value: {"Status": value},
    "Prefix": lambda value: {"Filter": {"Prefix": value}},
    "ExpirationInDays": lambda value: {"Expiration": {"Days": value}},
    "ExpiredObjectDeleteMarker": lambda value: {"Expiration": {"ExpiredObjectDeleteMarker": value}},
    "Transitions": lambda value: {"Transitions": [_transition(transition) for transition in value]},
    "AbortIncompleteMultipartUpload": lambda value: {"AbortIncompleteMultipartUpload": dict(value)},
    "NoncurrentVersionExpiration": lambda value: {"NoncurrentVersionExpiration": dict(value)},
}

_PLANNERS: dict[str, Callable[[Mapping[str, Any], str], Iterator[Call]]] = {
    "AWS::DynamoDB::Table": _table,
    "AWS::DynamoDB::GlobalTable": _table,
    "AWS::S3::Bucket": _bucket,
    "AWS::ApiGatewayV2::Api": _http_api,
    "AWS::ApiGatewayV2::Stage": _stage,
}


def _apply(endpoint: str, call: Call) -> None:
    service = client(call.service, endpoint)
    try:
        getattr(service, call.operation)(**call.arguments)
    except service.exceptions.ClientError as error:
        # A table that has its TTL refuses to be given it again; DynamoDB on AWS does the same.
        if "already enabled" not in error.response["Error"]["Message"]:
            raise


def _template(cloudformation: Any, stack: str) -> dict[str, Any]:
    """The template as deployed; botocore has parsed a JSON one already."""
    body = cloudformation.get_template(StackName=stack)["TemplateBody"]
    template: dict[str, Any] = json.loads(body) if isinstance(body, str) else body
    return template


def _physical_ids(cloudformation: Any, stack: str) -> dict[str, str]:
    resources = cloudformation.describe_stack_resources(StackName=stack)["StackResources"]
    return {resource["LogicalResourceId"]: resource["PhysicalResourceId"] for resource in resources}
