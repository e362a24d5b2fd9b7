"""The running service: functions, API, schedules, alarms, on a table and a bucket given to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.acknowledge import acknowledge, acknowledge_plain_http
from infra.assets import Project, Registry, require_to_fit
from infra.config import EnvironmentConfig, ExecutorProfile
from infra.constructs.alarm_topic import AlarmTopic
from infra.constructs.api import Api
from infra.constructs.doorbell import Doorbell
from infra.constructs.executor import Executor, event_age_seconds, profile_environment
from infra.constructs.gradual import GradualRollout
from infra.constructs.layers import ARCHITECTURES, Layers
from infra.constructs.metrics import Watched
from infra.constructs.monitoring import Monitoring
from infra.constructs.placement import Placement
from infra.constructs.poller import Poller
from infra.constructs.reaper import Reaper
from infra.constructs.recorder import Recorder
from infra.constructs.service_function import HouseDefaults
from infra.environment import AT_ONCE
from infra.routes import read_routes
from thunderagent.registry import DEFAULT_QUEUE

UNDELIVERED_DAYS = 14

RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    120: logs.RetentionDays.FOUR_MONTHS,
    150: logs.RetentionDays.FIVE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    400: logs.RetentionDays.THIRTEEN_MONTHS,
    545: logs.RetentionDays.EIGHTEEN_MONTHS,
    731: logs.RetentionDays.TWO_YEARS,
    1827: logs.RetentionDays.FIVE_YEARS,
    3653: logs.RetentionDays.TEN_YEARS,
}


class Service(Construct):
    """All that can be thrown away and deployed again.

    `executors`, `poller`, `reaper`, `recorder` and `api` are attributes, so that an application can grant its handlers
    what they need: `service.executors["default"].role`. `name` is the value of the metric dimension `Service`;
    `pinned`: the logical ids of API and topic never change, of which a stack can hold one each.

    Executors and queues may be added until `complete`, which must be called once: what every function knows of the
    others, the registry and the dashboard come last.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        name: str,
        config: EnvironmentConfig,
        table: dynamodb.ITableV2,
        bucket: s3.IBucket,
        project: Project,
        key: kms.IKey | None = None,
        placement: Placement | None = None,
        bus: events.IEventBus | None = None,
        alarm_topic: sns.ITopic | None = None,
        authorizer: apigatewayv2.IHttpRouteAuthorizer | None = None,
        pinned: bool = False,
    ) -> None:
        super().__init__(scope, id)
        self.name = name
        self._config, self._table, self._bucket = config, table, bucket
        self._project = project
        self._layers = Layers(self, "Layers", project=project, architecture=ARCHITECTURES[config.architecture])
        self._house = self._house_defaults(key, placement)
        self.undelivered = self._undelivered_queue()
        self.executors: dict[str, Executor] = {}
        self.profiles: dict[str, ExecutorProfile] = {}
        self.poller = Poller(self, "Poller", house=self._house, size=config.poller, poll=config.poll, table=table)
        self.doorbell = self._doorbell() if config.doorbell else None
        self.reaper = Reaper(
            self,
            "Reaper",
            house=self._house,
            size=config.reaper,
            table=table,
            undelivered=self.undelivered,
        )
        self.recorder = Recorder(
            self,
            "Recorder",
            house=self._house,
            size=config.recorder,
            settings=config.recording,
            table=table,
            bucket=bucket,
            enforce_tls=config.enforce_tls,
            bus=bus,
        )
        self.api = Api(
            self,
            "Api",
            house=self._house,
            size=config.api,
            throttling=config.throttling,
            routes=read_routes(self._project.openapi),
            table=table,
            bucket=bucket,
            jwt=config.jwt,
            cors=config.cors,
            roles=config.roles,
            authorizer=authorizer,
            pinned=pinned,
        )
        self.alarm_topic: sns.ITopic = (
            alarm_topic
            or AlarmTopic(
                self,
                "AlarmTopic",
                emails=config.alarm_emails,
                enforce_tls=config.enforce_tls,
                quiet=config.environment == "local",
                key=key,
                pinned=pinned,
            ).topic
        )
        self.monitoring = Monitoring(self, "Monitoring", settings=config.alarms, topic=self.alarm_topic)
        for profile in config.executors:
            self.add_executor(profile)

    @property
    def functions(self) -> dict[str, lambda_.Function]:
        """Every function by what it is; executors as `executor-<profile>`."""
        return {**self._own_functions, **{f"executor-{name}": each.function for name, each in self.executors.items()}}

    @property
    def _own_functions(self) -> dict[str, lambda_.Function]:
        return {
            "api": self.api.function,
            "poller": self.poller.function,
            "reaper": self.reaper.function,
            "recorder": self.recorder.function,
            **({"doorbell": self.doorbell.function} if self.doorbell else {}),
        }

    def add_executor(self, profile: ExecutorProfile) -> Executor | None:
        """One more profile; None for one of kind `agent`, which has no function. Raises ValueError for a name that is
        taken, and AssetError when its handlers are missing or what they need cannot be bundled."""
        if profile.name in self.profiles:
            raise ValueError(f"{self.node.path}: there is an executor {profile.name!r} already")
        self.profiles[profile.name] = profile
        if profile.is_function:
            executor = self.executors[profile.name] = self._executor(profile)
            executor.grant_invoke(self.poller.role)
            if self.doorbell:
                executor.grant_invoke(self.doorbell.role)
        self.monitoring.add_alarms(self._watched({}))
        return self.executors.get(profile.name)

    def add_queue(self, name: str, *, executor: str) -> None:
        """One more queue that types of this executor may name. Raises ValueError for an unknown executor."""
        if executor not in self.profiles:
            known = ", ".join(self.profiles)
            raise ValueError(f"{self.node.path}: there is no executor {executor!r}; there are {known}")
        profile = self.profiles[executor]
        self.profiles[executor] = replace(profile, queues=tuple(dict.fromkeys((*profile.queues, name))))
        self.monitoring.add_alarms(self._watched({}))

    def complete(self, registry: Registry, parts: Mapping[str, Path]) -> None:
        """Tell every function of the executors and of the registry, whose layer `parts` are, and draw the dashboard."""
        layer = self._layers.add_registry(parts)
        for function in self.functions.values():
            function.add_layers(layer)
        for name, executor in self.executors.items():
            executor.shorten_event_age(registry.lease_seconds.get(name, ()))
        executors_json = self._executors_json(self._invoked_names(registry))
        for function in self._own_functions.values():
            function.add_environment("EXECUTORS", executors_json)
        watched = self._watched(registry.types, registry.queues)
        self.monitoring.add_alarms(watched)
        self.monitoring.draw(watched)

    def _house_defaults(self, key: kms.IKey | None, placement: Placement | None) -> HouseDefaults:
        config = self._config
        keys = (key, self._table.encryption_key, self._bucket.encryption_key)
        return HouseDefaults(
            project=self._project,
            layers=self._layers.versions,
            architecture=ARCHITECTURES[config.architecture],
            environment={
                "TABLE_NAME": self._table.table_name,
                "BUCKET_NAME": self._bucket.bucket_name,
                "SERVICE_NAME": self.name,
                "ENVIRONMENT": config.environment,
                "LEASE_GRACE_SECONDS": str(config.lease_grace_seconds),
                "DISPATCH_SHARDS": str(config.dispatch_shards),
                "LIST_COMPLETED": "true" if config.list_completed else "false",
                "LOG_LEVEL": config.log_level,
                "LOG_DEBUG_SHARE": f"{config.log_debug_share:g}",
                "TRANSPORT": config.transport,
            },
            tracing=config.tracing,
            key=key,
            data_keys=list({each.node.path: each for each in keys if each is not None}.values()),
            placement=placement,
            log_retention=RETENTION[config.log_retention_days],
            log_removal=RemovalPolicy.RETAIN if config.protection.retain else RemovalPolicy.DESTROY,
        )

    def _undelivered_queue(self) -> sqs.Queue:
        """Executor events that came to nothing. Only those that grew too old are news; crashes are counted at reap."""
        key = self._house.key
        queue = sqs.Queue(
            self,
            "Undelivered",
            retention_period=Duration.days(UNDELIVERED_DAYS),
            encryption=sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=key,
            enforce_ssl=self._config.enforce_tls,
        )
        if not self._config.enforce_tls:
            acknowledge_plain_http(queue, "SQS4")
        acknowledge(queue, {"SQS3": "It is itself the place for what could not be delivered."})
        return queue

    def _executor(self, profile: ExecutorProfile) -> Executor:
        return Executor(
            self,
            f"Executor-{profile.name}",
            house=self._house,
            profile=profile,
            packages=self._packages(profile),
            table=self._table,
            bucket=self._bucket,
            undelivered=self.undelivered,
        )

    def _packages(self, profile: ExecutorProfile) -> Sequence[lambda_.ILayerVersion]:
        """The layer of what its handlers' requirements.txt ask for, if any does."""
        target = self._project.bundle_target(self._config)
        packages = self._project.packages(profile, target)
        if packages is None:
            return []
        require_to_fit(
            f"executors.{profile.name}",
            [
                packages,
                *self._project.executor_parts(profile).values(),
                *self._project.library_parts().values(),
                *self._project.dependencies_parts().values(),
            ],
        )
        return [self._layers.add_packages(profile.name, packages)]

    def _doorbell(self) -> Doorbell:
        return Doorbell(
            self,
            "Doorbell",
            house=self._house,
            size=self._config.poller,
            poll=self._config.poll,
            table=self._table,
            undelivered=self.undelivered,
        )

    def _invoked_names(self, registry: Registry) -> dict[str, str]:
        """What pollers invoke: the functions themselves, or their aliases where new code comes gradually."""
        if self._config.rollout == AT_ONCE:
            return {name: executor.function.function_name for name, executor in self.executors.items()}
        return GradualRollout(
            self,
            "Rollout",
            rollout=self._config.rollout,
            executors=self.executors,
            invokers=[self.poller.role, *([self.doorbell.role] if self.doorbell else [])],
            event_age_seconds={
                name: event_age_seconds(executor.profile, registry.lease_seconds.get(name, ()))
                for name, executor in self.executors.items()
            },
            alarms=self.monitoring.alarms,
            undelivered=self.undelivered,
        ).names

    def _executors_json(self, functions: Mapping[str, str]) -> str:
        """The value of EXECUTORS for the functions that plan for executors or invoke them. Agents' profiles are in it:
        the reaper sees to their leases, and the poller leaves their tasks to them."""
        return Stack.of(self).to_json_string(
            {
                profile.name: profile_environment(profile, function=functions.get(profile.name, ""))
                for profile in self.profiles.values()
            }
        )

    def _watched(self, types: Mapping[str, str], queues: Sequence[str] = ()) -> Watched:
        served = [queue for profile in self.profiles.values() for queue in profile.queues]
        return Watched(
            service=self.name,
            queues=sorted({DEFAULT_QUEUE, *served, *queues}),
            table=self._table.table_name,
            api=self.api.http_api.http_api_id,
            executors={name: executor.function.function_name for name, executor in self.executors.items()},
            failures=self.recorder.failures.queue_name,
            types=types,
            functions={name: function.function_name for name, function in self._own_functions.items()},
        )
