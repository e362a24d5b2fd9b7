"""ThunderAgent as a construct of your own CDK app. Not part of the layer: nothing here is there at run time.

tasks = ThunderAgent(stack, "Tasks", project=Path(__file__).parent)        # with the handlers in tasks/
tasks.grant_submit(order_function)
orders.grant_read_data(tasks.executors["default"].role)
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("infra") is None or importlib.util.find_spec("infra.constructs") is None:
    raise ImportError(
        "thunderagent.cdk needs the package `infra` that comes with it, and another one of that name stands before it "
        "on the path: rename yours, or start the app from elsewhere"
    )

from infra.assets import AssetError, Project
from infra.config import (
    AccessRole,
    AlarmSettings,
    ConfigError,
    Cors,
    DataProtection,
    ExecutorProfile,
    FunctionSize,
    JwtAuth,
    PollSettings,
    RecorderSettings,
    Throttling,
)
from infra.constructs.executor import Executor
from infra.constructs.task_bucket import TaskBucket
from infra.constructs.task_table import TaskTable
from thunderagent.cdk.agent import ThunderAgent

__all__ = [
    "AccessRole",
    "AlarmSettings",
    "AssetError",
    "ConfigError",
    "Cors",
    "DataProtection",
    "Executor",
    "ExecutorProfile",
    "FunctionSize",
    "JwtAuth",
    "PollSettings",
    "Project",
    "RecorderSettings",
    "TaskBucket",
    "TaskTable",
    "Throttling",
    "ThunderAgent",
]
