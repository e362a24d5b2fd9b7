"""One embedded AWS, metered, with our stack and its rivals deployed side by side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import metered_aws
from bench.meter import Meter
from bench.ours import OurStack
from bench.rivals import seed_agent
from bench.rivals.queue_stack import QueueStack
from tests.support.local_stack import copy_up, deployed_state
from thunder.local.aws import client
from thunder.local.checkout import Checkout
from thunder.local.progress import SILENT, Progress

SEED_TABLE = "seed-agent"
METER = Path(metered_aws.__file__)


@dataclass(frozen=True)
class Arena:
    """What is measured, on what. `lean` is the queue that does not mark tasks RUNNING."""

    endpoint: str
    meter: Meter
    ours: OurStack
    queue: QueueStack
    lean: QueueStack
    seed_table: str = SEED_TABLE


@contextmanager
def arena(deployed: Path | None = None) -> Iterator[Arena]:
    """Up, with the schedules off and every queue empty; ended afterwards, whatever happens."""
    deployed = deployed or deployed_state(Checkout.of_this_installation(), Progress())
    with TemporaryDirectory(prefix="thunder-bench-") as directory:
        stack = copy_up(deployed, Path(directory) / "state", SILENT, emulator=METER)
        try:
            endpoint = stack.record["endpoint"]
            seed_agent.create_table(client("dynamodb", endpoint), SEED_TABLE)
            ours = OurStack(stack.record)
            ours.switch_schedules(on=False)
            yield Arena(
                endpoint,
                Meter(endpoint),
                ours,
                QueueStack.deploy(endpoint, "queue-worker"),
                QueueStack.deploy(endpoint, "queue-worker-lean", marks_running=False),
            )
        finally:
            stack.local.down()
