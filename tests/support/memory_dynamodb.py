"""DynamoDB in a dictionary behind the `send` seam: the testing kit's."""

from thunderagent.testing.faults import Call, Fault
from thunderagent.testing.memory_dynamodb import MemoryDynamoDB

__all__ = ["Call", "Fault", "MemoryDynamoDB"]
