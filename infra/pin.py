"""Logical ids that stay what they are, whatever becomes of the code that makes the resource."""

from __future__ import annotations

from aws_cdk import CfnElement
from constructs import Construct


def pin(construct: Construct, logical_id: str) -> None:
    """Give the resource of a construct this logical id: under another one CloudFormation would replace it."""
    resource = construct.node.default_child
    assert isinstance(resource, CfnElement)
    resource.override_logical_id(logical_id)
