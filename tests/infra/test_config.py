from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import pytest

from infra.config import (
    ROOT,
    ConfigError,
    Encryption,
    EnvironmentConfig,
    JwtAuth,
    Network,
    load_config,
    read_context,
)

JWT = {"kind": "jwt", "issuer": "https://issuer.example", "audience": ["a"]}


def config_of(section: dict[str, Any], **context: Any) -> EnvironmentConfig:
    return load_config({"environments": {"dev": section}, "env": "dev", **context})


def test_every_environment_of_the_project_loads() -> None:
    loaded = {name: load_config(read_context(), name) for name in ("local", "dev", "prod")}
    assert {name: config.service_stack_name for name, config in loaded.items()} == {
        "local": "ThunderAgent-local",
        "dev": "ThunderAgent-dev",
        "prod": "ThunderAgent-prod",
    }
    assert loaded["prod"].data_stack_name == "ThunderAgent-prod-Data"


def test_only_prod_protects_its_data() -> None:
    protected = {name: load_config(read_context(), name).protection for name in ("local", "dev", "prod")}
    assert [protected[name].retain for name in ("local", "dev", "prod")] == [False, False, True]
    assert [protected[name].deletion_protection for name in ("local", "dev", "prod")] == [False, False, True]
    assert all(protection.point_in_time_recovery for protection in protected.values())


def test_an_environment_that_says_nothing_protects_its_data() -> None:
    config = config_of({})
    assert config.protection.retain
    assert config.protection.deletion_protection


def test_local_has_the_demonstration_tasks_and_prod_has_not() -> None:
    assert "examples/demo" in load_config(read_context(), "local").executor("default").handlers
    assert load_config(read_context(), "prod").executor("default").handlers == ("functions/executor/tasks",)


def test_only_local_bundles_for_this_machine() -> None:
    target = {name: load_config(read_context(), name).bundle_for for name in ("local", "dev", "prod")}
    assert target == {"local": "this-machine", "dev": "lambda", "prod": "lambda"}


def test_iam_decides_who_may_call_unless_tokens_are_asked_for() -> None:
    assert config_of({}).jwt is None
    assert config_of({"auth": {"kind": "iam"}}).jwt is None
    assert config_of({"auth": JWT}).jwt == JwtAuth(issuer="https://issuer.example", audience=("a",))


def test_no_browser_and_no_role_unless_asked_for() -> None:
    assert config_of({}).cors is None
    assert config_of({}).roles == ()


def test_the_environment_must_be_named() -> None:
    with pytest.raises(ConfigError, match=r"'env' is missing: it must be one of local, dev, prod"):
        load_config(read_context())
    with pytest.raises(ConfigError, match=r"'env' is 'staging': it must be one of local, dev, prod"):
        load_config({**read_context(), "env": "staging"})


