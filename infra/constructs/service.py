"""The running service: functions, API, schedules, alarms, on a table and a bucket given to it."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy, Stack
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.acknowledge import acknowledge, acknowledge_plain_http
from infra.assets import Project
from infra.config import EnvironmentConfig, ExecutorProfile
from infra.constructs.alarm_topic import AlarmTopic
from infra.constructs.api import Api
from infra.constructs.doorbell import Doorbell
from infra.constructs.executor import Executor, profile_environment
from infra.constructs.layers import Layers
from infra.constructs.metrics import Watched
from infra.constructs.monitoring import Monitoring
from infra.constructs.poller import Poller
from infra.constructs.reaper import Reaper
from infra.constructs.recorder import Recorder
from infra.constructs.service_function import HouseDefaults
from infra.routes import read_routes

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
        authorizer: apigatewayv2.IHttpRouteAuthorizer | None = None,
        pinned: bool = False,
    ) -> None:
        super().__init__(scope, id)
        self.name = name
        self._config, self._table, self._bucket = config, table, bucket
        self._project = project
        self._registry = self._project.read_registry(config.environment)
        self._house = self._house_defaults()
        self.undelivered = self._undelivered_queue()
        self.executors = {profile.name: self._executor(profile) for profile in config.executors if profile.is_function}
        executors_json = self._executors_json()
        self.poller = Poller(
            self,
            "Poller",
            house=self._house,
            size=config.poller,
            poll=config.poll,
            table=table,
            executors=list(self.executors.values()),
            executors_json=executors_json,
        )
        self.doorbell = self._doorbell(executors_json) if config.doorbell else None
        self.reaper = Reaper(
            self,
            "Reaper",
            house=self._house,
            size=config.reaper,
            table=table,
            bucket=bucket,
            executors_json=executors_json,
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
            executors_json=executors_json,
            enforce_tls=config.enforce_tls,
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
            executors_json=executors_json,
            jwt=config.jwt,
            cors=config.cors,
            roles=config.roles,
            authorizer=authorizer,
            pinned=pinned,
        )
        self.alarm_topic = AlarmTopic(
            self,
            "AlarmTopic",
            email=config.alarm_email,
            enforce_tls=config.enforce_tls,
            quiet=config.environment == "local",
            pinned=pinned,
        ).topic
        self.monitoring = Monitoring(
            self, "Monitoring", watched=self._watched(), settings=config.alarms, topic=self.alarm_topic
        )

    def _house_defaults(self) -> HouseDefaults:
        config = self._config
        return HouseDefaults(
            project=self._project,
            layers=Layers(self, "Layers", project=self._project, environment=config.environment).versions,
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
            },
            tracing=config.tracing,
            log_retention=RETENTION[config.log_retention_days],
            log_removal=RemovalPolicy.RETAIN if config.protection.retain else RemovalPolicy.DESTROY,
        )

    def _undelivered_queue(self) -> sqs.Queue:
        """Executor events that came to nothing. Only those that grew too old are news; crashes are counted at reap."""
        queue = sqs.Queue(
            self,
            "Undelivered",
            retention_period=Duration.days(UNDELIVERED_DAYS),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
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
            lease_seconds=self._registry.lease_seconds.get(profile.name, ()),
            table=self._table,
            bucket=self._bucket,
            undelivered=self.undelivered,
        )

    def _doorbell(self, executors_json: str) -> Doorbell:
        return Doorbell(
            self,
            "Doorbell",
            house=self._house,
            size=self._config.poller,
            poll=self._config.poll,
            table=self._table,
            executors=list(self.executors.values()),
            executors_json=executors_json,
            undelivered=self.undelivered,
        )

    def _executors_json(self) -> str:
        """The value of EXECUTORS for the functions that plan for executors or invoke them. Agents' profiles are in it:
        the reaper sees to their leases, and the poller leaves their tasks to them."""
        functions = {name: executor.function.function_name for name, executor in self.executors.items()}
        return Stack.of(self).to_json_string(
            {
                profile.name: profile_environment(profile, function=functions.get(profile.name, ""))
                for profile in self._config.executors
            }
        )

    def _watched(self) -> Watched:
        return Watched(
            service=self.name,
            queues=sorted({*self._config.queues, *self._registry.queues}),
            table=self._table.table_name,
            api=self.api.http_api.http_api_id,
            executors={name: executor.function.function_name for name, executor in self.executors.items()},
            failures=self.recorder.failures.queue_name,
            types=self._registry.types,
            functions={
                "api": self.api.function.function_name,
                "poller": self.poller.function.function_name,
                "reaper": self.reaper.function.function_name,
                "recorder": self.recorder.function.function_name,
                **({"doorbell": self.doorbell.function.function_name} if self.doorbell else {}),
            },
        )
