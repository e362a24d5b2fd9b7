"""Grants that the embedded AWS cannot show to be needed, because it does the work without asking the role."""

from __future__ import annotations

from tests.least_privilege.grants import Grant

LOGS = "Lambda writes a function's log with its role; the embedded AWS writes it by itself."
STREAM = "Lambda reads the stream with the function's role; the embedded AWS reads it by itself."
DELIVERY = "Lambda sends what it gives up with the function's role; the embedded AWS sends it by itself."
LISTING = (
    "S3 answers 403 for a missing object to whom may not list its prefix; the embedded AWS answers 404 to everybody. "
    "`tests/unit/test_transport.py` plays both."
)

REASONS: dict[tuple[str, str], str] = {
    ("logs:CreateLogStream", "logs"): LOGS,
    ("logs:PutLogEvents", "logs"): LOGS,
    ("dynamodb:DescribeStream", "stream"): STREAM,
    ("dynamodb:GetRecords", "stream"): STREAM,
    ("dynamodb:GetShardIterator", "stream"): STREAM,
    ("dynamodb:ListStreams", "stream"): STREAM,
    ("sqs:SendMessage", "undelivered"): DELIVERY,
    ("s3:ListBucket", "bucket"): LISTING,
}
"""By action and resource, for every function that has it."""


def reason_of(grant: Grant) -> str | None:
    return REASONS.get((grant.action, grant.resource))
