from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.assets import Project
from infra.routes import read_routes
from tests.infra.templates import Synthesise, Synthesised, functions, of_type, properties, queue_named, readable
from thunderagent.settings import ENVIRONMENT_NAMES, load_settings

# Lambda sets it; a function may not.
SET_BY_LAMBDA = {"AWS_REGION", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"}
REFUSED_BY_THE_EMBEDDED_AWS = {
    "AWS::CloudWatch::CompositeAlarm",
    "AWS::CloudWatch::AnomalyDetector",
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::ApplicationAutoScaling::ScalingPolicy",
    "AWS::WAFv2::WebACLAssociation",
    "AWS::Logs::QueryDefinition",
    "AWS::CloudFormation::CustomResource",
}
PHYSICAL_NAMES = {
    "TableName",
    "BucketName",
    "FunctionName",
    "RoleName",
    "PolicyName",
    "LogGroupName",
    "QueueName",
    "TopicName",
    "AlarmName",
    "DashboardName",
    "LayerName",
}


def variables(function: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = function["Environment"]["Variables"]
    return result


# ---- functions -------------------------------------------------------------------------------------------------------


def test_every_function_is_made_the_same_way(synthesised: Synthesised) -> None:
    found = functions(synthesised.service)
    assert set(found) == {"api", "poller", "doorbell", "reaper", "recorder", "executor"}
    layers = set(of_type(synthesised.service, "AWS::Lambda::LayerVersion"))
    assert len(layers) == 3
    for name, function in found.items():
        assert function["Runtime"] == "python3.13"
        assert function["Architectures"] == ["arm64"]
        assert function["Handler"] == ("handler.doorbell" if name == "doorbell" else "handler.handler")
        assert {layer["Ref"] for layer in function["Layers"]} == layers
        assert function["LoggingConfig"]["LogFormat"] == "Text"
        assert "TracingConfig" not in function


def test_the_environment_is_what_the_settings_read(synthesised: Synthesised) -> None:
    known = set(ENVIRONMENT_NAMES.values()) - SET_BY_LAMBDA
    given = {name: set(variables(function)) for name, function in functions(synthesised.service).items()}
    assert set().union(*given.values()) == known
    common = {"TABLE_NAME", "BUCKET_NAME", "SERVICE_NAME", "ENVIRONMENT", "EXECUTORS", "LEASE_GRACE_SECONDS"}
    common |= {"DISPATCH_SHARDS", "LIST_COMPLETED", "LOG_LEVEL", "LOG_DEBUG_SHARE", "TRANSPORT"}
    assert {name: names - common for name, names in given.items()} == {
        "api": set(),
        "reaper": {"UNDELIVERED_QUEUE_URL"},
        "recorder": {"EVENT_BUS", "EVENT_STATUSES", "FAILURES_QUEUE_URL", "RECORDER_PATIENCE_SECONDS"},
        "poller": {name for name in known if name.startswith("POLL_")},
        "doorbell": {"POLL_BATCH_SIZE"},
        "executor": {"EXECUTOR_PROFILE", "LEASE_SECONDS"},
    }
    assert all(common <= names for names in given.values())


def test_the_settings_of_every_function_load(prod: Synthesised) -> None:
    for function in functions(prod.service).values():
        environ = {name: str(readable(value)) for name, value in variables(function).items()}
        settings = load_settings(environ)
        assert settings.service_name == "ThunderAgent-prod"
        assert settings.environment == "prod"
        assert settings.executors["default"].max_in_flight == 20
        assert settings.executors["default"].timeout_seconds == 900


def test_the_poller_knows_each_executor_by_its_function(prod: Synthesised) -> None:
    found = functions(prod.service)
    executors = json.loads(readable(variables(found["poller"])["EXECUTORS"]))
    assert executors["default"]["function"] == f"{{{found['executor']['LogicalId']}}}"
    assert variables(found["api"])["EXECUTORS"] == variables(found["poller"])["EXECUTORS"]


def test_ta03_the_platform_never_runs_an_event_again(synthesised: Synthesised) -> None:
    found = functions(synthesised.service)
    configs = {
        config["FunctionName"]["Ref"]: config
        for config in properties(synthesised.service, "AWS::Lambda::EventInvokeConfig")
    }
    for name in ("executor", "poller", "reaper"):
        assert configs[found[name]["LogicalId"]]["MaximumRetryAttempts"] == 0
    executor = configs[found["executor"]["LogicalId"]]
    lease_seconds = int(variables(found["executor"])["LEASE_SECONDS"])
    assert 60 <= executor["MaximumEventAgeInSeconds"] <= lease_seconds
    queue = queue_named("Undelivered", synthesised.service)
    assert readable(executor["DestinationConfig"]["OnFailure"]["Destination"]) == f"{queue}.Arn"


def test_ta03_schedules_are_not_delivered_late_or_twice(synthesised: Synthesised) -> None:
    rules = properties(synthesised.service, "AWS::Events::Rule")
    found = functions(synthesised.service)
    assert {readable(rule["Targets"][0]["Arn"]) for rule in rules} == {
        f"{found[name]['LogicalId']}.Arn" for name in ("poller", "reaper")
    }
    for rule in rules:
        assert rule["ScheduleExpression"] == "rate(1 minute)"
        assert rule["State"] == "ENABLED"
        (target,) = rule["Targets"]
        assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}


def test_profiles_become_functions_of_their_own(synthesise: Synthesise) -> None:
    profiles = {
        "default": {},
        "heavy": {"handlers": ["examples/demo"], "queues": ["heavy"], "memoryMiB": 2048, "leaseSeconds": 90},
    }
    service = synthesise("dev", {"environments": {"dev": {"executors": profiles}}}).service
    executors = {
        variables(function)["EXECUTOR_PROFILE"]: function
        for function in properties(service, "AWS::Lambda::Function")
        if "EXECUTOR_PROFILE" in variables(function)
    }
    assert set(executors) == {"default", "heavy"}
    assert executors["heavy"]["MemorySize"] == 2048
    assert variables(executors["heavy"])["LEASE_SECONDS"] == "90"
    ages = [config["MaximumEventAgeInSeconds"] for config in properties(service, "AWS::Lambda::EventInvokeConfig")]
    assert sorted(ages) == [60, 60, 90, 300]
    alarms = of_type(service, "AWS::CloudWatch::Alarm")
    assert sum("Failed" in id and "heavy" in id for id in alarms) == 1
    assert sum("ExecutorErrors" in id and "heavy" in id for id in alarms) == 1


def test_an_agents_profile_has_no_function_but_the_others_know_of_it(synthesise: Synthesise) -> None:
    profiles = {"default": {}, "long": {"kind": "agent", "queues": ["long"], "threads": 2}}
    service = synthesise("dev", {"environments": {"dev": {"executors": profiles}}}).service
    found = functions(service)
    assert sum("EXECUTOR_PROFILE" in variables(each) for each in properties(service, "AWS::Lambda::Function")) == 1
    for name in ("poller", "doorbell", "reaper", "api"):
        executors = json.loads(readable(variables(found[name])["EXECUTORS"]))
        assert "kind" not in executors["default"]
        assert executors["long"] == {
            "kind": "agent",
            "function": "",
            "timeoutSeconds": 86430,
            "threads": 2,
            "maxInFlight": 20,
            "leaseSeconds": 300,
        }
    environment = {**variables(found["poller"]), "TABLE_NAME": "t", "EXECUTORS": json.dumps(executors)}
    settings = load_settings({name: value for name, value in environment.items() if isinstance(value, str)})
    assert set(settings.served) == {"default"}


# ---- TA-39: first deploy in a new account; deploy, destroy, deploy ---------------------------------------------------


def test_ta39_nothing_reserves_concurrency_unless_asked(synthesised: Synthesised, synthesise: Synthesise) -> None:
    for function in functions(synthesised.service).values():
        assert "ReservedConcurrentExecutions" not in function
        assert "ProvisionedConcurrencyConfig" not in function


def test_ta39_reserved_concurrency_is_there_when_asked_for(synthesise: Synthesise) -> None:
    environments = {"dev": {"functions": {"poller": {"reservedConcurrency": 2}}}}
    found = functions(synthesise("dev", {"environments": environments}).service)
    assert found["poller"]["ReservedConcurrentExecutions"] == 2
    assert "ReservedConcurrentExecutions" not in found["api"]


def test_ta39_nothing_has_a_name_of_its_own(synthesised: Synthesised) -> None:
    """A fixed name on what is retained collides with the next deployment, and anywhere with a second instance."""
    for template in synthesised.stacks:
        for id, resource in template["Resources"].items():
            fixed = {name for name in PHYSICAL_NAMES & set(resource["Properties"]) if is_fixed(resource, name)}
            assert not fixed, f"{id} is named by {fixed}"


def is_fixed(resource: dict[str, Any], name: str) -> bool:
    """Inline policies live in their role and references are no names."""
    return isinstance(resource["Properties"][name], str) and resource["Type"] != "AWS::IAM::Policy"


def test_ta39_two_instances_share_no_name(prod: Synthesised, synthesise: Synthesise) -> None:
    other = synthesise("prod", {"name": "Other"})
    assert set(other.names).isdisjoint(prod.names)
    exports = [{output["Export"]["Name"] for output in one.data["Outputs"].values()} for one in (prod, other)]
    assert exports[0].isdisjoint(exports[1])
    assert "ThunderAgent-prod" not in json.dumps(other.stacks)


def test_ta39_every_log_group_has_its_retention(synthesised: Synthesised) -> None:
    days = {"ThunderAgent-local": 1, "ThunderAgent-dev": 7, "ThunderAgent-prod": 90}[synthesised.names[1]]
    groups = of_type(synthesised.service, "AWS::Logs::LogGroup")
    assert [group["Properties"]["RetentionInDays"] for group in groups.values()] == [days] * 7
    used = [function["LoggingConfig"]["LogGroup"]["Ref"] for function in functions(synthesised.service).values()]
    assert len(set(used)) == 6
    assert set(used) < set(groups)


def test_nothing_the_embedded_aws_refuses(synthesised: Synthesised) -> None:
    for template in synthesised.stacks:
        types = {resource["Type"] for resource in template["Resources"].values()}
        assert not types & REFUSED_BY_THE_EMBEDDED_AWS
        assert not [name for name in types if name.startswith("Custom::")]


def test_synthesis_names_no_account_and_no_region(synthesised: Synthesised) -> None:
    for template in synthesised.stacks:
        assert not re.search(r"\b\d{12}\b|us-east-1", json.dumps(template["Resources"]))


# ---- API -------------------------------------------------------------------------------------------------------------


def test_every_call_is_a_route_and_no_route_is_open(synthesised: Synthesised) -> None:
    routes = properties(synthesised.service, "AWS::ApiGatewayV2::Route")
    expected = {f"{route.method} {route.path}" for route in read_routes(Project().openapi)}
    assert {route["RouteKey"] for route in routes} == expected | {"$default"}
    assert {route["AuthorizationType"] for route in routes} == {"AWS_IAM"}
    assert len({json.dumps(route["Target"]) for route in routes}) == 1


def test_the_contract_is_routed(prod: Synthesised) -> None:
    keys = {route["RouteKey"] for route in properties(prod.service, "AWS::ApiGatewayV2::Route")}
    for call in (
        "POST /tasks",
        "POST /tasks/batch",
        "GET /tasks/{taskId}",
        "POST /tasks/{taskId}/redrive",
        "GET /health",
    ):
        assert call in keys


def test_the_id_of_the_api_is_pinned(synthesised: Synthesised) -> None:
    """Another API is another URL; another topic has lost its subscriptions."""
    assert list(of_type(synthesised.service, "AWS::ApiGatewayV2::Api")) == ["HttpApi"]
    assert list(of_type(synthesised.service, "AWS::SNS::Topic")) == ["AlarmTopic"]


def test_payloads_arrive_in_format_2(synthesised: Synthesised) -> None:
    (integration,) = properties(synthesised.service, "AWS::ApiGatewayV2::Integration")
    assert integration["PayloadFormatVersion"] == "2.0"


def test_the_stage_throttles_and_logs_without_secrets(synthesised: Synthesised) -> None:
    (stage,) = properties(synthesised.service, "AWS::ApiGatewayV2::Stage")
    assert stage["StageName"] == "$default"
    assert stage["DefaultRouteSettings"] == {"ThrottlingBurstLimit": 1000, "ThrottlingRateLimit": 500}
    logged = json.loads(stage["AccessLogSettings"]["Format"])
    assert {"requestId", "routeKey", "status", "caller"} <= set(logged)
    assert not [
        value for value in logged.values() if re.search(r"header|query|body|authorizer\.", value, re.IGNORECASE)
    ]
    group, _ = stage["AccessLogSettings"]["DestinationArn"]["Fn::GetAtt"]
    assert group in of_type(synthesised.service, "AWS::Logs::LogGroup")


def test_one_permission_lets_the_gateway_in(synthesised: Synthesised) -> None:
    """One per route would near the 20 KB limit of a function's policy."""
    permissions = properties(synthesised.service, "AWS::Lambda::Permission")
    by_principal = sorted(permission["Principal"] for permission in permissions)
    assert by_principal == ["apigateway.amazonaws.com", "events.amazonaws.com", "events.amazonaws.com"]


# ---- outputs ---------------------------------------------------------------------------------------------------------


def test_outputs_are_those_of_the_contract(synthesised: Synthesised) -> None:
    values = {name: readable(output["Value"]) for name, output in synthesised.service["Outputs"].items()}
    expected = {"ApiUrl", "TableName", "DashboardUrl", "AlarmTopicArn", "ArchiveBucketName"}
    if synthesised.names[1] == "ThunderAgent-local":
        expected |= {"SubmitterPolicyArn", "ViewerPolicyArn", "OperatorPolicyArn", "OperatorRoleArn"}
    assert set(values) == expected
    assert values["ApiUrl"] == "HttpApi.ApiEndpoint"
    assert values["AlarmTopicArn"] == "{AlarmTopic}"
    assert "TaskTable" in values["TableName"]
    assert "TaskBucket" in values["ArchiveBucketName"]
    (dashboard,) = of_type(synthesised.service, "AWS::CloudWatch::Dashboard")
    assert values["DashboardUrl"].endswith(f"#dashboards/dashboards/{{{dashboard}}}")


def test_a_template_fits_into_cloudformation(synthesised: Synthesised) -> None:
    for template in synthesised.stacks:
        assert len(template["Resources"]) <= 450
        assert len(json.dumps(template)) <= 900_000


@pytest.mark.parametrize("name", ["ThunderAgent", "Billing"])
def test_the_metric_dimension_is_the_stack_name(name: str, synthesise: Synthesise) -> None:
    synthesised = synthesise("dev", {"name": name})
    for function in functions(synthesised.service).values():
        assert variables(function)["SERVICE_NAME"] == synthesised.names[1] == f"{name}-dev"
