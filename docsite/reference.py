"""Markdown for every call of an OpenAPI document: plain, complete, and without a script from anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

METHODS = ("get", "put", "post", "delete")


def page(document: Mapping[str, Any]) -> str:
    """One section for each call, then one for each schema."""
    source = "the OpenAPI document that the API serves at `GET /openapi.json` and checks requests with"
    about = f"Version {document['info']['version']}. Made from {source}. What a schema cannot say: [the API](api.md)."
    parts = ["# API reference", "", about, ""]
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                parts += _call(method.upper(), path, item[method], item.get("parameters", []), document)
    parts += ["## Schemas", ""]
    for name, schema in document["components"]["schemas"].items():
        parts += [f"### {name}", "", *_described(schema), *_schema(schema), ""]
    return "\n".join(parts)


def _call(method: str, path: str, call: Mapping[str, Any], shared: list[Any], document: Mapping[str, Any]) -> list[str]:
    parts = [f"## {method} {path}", "", call.get("summary", ""), "", *_described(call)]
    if scopes := call.get("x-scopes"):
        parts += ["Scope: " + ", ".join(f"`{scope}`" for scope in scopes), ""]
    parameters = [_resolved(each, document) for each in [*shared, *call.get("parameters", [])]]
    if parameters:
        parts += ["| parameter | in | | |", "|---|---|---|---|"]
        for each in parameters:
            required = "required" if each.get("required") else ""
            text = _cell(each.get("description", ""))
            parts.append(f"| `{each['name']}` | {each['in']} | {required} | {_type(each['schema'])} {text} |")
        parts.append("")
    if body := call.get("requestBody"):
        for content in _resolved(body, document)["content"].values():
            parts += [f"Body: {_type(content['schema'])}", ""]
    parts += ["| answer | | |", "|---|---|---|"]
    for status, answer in call["responses"].items():
        found = _resolved(answer, document)
        bodies = ", ".join(_type(each["schema"]) for each in found.get("content", {}).values() if "schema" in each)
        parts.append(f"| {status} | {_cell(found.get('description', ''))} | {bodies} |")
    return [*parts, ""]


def _described(of: Mapping[str, Any]) -> list[str]:
    return [of["description"], ""] if of.get("description") else []


def _schema(schema: Mapping[str, Any]) -> Iterator[str]:
    if "properties" not in schema:
        yield f"{_type(schema)}"
        return
    required = set(schema.get("required", ()))
    yield "| field | | | |"
    yield "|---|---|---|---|"
    for name, field in schema["properties"].items():
        need = "required" if name in required else ""
        yield f"| `{name}` | {need} | {_type(field)} | {_cell(field.get('description', ''))} |"


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for word in ("oneOf", "anyOf", "allOf"):
        if word in schema:
            return " or ".join(_type(each) for each in schema[word])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    kind = schema.get("type", "any JSON value")
    words = kind if isinstance(kind, str) else " or ".join(kind)
    if kind == "array":
        words = f"list of {_type(schema.get('items', {}))}"
    limits = [f"{label} {schema[key]:,}" for key, label in LIMITS.items() if isinstance(schema.get(key), int | float)]
    return words + (f" ({', '.join(limits)})" if limits else "")


LIMITS = {
    "minimum": "≥",
    "maximum": "≤",
    "exclusiveMinimum": ">",
    "minLength": "length ≥",
    "maxLength": "length ≤",
    "minItems": "items ≥",
    "maxItems": "items ≤",
}


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _resolved(value: Mapping[str, Any], document: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in value:
        return value
    found: Any = document
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    resolved: Mapping[str, Any] = found
    return resolved
