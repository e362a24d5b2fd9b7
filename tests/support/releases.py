"""Snapshots of releases: what of a release later versions are held against.

`python -m tests.support.releases` (`make release-snapshot`) writes the present version's into tests/released/<version>:

- `templates.json`: of each environment, every resource that a deployment must neither replace nor lose, reduced to what
  decides that: type, keys, indexes, what happens to it at deletion.
- `library.zip`: the library with `release_side.py`, to run beside later versions.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RELEASED = ROOT / "tests" / "released"
LIBRARY = ROOT / "layers" / "thunderagent" / "python" / "thunderagent"
SIDE = Path(__file__).with_name("release_side.py")
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest a zip can say: the same library gives the same bytes
LEFT_OUT = frozenset({"cdk", "__pycache__"})

STATEFUL = {
    "AWS::DynamoDB::GlobalTable": (
        "KeySchema",
        "GlobalSecondaryIndexes",
        "AttributeDefinitions",
        "StreamSpecification",
    ),
    "AWS::S3::Bucket": (),
    "AWS::SQS::Queue": (),
    "AWS::SNS::Topic": (),
    "AWS::Events::EventBus": (),
    "AWS::Logs::LogGroup": (),
    "AWS::ApiGatewayV2::Api": ("ProtocolType",),
    "AWS::KMS::Key": (),
}
"""Types that hold something (data, subscriptions, an address), and the properties that cannot change in place."""


def reduced(template: Mapping[str, Any]) -> dict[str, Any]:
    """The resources of a template that must survive an upgrade, as far as that depends on them."""
    found = {}
    for logical_id, resource in template["Resources"].items():
        if resource["Type"] in STATEFUL:
            properties = resource.get("Properties", {})
            found[logical_id] = {
                "type": resource["Type"],
                "deletion": resource.get("DeletionPolicy", "Delete"),
                "replacement": resource.get("UpdateReplacePolicy", "Delete"),
                **{name: properties[name] for name in STATEFUL[resource["Type"]] if name in properties},
            }
    return found


def breaks(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What an upgrade from the one reduced template to the other would replace, lose or fail at."""
    problems = []
    for logical_id, old in before.items():
        new = now.get(logical_id)
        if new is None or new["type"] != old["type"]:
            problems.append(f"{logical_id} ({old['type']}) is gone: what it holds is lost, or left behind")
            continue
        for name in ("deletion", "replacement", "KeySchema", "StreamSpecification", "ProtocolType"):
            if new.get(name) != old.get(name):
                problems.append(f"{logical_id}: {name} was {old.get(name)}, is {new.get(name)}")
        problems += _index_breaks(logical_id, _indexes(old), _indexes(new))
    return problems


def _index_breaks(logical_id: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    problems = [
        f"{logical_id}: index {name} cannot be changed in place"
        for name in old.keys() & new.keys()
        if old[name] != new[name]
    ]
    changed = sorted(old.keys() ^ new.keys())
    if len(changed) > 1:
        problems.append(f"{logical_id}: CloudFormation takes one index change per update, not {', '.join(changed)}")
    return problems


def _indexes(resource: Mapping[str, Any]) -> dict[str, Any]:
    return {index["IndexName"]: index for index in resource.get("GlobalSecondaryIndexes", ())}


def library_zip() -> bytes:
    """The library as it is now, with its side."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(LIBRARY.rglob("*")):
            parts = path.relative_to(LIBRARY).parts
            if path.is_file() and not LEFT_OUT & set(parts):
                _add(archive, "/".join(("thunderagent", *parts)), path.read_bytes())
        _add(archive, "side.py", SIDE.read_bytes())
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def ordered(versions: list[str]) -> list[str]:
    """Versions from the oldest to the newest."""
    return sorted(versions, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])


def synthesised_templates() -> dict[str, dict[str, Any]]:
    """Environment → logical id → reduced resource, of both stacks, from the CDK app as it is now."""
    from infra.config import load_config, read_context
    from infra.node import prefer_bundled_node

    prefer_bundled_node()
    import os
    from tempfile import TemporaryDirectory

    from aws_cdk import App

    from infra.application import build

    os.environ["CDK_VALIDATION"] = "false"
    found = {}
    for environment in ("dev", "prod"):
        context = read_context()
        with TemporaryDirectory() as directory:
            app = App(context=context, outdir=directory)
            config = load_config(context, environment)
            build(app, config)
            app.synth()
            resources = {}
            for name in (config.data_stack_name, config.service_stack_name):
                resources |= reduced(json.loads((Path(directory) / f"{name}.template.json").read_text()))
            found[environment] = resources
    return found


def main() -> None:
    from thunderagent.version import VERSION

    directory = RELEASED / VERSION
    directory.mkdir(parents=True, exist_ok=True)
    templates = synthesised_templates()
    (directory / "templates.json").write_text(json.dumps(templates, indent=1, sort_keys=True) + "\n")
    (directory / "library.zip").write_bytes(library_zip())
    for path in sorted(directory.iterdir()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
