"""What the tests of the infrastructure share: synthesised templates and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Resource = dict[str, Any]


@dataclass(frozen=True)
class Synthesised:
    """One environment's templates, as CloudFormation would get them."""

    data: dict[str, Any]
    service: dict[str, Any]
    assembly: Path
    names: tuple[str, str]

    @property
    def stacks(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.data, self.service


Synthesise = Callable[..., Synthesised]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def of_type(template: Mapping[str, Any], resource_type: str) -> dict[str, Resource]:
    """The resources of one type by logical id."""
    return {id: found for id, found in template["Resources"].items() if found["Type"] == resource_type}


def properties(template: Mapping[str, Any], resource_type: str) -> list[dict[str, Any]]:
    return [resource["Properties"] for resource in of_type(template, resource_type).values()]


def functions(template: Mapping[str, Any]) -> dict[str, Resource]:
    """The functions by what they are: api, poller, doorbell, reaper, executor."""
    kinds = ("Api", "Poller", "Doorbell", "Reaper", "Recorder", "Executor")
    found = {}
    for id, resource in of_type(template, "AWS::Lambda::Function").items():
        (kind,) = (kind for kind in kinds if id.startswith(kind))
        found[kind.lower()] = {**resource["Properties"], "LogicalId": id}
    return found


def queue_named(prefix: str, template: Mapping[str, Any]) -> str:
    """The logical id of the one queue whose id begins so."""
    (id,) = (id for id in of_type(template, "AWS::SQS::Queue") if id.startswith(prefix))
    return id


def readable(value: Any) -> Any:
    """An intrinsic as text: `TaskTable.Arn`, `<export>/bodies/*`; other values as they are."""
    match value:
        case {"Fn::Join": [separator, parts]}:
            return separator.join(readable(part) for part in parts)
        case {"Fn::GetAtt": [id, attribute]}:
            return f"{id}.{attribute}"
        case {"Fn::ImportValue": name}:
            return f"<{name}>"
        case {"Ref": id}:
            return f"{{{id}}}"
        case _:
            return value
