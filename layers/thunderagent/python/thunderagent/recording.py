"""The parts only the recorder needs, built on those all functions share."""

from __future__ import annotations

from functools import cached_property

from thunderagent.completion import Completions, PutEvents
from thunderagent.errors import ConfigurationError
from thunderagent.failures import Failures, SendMessage
from thunderagent.leftovers import Leftovers
from thunderagent.recorder import Recorder
from thunderagent.seams import Once, deferred
from thunderagent.transport import BotoQueue, boto_client, boto_put_events
from thunderagent.wiring import Parts


class Recording:
    """A recorder over the given parts. `put_events` and `send_failure` are its seams to EventBridge and SQS."""

    def __init__(self, parts: Parts, *, put_events: PutEvents | None, send_failure: SendMessage | None) -> None:
        self.parts = parts
        self._put_events = put_events
        self._send_failure = send_failure

    @cached_property
    def recorder(self) -> Recorder:
        own = self.parts
        return Recorder(
            own.store,
            objects=own.seams.objects,
            completions=self._completions(),
            leftovers=Leftovers(own.store, own.seams.objects),
            failures=Failures(self._send_failure, observer=own.telemetry),
            patience_seconds=own.settings.recorder_patience_seconds,
            observer=own.telemetry,
        )

    def _completions(self) -> Completions | None:
        settings, seams = self.parts.settings, self.parts.seams
        if self._put_events is None or settings.event_bus is None:
            return None
        return Completions(
            self._put_events,
            bus=settings.event_bus,
            statuses=settings.event_statuses,
            service=settings.service_name,
            environment=settings.environment,
            clock=seams.clock,
            randomness=seams.randomness,
        )


def recording_of(parts: Parts) -> Recording:
    """The recorder of a deployed function, each service set up when it is first needed. Raises ConfigurationError."""
    settings = parts.settings
    if settings.failures_queue_url is None:
        raise ConfigurationError("FAILURES_QUEUE_URL is not set: it must name the queue for what cannot be recorded")
    url, region = settings.failures_queue_url, settings.region
    queue = deferred(lambda: BotoQueue(boto_client("sqs", region=region), url))
    events = Once(lambda: boto_put_events(boto_client("events", region=region)))
    return Recording(
        parts,
        put_events=(lambda entries: events()(entries)) if settings.event_bus else None,
        send_failure=lambda body: queue.send(body),
    )