def test_an_instance_has_its_own_stack_names() -> None:
    assert config_of({}, name="Billing").service_stack_name == "Billing-dev"
    with pytest.raises(ConfigError, match="'name' is 'a b'"):
        config_of({}, name="a b")


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"retainDate": True}, r"environments\.dev\.retainDate is not a known key; known: .*retainData"),
        ({"retainData": "yes"}, r"environments\.dev\.retainData is 'yes': it must be true or false"),
        ({"logRetentionDays": 8}, r"logRetentionDays is 8: it must be one of 1, 3, 5, 7"),
        ({"logRetentionDays": True}, r"logRetentionDays is True"),
        ({"transport": "curl"}, r"transport is 'curl': it must be one of auto, direct, boto"),
        ({"logLevel": "LOUD"}, r"logLevel is 'LOUD': it must be one of DEBUG, INFO, WARNING, ERROR"),
        ({"alarmEmail": "nobody"}, r"alarmEmail is 'nobody': it must be a text matching"),
        ({"dispatchShards": 0}, r"dispatchShards is 0: it must be an integer from 1 to 64"),
        ({"dispatchShards": 2.5}, r"dispatchShards is 2\.5: it must be an integer"),
        ({"dispatchShards": True}, r"dispatchShards is True: it must be an integer"),
        ({"poll": {"windowSeconds": 58}}, r"environments\.dev\.poll: windowSeconds \+ startJitterSeconds"),
        ({"poll": {"window": 5}}, r"environments\.dev\.poll\.window is not a known key"),
        ({"throttling": {"burst": -1}}, r"environments\.dev\.throttling\.burst is -1"),
        ({"auth": {"kind": "none"}}, r"environments\.dev\.auth\.kind is 'none': it must be one of iam, jwt"),
        ({"auth": {"kind": "jwt", "audience": ["a"]}}, r"environments\.dev\.auth\.issuer is None: it must be a text"),
        (
            {"auth": {"kind": "jwt", "issuer": "https://a.b"}},
            r"environments\.dev\.auth\.audience is \[\]: .* at least one",
        ),
        ({"auth": {"issuer": "https://a.b"}}, r"environments\.dev\.auth\.issuer is not a known key; known: kind"),
        ({"auth": JWT, "roles": {"viewer": {}}}, r"environments\.dev\.roles: with auth\.kind jwt the token's scopes"),
        ({"roles": {"admin": {}}}, r"roles\.admin is not a known key; known: operator, submitter, viewer"),
        ({"roles": {"viewer": {"assumedBy": ["*"]}}}, r"roles\.viewer\.assumedBy is '\*': it must be texts matching"),
        (
            {"cors": {"allowOrigins": ["*"]}},
            r"environments\.dev\.cors\.allowOrigins is '\*': it must be texts matching",
        ),
        ({"cors": {}}, r"environments\.dev\.cors\.allowOrigins is \[\]: it must be a list"),
        ({"functions": {"pollr": {}}}, r"environments\.dev\.functions\.pollr is not a known key; known: api, poller"),
        ({"functions": {"api": {"memoryMiB": 64}}}, r"functions\.api\.memoryMiB is 64: .* from 128 to 10240"),
        ({"executors": {"Big": {}}}, r"environments\.dev\.executors\.Big: a profile's name must match"),
        ({"executors": {"a": {"timeoutSeconds": 901}}}, r"executors\.a\.timeoutSeconds is 901: .* from 31 to 900"),
        ({"executors": {"a": {"kind": "agents"}}}, r"executors\.a\.kind is 'agents': it must be one of lambda, agent"),
        ({"executors": {"a": {"kind": "agent", "memoryMiB": 512}}}, r"executors\.a\.memoryMiB is not a known key"),
        ({"executors": {"a": {"kind": "agent", "timeoutSeconds": 86431}}}, r"is 86431: .* from 31 to 86430"),
        ({"executors": {"a": {"leaseSeconds": 59}}}, r"executors\.a\.leaseSeconds is 59: .* from 60"),
        ({"executors": {"a": {"handlers": []}}}, r"executors\.a\.handlers is \[\]: it must be a list"),
        (
            {"executors": {"a": {"handlers": ["x", "x"]}}},
            r"executors\.a\.handlers is .*: .* of different texts",
        ),
        ({"executors": {"a": {"queues": ["Q!"]}}}, r"executors\.a\.queues is 'Q!': it must be texts matching"),
        ({"executors": []}, r"environments\.dev\.executors is \[\]: it must be an object"),
        ({"alarmEmails": ["nobody"]}, r"alarmEmails is 'nobody': it must be texts matching"),
        ({"architecture": "x86"}, r"architecture is 'x86': it must be one of arm64, x86_64"),
        ({"bundleFor": "docker"}, r"bundleFor is 'docker': it must be one of lambda, this-machine"),
        ({"enforceTls": False}, r"enforceTls: only an AWS on this machine has no TLS \(bundleFor: this-machine\)"),
        ({"encryption": {"kind": "kms"}}, r"encryption\.kind is 'kms': it must be one of aws, own, given"),
        ({"encryption": {"kind": "given"}}, r"encryption\.keyArn is None: it must be a text matching arn:"),
        ({"encryption": {"kind": "own", "keyArn": "x"}}, r"encryption\.keyArn is not a known key; known: kind"),
        ({"vpc": {"vpcId": "mine"}}, r"vpc\.vpcId is 'mine'"),
        ({"vpc": {"vpcId": "vpc-0a"}}, r"vpc\.subnetIds is \[\]: it must be a list of different texts, at least one"),
        ({"tags": {"aws:x": "y"}}, r"environments\.dev\.tags: 'aws:x' is no key there: it must match"),
        ({"tags": {"x": 1}}, r"environments\.dev\.tags\.x is 1: it must be a text matching"),
        ({"tags": {f"t{n}": "" for n in range(41)}}, r"environments\.dev: tags: there are 41; at most 40"),
        ({"queues": {"mail": {}}}, r"environments\.dev: queues: no executor serves mail; served: default"),
        ({"queues": {"default": {"rate": 5}}}, r"queues\.default\.rate is not a known key; known: burst, maxBacklog"),
    ],
)
def test_a_wrong_value_is_named_with_what_it_may_be(section: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config_of(section)


def test_every_wrong_key_is_told_at_once() -> None:
    wrong = {"retainData": "yes", "poll": {"window": 5}, "executors": {"a": {"threads": 0}}, "logLevel": "LOUD"}
    with pytest.raises(ConfigError) as told:
        config_of(wrong)
    lines = str(told.value).splitlines()
    assert sorted(line.split(" is ")[0].removeprefix("environments.dev.") for line in lines) == [
        "executors.a.threads",
        "logLevel",
        "poll.window",
        "retainData",
    ]


def test_what_is_asked_for_beside_the_usual() -> None:
    config = config_of(
        {
            "alarmEmail": "a@example.com",
            "alarmEmails": ["b@example.com", "a@example.com"],
            "encryption": {"kind": "own"},
            "vpc": {"vpcId": "vpc-0a", "subnetIds": ["subnet-0a"], "securityGroupIds": ["sg-0a"]},
            "architecture": "x86_64",
            "bundleFor": "this-machine",
            "tags": {"team": "shop"},
            "queues": {"default": {"maxConcurrency": 0, "ratePerSecond": 0.5, "burst": 2, "maxBacklog": None}},
        }
    )
    assert config.alarm_emails == ("a@example.com", "b@example.com")
    assert config.encryption == Encryption()
    assert config.network == Network(vpc_id="vpc-0a", subnet_ids=("subnet-0a",), security_group_ids=("sg-0a",))
    assert (config.architecture, config.bundle_for, config.tags) == ("x86_64", "this-machine", {"team": "shop"})
    assert config.queue_limits == {"default": {"maxConcurrency": 0, "ratePerSecond": 0.5, "burst": 2}}


def test_what_is_not_asked_for_is_not_there() -> None:
    config = config_of({})
    assert (config.encryption, config.network, config.alarm_emails) == (None, None, ())
    assert config_of({"encryption": {"kind": "aws"}}).encryption is None
    assert (config.architecture, config.bundle_for) == ("arm64", "lambda")
    assert config.is_protected
    assert not config_of({"retainData": False}).is_protected


def test_a_profile_is_configured_whole() -> None:
    config = config_of(
        {
            "executors": {
                "default": {},
                "heavy": {
                    "handlers": ["jobs"],
                    "code": "functions/executor",
                    "queues": ["heavy", "default"],
                    "memoryMiB": 2048,
                    "timeoutSeconds": 600,
                    "threads": 1,
                    "maxInFlight": 5,
                    "leaseSeconds": 120,
                    "reservedConcurrency": 5,
                },
            }
        }
    )
    heavy = config.executor("heavy")
    assert (heavy.handlers, heavy.memory_mib, heavy.timeout_seconds) == (("jobs",), 2048, 600)
    assert (heavy.threads, heavy.max_in_flight, heavy.lease_seconds, heavy.reserved_concurrency) == (1, 5, 120, 5)
    assert config.queues == ("default", "heavy")
    with pytest.raises(ConfigError, match="no profile 'light'; configured: default, heavy"):
        config.executor("light")


def test_zero_and_false_are_values() -> None:
    config = config_of({"listCompleted": False, "leaseGraceSeconds": 0, "poll": {"windowSeconds": 0, "busySeconds": 0}})
    assert config.list_completed is False
    assert (config.lease_grace_seconds, config.poll.window_seconds, config.poll.busy_seconds) == (0, 0, 0)


def test_configuration_is_frozen() -> None:
    config = config_of({})
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.log_level = "DEBUG"  # type: ignore[misc]


def test_configuration_and_assets_need_no_cdk() -> None:
    code = (
        "import sys, infra.config, infra.assets, infra.routes; print('aws_cdk' in sys.modules or 'jsii' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "False"
