"""Where in a VPC the functions stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.config import Network

# What AWSLambdaVPCAccessExecutionRole allows, but for the logs.
INTERFACE_ACTIONS = (
    "AssignPrivateIpAddresses",
    "CreateNetworkInterface",
    "DeleteNetworkInterface",
    "DescribeNetworkInterfaces",
    "DescribeSubnets",
    "UnassignPrivateIpAddresses",
)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A VPC, its subnets, and the security groups of every function."""

    vpc: ec2.IVpc
    subnets: ec2.SubnetSelection | None
    security_groups: Sequence[ec2.ISecurityGroup]


def placement_in(
    scope: Construct,
    *,
    vpc: ec2.IVpc,
    subnets: ec2.SubnetSelection | None = None,
    security_groups: Sequence[ec2.ISecurityGroup] = (),
) -> Placement:
    """Without security groups: one for all functions, that nothing enters."""
    groups = list(security_groups) or [
        ec2.SecurityGroup(scope, "SecurityGroup", vpc=vpc, description="Functions of ThunderAgent: nothing comes in")
    ]
    return Placement(vpc=vpc, subnets=subnets, security_groups=groups)


def placement_of(scope: Construct, network: Network) -> Placement:
    """The VPC of a configuration, by its ids alone: nothing is looked up."""
    vpc = ec2.Vpc.from_vpc_attributes(
        scope,
        "Vpc",
        vpc_id=network.vpc_id,
        # Nobody reads them, as the subnets are given; there must be one for each.
        availability_zones=[f"zone-{number}" for number, _ in enumerate(network.subnet_ids)],
    )
    subnets = [ec2.Subnet.from_subnet_id(scope, f"Subnet{n}", id) for n, id in enumerate(network.subnet_ids)]
    groups = [
        ec2.SecurityGroup.from_security_group_id(scope, f"SecurityGroup{number}", id, mutable=False)
        for number, id in enumerate(network.security_group_ids)
    ]
    return placement_in(scope, vpc=vpc, subnets=ec2.SubnetSelection(subnets=subnets), security_groups=groups)


def grant_interfaces(role: iam.Role) -> None:
    """The network interfaces Lambda makes in a function's name."""
    role.add_to_policy(iam.PolicyStatement(actions=[f"ec2:{a}" for a in INTERFACE_ACTIONS], resources=["*"]))
