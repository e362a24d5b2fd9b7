"""From a request's JSON to submissions: one task, or a batch whose entries are judged each on its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunderagent import jsontext
from thunderagent.submit import Submission
from thunderagent.validation import check, parse_time, schema_named


def submission_of(body: Any, *, schema: str = "TaskToSubmit", root: str = "") -> Submission:
    """A validated submission. Raises InvalidInput with the path of the offending value, prefixed by `root`."""
    check(body, schema_named(schema), (root,) if root else ())
    return _submission(body, root)


def _submission(body: Mapping[str, Any], root: str) -> Submission:
    unique = body.get("unique")
    run_at = body.get("runAt")
    return Submission(
        type=body["type"],
        payload=jsontext.dumps(body.get("payload"), root=f"{root}.payload" if root else "payload"),
        queue=body.get("queue"),
        priority=body.get("priority"),
        delay_seconds=body.get("delaySeconds"),
        run_at=None if run_at is None else parse_time(run_at),
        max_retry_number=body.get("maxRetryNumber"),
        timeout_seconds=body.get("timeoutSeconds"),
        start_within_seconds=body.get("startWithinSeconds"),
        depends_on=tuple(dict.fromkeys(body.get("dependsOn", ()))),
        unique_seconds=None if unique is None else unique.get("windowSeconds", 0),
        tags=body.get("tags", {}),
        task_id=body.get("taskId"),
    )
