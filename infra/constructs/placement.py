"""Where in a VPC the functions stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.acknowledge import acknowledge
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


def grant_interfaces(scope: Construct, role: iam.Role) -> iam.Policy:
    """The network interfaces Lambda makes in a function's name. The policy must be there before the function, and after
    it: Lambda also takes them away.

    The function's own code may do none of it: its calls carry `lambda:SourceFunctionArn`, Lambda's do not (AWS Lambda,
    "Giving Lambda functions access to resources in an Amazon VPC").
    """
    actions = [f"ec2:{action}" for action in INTERFACE_ACTIONS]
    functions = Stack.of(scope).format_arn(
        service="lambda", resource="function", resource_name="*", arn_format=ArnFormat.COLON_RESOURCE_NAME
    )
    policy = iam.Policy(
        scope,
        "Interfaces",
        roles=[role],
        statements=[
            iam.PolicyStatement(actions=actions, resources=["*"]),
            iam.PolicyStatement(
                effect=iam.Effect.DENY,
                actions=actions,
                resources=["*"],
                conditions={"ArnLike": {"lambda:SourceFunctionArn": functions}},
            ),
        ],
    )
    reason = (
        "EC2 makes and finds interfaces on `*`; Lambda does so in the role's name, and a Deny keeps the code from it."
    )
    acknowledge(policy, {"IAM5[Resource::*]": reason})
    return policy
