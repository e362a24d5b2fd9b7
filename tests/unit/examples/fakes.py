"""What a handler is given, without a store behind it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Submitted:
    task_id: str
    type: str
    payload: Any


@dataclass
class FakeContext:
    """One attempt of one task. Remembers steps as the store does: pass `steps` on to give the next attempt its past."""

    attempt: int = 1
    cancelled: bool = False
    steps: dict[str, Any] = field(default_factory=dict)
    told: list[tuple[float, str]] = field(default_factory=list)
    children: list[Submitted] = field(default_factory=list)
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("fake"))

    def step(self, name: str, work: Callable[[], Any]) -> Any:
        if name not in self.steps:
            self.steps[name] = work()
        return self.steps[name]

    def progress(self, fraction: float, message: str = "") -> None:
        self.told.append((fraction, message))

    def submit(self, type: str, payload: Any = None, *, name: str | None = None, **options: Any) -> Submitted:
        self.children.append(Submitted(f"child-{len(self.children) + 1}", type, payload))
        return self.children[-1]
