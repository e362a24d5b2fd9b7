"""What went wrong, and what to do next: every error of the API, of AWS and of the local stack as one of the command's.

Imported only when something has failed. botocore's errors are known by name: importing it for an `except` costs more
than most commands.
"""

from __future__ import annotations

from typing import Any

import click

from thunder.cli.errors import Conflict, Failed, NotFound, Refused
from thunder.cli.inert import inert_lines
from thunder.local.errors import LocalError
from thunderagent.errors import ConfigurationError, RequestError, StoreError
from thunderagent.signed_http import ApiError, ConflictError, NotFoundError, Unreachable

LOGIN = "log in again (`aws sso login`, or fresh keys), or name another profile with --profile"
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "RequestExpired")
DENIED = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation")
SIGNATURE_TIME = ("signature expired", "signature not yet current", "not yet valid")
BOTO_HINTS = {
    "ProfileNotFound": "`aws configure list-profiles` shows the profiles there are",
    "NoCredentialsError": "there are no AWS credentials: name a profile with --profile, or set AWS_PROFILE",
    "PartialCredentialsError": "the credentials are incomplete: both access key and secret are needed",
    "NoRegionError": "there is no region: say --region, or set AWS_REGION",
    "TokenRetrievalError": LOGIN,
    "SSOTokenLoadError": LOGIN,
    "UnauthorizedSSOTokenError": LOGIN,
    "CredentialRetrievalError": LOGIN,
    "EndpointConnectionError": "check the network, --region and --endpoint-url",
    "ConnectTimeoutError": "check the network, --region and --endpoint-url",
    "ProxyConnectionError": "check the proxy (HTTPS_PROXY)",
    "SSLError": "check AWS_CA_BUNDLE and the proxy",
}


def explained(error: Exception) -> click.ClickException | None:
    """The command's failure for it; None for what is our own defect and shall show its trace."""
    if isinstance(error, click.ClickException):
        return error
    if isinstance(error, ApiError):
        return _api_failure(error)
    if isinstance(error, LocalError | ConfigurationError):
        return _as(Failed, str(error))
    if isinstance(error, RequestError):
        return _as(Refused, str(error))
    if isinstance(error, StoreError):
        return _as(Failed, f"DynamoDB: {error}")
    if isinstance(error, ConnectionError):
        return _as(Failed, f"no answer: {error}", "Check the network and the proxy.")
    if isinstance(error, OSError):
        return _as(Failed, str(error))
    if type(error).__module__.startswith("botocore."):
        return _aws_failure(error)
    return None


def _as(kind: type[click.ClickException], *lines: str) -> click.ClickException:
    return kind("\n".join(inert_lines(line) for line in lines if line))


# ---- the API --------------------------------------------------------------------------------------------------------


def _api_failure(error: ApiError) -> click.ClickException:
    request = f"(request {error.request_id})" if error.request_id else ""
    if isinstance(error, Unreachable):
        return _as(
            Failed,
            f"the API does not answer: {error.message}",
            "Check the network and the stack; for the local one `thunder local status` tells whether it is up. "
            "A change may or may not have been made: look before you repeat it.",
        )
    if isinstance(error, NotFoundError):
        strange = error.message.strip().lower() == "not found"  # the gateway's word, not ours
        return _as(NotFound, error.message, "The API has no such call: is its URL right?" if strange else "")
    if isinstance(error, ConflictError):
        return _as(Conflict, error.message, _after_conflict(error))
    if error.status in (401, 403):
        return _as(Failed, f"the API refused: {error.message} {request}".rstrip(), _after_forbidden(error.message))
    if error.code == "wait_timeout":
        return _as(Failed, f"{error.message}; it goes on")
    kind = Refused if error.status == 400 else Failed
    return _as(kind, f"{error.message} {request if error.status >= 500 else ''}".rstrip(), _after(error))


def _after_conflict(error: ApiError) -> str:
    return {
        "FAILED": "`thunder task redrive` starts a failed task anew.",
        "PENDING": "It is still open; `thunder task why` tells what it waits for, `thunder task cancel` ends it.",
        "RUNNING": "It is still running; `thunder task wait` waits for its end, `thunder task cancel` ends it.",
    }.get(error.task_status or "", "")


def _after_forbidden(message: str) -> str:
    text = message.lower()
    if "expired" in text and "token" in text:
        return f"Your session has expired: {LOGIN}."
    if any(words in text for words in SIGNATURE_TIME):
        return "This machine's clock is wrong: `thunder doctor` shows by how much."
    if "token" in text and "invalid" in text:
        return f"These credentials are not valid here: {LOGIN}."
    return (
        "Your identity needs execute-api:Invoke on this call (`aws sts get-caller-identity` tells who you are), "
        "and the region must be the stack's (--region)."
    )


def _after(error: ApiError) -> str:
    if error.code == "listing_disabled":
        return "This stack does not list completed tasks (listCompleted in cdk.json); `thunder task get` reads one."
    if error.code == "unknown_queue":
        return "`thunder queue list` shows the queues; `thunder queue set NAME` declares one."
    if error.code == "backlog_full":
        return "Try later, or raise the limit with `thunder queue set --max-backlog`."
    if error.status in (429, 503):
        return f"It was tried {error.attempts} times; try again in a while."
    return ""


# ---- AWS ------------------------------------------------------------------------------------------------------------


def _aws_failure(error: Exception) -> click.ClickException:
    response: dict[str, Any] = getattr(error, "response", None) or {}
    code = str(response.get("Error", {}).get("Code", ""))
    message = str(response.get("Error", {}).get("Message", "")) or str(error)
    operation = getattr(error, "operation_name", "")
    if code in EXPIRED:
        return _as(Failed, f"{operation}: {message}", f"Your session has expired: {LOGIN}.")
    if code in DENIED:
        return _as(Failed, message, f"Your identity lacks the right for {operation}.")
    if code in ("InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "AuthFailure"):
        return _as(Failed, f"{operation}: {message}", f"These credentials are not valid: {LOGIN}.")
    if code == "ResourceNotFoundException":
        return _as(NotFound, message)
    hint = BOTO_HINTS.get(type(error).__name__, "")
    return _as(Failed, f"{operation}: {message}" if operation else message, hint and f"{hint[0].upper()}{hint[1:]}.")
