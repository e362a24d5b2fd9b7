"""Findings of cdk-nag that are accepted, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import Acknowledgment, Validations
from constructs import Construct


def acknowledge(scope: Construct, reasons: Mapping[str, str]) -> None:
    """Accept AwsSolutions findings below `scope`: rule (`S1`, or `IAM5[...]` for one of its findings) to reason."""
    rules = [Acknowledgment(id=f"AwsSolutions-{rule}", reason=reason) for rule, reason in reasons.items()]
    Validations.of(scope).acknowledge(*rules)


def acknowledge_plain_http(scope: Construct, rule: str) -> None:
    """For environments with `enforceTls` off, whose AWS is a process on this machine and has no TLS."""
    acknowledge(scope, {rule: "The endpoint of this environment is a loopback address without TLS."})
