"""Where a report is kept: two objects in the stack's bucket, under keys that follow from its station and period."""

import functools
import json
import os
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .chart import draw
from .periods import Period
from .weather import Station, dataset_digest, summarise

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

PREFIX = "reports/"
LAYOUT = 1  # raised when chart or figures change, so that published reports are made anew
ABSENT = frozenset({"NoSuchKey", "404", "AccessDenied", "403"})

_building = threading.Lock()


@dataclass(frozen=True)
class Report:
    """One station and period. Its objects have the same keys and the same bytes whenever and wherever it is made."""

    station: Station
    period: Period

    @property
    def chart_key(self) -> str:
        return f"{PREFIX}{self.station.slug}/{self.period.label}.svg"

    @property
    def summary_key(self) -> str:
        return f"{PREFIX}{self.station.slug}/{self.period.label}.json"

    @property
    def edition(self) -> str:
        """Names the dataset and the layout a published report was made from."""
        return f"{LAYOUT}-{dataset_digest()[:12]}"

    def summary(self) -> dict[str, Any]:
        """The published figures. Raises LookupError if the station's record does not cover the period."""
        return {**summarise(self.station, self.period), "chart": self.chart_key, "edition": self.edition}

    def is_published(self) -> bool:
        """Whether this edition is in the bucket. The summary is written last, so it speaks for the chart too."""
        text = _read(self.summary_key)
        return text is not None and json.loads(text).get("edition") == self.edition

    def publish_chart(self, summary: dict[str, Any]) -> str:
        """Write the chart and return its key."""
        _write(self.chart_key, draw(self.station, self.period, summary), "image/svg+xml")
        return self.chart_key

    def publish_summary(self, summary: dict[str, Any]) -> str:
        """Write the summary and return its key. Call it last."""
        _write(self.summary_key, json.dumps(summary, ensure_ascii=False, indent=1) + "\n", "application/json")
        return self.summary_key


def _read(key: str) -> str | None:
    from botocore.exceptions import ClientError

    try:
        return _s3().get_object(Bucket=_bucket(), Key=key)["Body"].read().decode()
    except ClientError as error:
        # A role without s3:ListBucket is told 403, not 404, of an absent key. If it is access that is missing, the
        # write that follows says so.
        if error.response["Error"]["Code"] in ABSENT:
            return None
        raise


def _write(key: str, text: str, content_type: str) -> None:
    _s3().put_object(Bucket=_bucket(), Key=key, Body=text.encode(), ContentType=f"{content_type}; charset=utf-8")


def _bucket() -> str:
    return os.environ["BUCKET_NAME"]


def _s3() -> "S3Client":
    """One client per process. Building one is not thread-safe in boto3, using one is."""
    with _building:
        return _client()


@functools.cache
def _client() -> "S3Client":
    import boto3

    return boto3.client("s3")
