"""Every store that has a policy of its own refuses calls without TLS, and every template keeps it so."""

from __future__ import annotations

from typing import Any

from tests.infra.templates import Synthesised, of_type

STORES = {
    "AWS::S3::Bucket": "AWS::S3::BucketPolicy",
    "AWS::SQS::Queue": "AWS::SQS::QueuePolicy",
    "AWS::SNS::Topic": "AWS::SNS::TopicPolicy",
}


def refuses_plain(document: dict[str, Any]) -> bool:
    return any(
        statement["Effect"] == "Deny"
        and statement["Principal"] in ("*", {"AWS": "*"})
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        for statement in document["Statement"]
        if "Condition" in statement
    )


def policies(template: dict[str, Any], store: str) -> tuple[int, int]:
    """How many of these resources there are, and how many policies that refuse plain calls."""
    found = of_type(template, STORES[store]).values()
    return len(of_type(template, store)), sum(refuses_plain(each["Properties"]["PolicyDocument"]) for each in found)


def test_no_store_of_production_answers_without_tls(prod: Synthesised) -> None:
    for template in (prod.data, prod.service):
        for store in STORES:
            there, refusing = policies(template, store)
            assert there == refusing, store
    assert policies(prod.data, "AWS::S3::Bucket") == (1, 1)
    assert policies(prod.service, "AWS::SQS::Queue") == (2, 2)
    assert policies(prod.service, "AWS::SNS::Topic") == (1, 1)
