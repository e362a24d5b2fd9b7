"""The environment a smoke run deploys: small, short-lived, with the demonstration tasks. It stands in no cdk.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.config import EnvironmentConfig, load_config, read_context

ENVIRONMENT = "smoke"
NAME_VARIABLE = "THUNDER_SMOKE_NAME"
THROTTLE_PER_SECOND = 20
LEASE_SECONDS = 60
SECTION: Mapping[str, Any] = {
    "retainData": False,
    "logRetentionDays": 1,
    "throttling": {"ratePerSecond": THROTTLE_PER_SECOND, "burst": THROTTLE_PER_SECOND},
    "roles": {"operator": {"assumedBy": ["account"]}},
    "executors": {
        "default": {
            "handlers": ["functions/executor/tasks", "examples/demo"],
            "maxInFlight": 5,
            "leaseSeconds": LEASE_SECONDS,
        }
    },
}


def context(name: str) -> dict[str, Any]:
    """The context of the CDK app of the instance of this name."""
    return {**read_context(), "name": name, "environments": {ENVIRONMENT: SECTION}}


def config(name: str) -> EnvironmentConfig:
    return load_config(context(name), ENVIRONMENT)
