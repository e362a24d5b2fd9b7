"""Whether a table that is given can hold tasks, as far as synthesis can know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from aws_cdk import CfnResource, Stack
from aws_cdk import aws_dynamodb as dynamodb

from thunderagent import schema

STREAM_VIEW = "NEW_AND_OLD_IMAGES"


def check_table(table: dynamodb.ITable | dynamodb.ITableV2, where: str) -> None:
    """Raises ValueError, telling everything at once, for a table without our key, index, stream or TTL attribute.

    Of a table made in this app all of that is known, as it is now: add the index before. Of an imported one only that
    its stream's ARN was given; `thunder doctor` looks at the deployed one.
    """
    complaints = list(_complaints(table))
    if complaints:
        raise ValueError(f"{where}: the table cannot hold tasks: {'; '.join(complaints)}")


def _complaints(table: dynamodb.ITable | dynamodb.ITableV2) -> Iterator[str]:
    resource = table.node.default_child
    if resource is None and table.table_stream_arn is None:
        yield "it has no stream, or was imported without its ARN"
    if isinstance(resource, dynamodb.CfnTable | dynamodb.CfnGlobalTable):
        yield from _of_resource(_properties(resource))


def _properties(resource: CfnResource) -> Mapping[str, Any]:
    """As CloudFormation would get them. The typed getters do not resolve what CDK decides late; these do."""
    resolved = Stack.of(resource).resolve(resource._cfn_properties)
    return cast(Mapping[str, Any], resolved)


def _of_resource(properties: Mapping[str, Any]) -> Iterator[str]:
    types = {each["attributeName"]: each["attributeType"] for each in properties["attributeDefinitions"]}
    wanted = [(schema.TABLE_KEY, "S")]
    if (found := _key(properties["keySchema"], types)) != wanted:
        yield f"its key is {_told(found)}, not {_told(wanted)}"
    indexes = {each["indexName"]: each for each in properties.get("globalSecondaryIndexes") or ()}
    wanted = [(schema.INDEX_HASH, "S"), (schema.INDEX_RANGE, "N")]
    if schema.INDEX_NAME not in indexes:
        yield f"it has no index {schema.INDEX_NAME} on {_told(wanted)}"
    elif (found := _key(indexes[schema.INDEX_NAME]["keySchema"], types)) != wanted:
        yield f"its index {schema.INDEX_NAME} is on {_told(found)}, not {_told(wanted)}"
    stream = (properties.get("streamSpecification") or {}).get("streamViewType")
    if stream != STREAM_VIEW:
        yield f"its stream is {stream}, not {STREAM_VIEW}"
    ttl = (properties.get("timeToLiveSpecification") or {}).get("attributeName")
    if ttl != schema.TTL_ATTRIBUTE:
        yield f"its TTL attribute is {ttl}, not {schema.TTL_ATTRIBUTE}"


def _key(key_schema: list[dict[str, str]], types: Mapping[str, str]) -> list[tuple[str, str]]:
    ordered = sorted(key_schema, key=lambda each: each["keyType"] != "HASH")
    return [(each["attributeName"], types[each["attributeName"]]) for each in ordered]


def _told(key: list[tuple[str, str]]) -> str:
    return " and ".join(f"{name} ({type_})" for name, type_ in key)
