"""The seams over botocore, with a client that answers as AWS does."""

from __future__ import annotations

from io import BytesIO
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.exceptions import ClientError

from thunderagent.errors import StoreRefused
from thunderagent.transport import BotoObjects, boto_client


class S3:
    """A bucket, to somebody who may read (`reads`) and list (`lists`), in whose eyes a missing key is 403 or 404."""

    def __init__(self, *keys: str, missing: str = "AccessDenied", reads: bool = True, lists: bool = True) -> None:
        self.keys = keys
        self.missing = missing
        self.reads = reads
        self.lists = lists

    def get_object(self, *, Bucket: str, Key: str) -> Any:
        if Key not in self.keys:
            raise ClientError({"Error": {"Code": self.missing}}, "GetObject")
        if not self.reads:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "GetObject")
        return {"Body": BytesIO(b"whole")}

    def list_objects_v2(self, *, Bucket: str, Prefix: str, MaxKeys: int) -> Any:
        if not self.lists:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "ListObjectsV2")
        found = sorted(key for key in self.keys if key.startswith(Prefix))[:MaxKeys]
        return {"Contents": [{"Key": key} for key in found]} if found else {}


def test_an_object_is_read_whole() -> None:
    assert BotoObjects(S3("bodies/a"), "bucket").get("bodies/a") == b"whole"


@pytest.mark.parametrize(
    "s3", [S3(missing="NoSuchKey"), S3(), S3("bodies/ab")], ids=["404", "403", "403, a longer one"]
)
def test_an_object_that_is_surely_not_there_is_none(s3: S3) -> None:
    assert BotoObjects(s3, "bucket").get("bodies/a") is None


@pytest.mark.parametrize("s3", [S3("bodies/a", reads=False), S3(lists=False)], ids=["it is there", "it cannot be told"])
def test_what_is_refused_is_never_taken_for_missing(s3: S3) -> None:
    with pytest.raises(StoreRefused, match="AccessDenied"):
        BotoObjects(s3, "bucket").get("bodies/a")


@pytest.mark.parametrize("region", ["us-east-1", "eu-central-1"])
def test_an_object_is_let_be_read_by_a_signature_of_version_4_and_by_nothing_else(
    region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 takes no version 2 for objects under a KMS key; of botocore's own accord us-east-1 would get one."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    url = BotoObjects(boto_client("s3", region=region), "bucket").url("bodies/payload/a/0", seconds=60)
    query = parse_qs(urlsplit(url).query)
    assert query["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
    assert (query["X-Amz-Expires"], query["X-Amz-SignedHeaders"]) == (["60"], ["host"])
    assert urlsplit(url).scheme == "https"
