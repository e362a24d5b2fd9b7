"""Agents over a world in memory: in its time and in one thread, or with real ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from tests.support.fakes import InlineThreads
from tests.support.world import World
from thunderagent.agent import Agent, Plan
from thunderagent.clock import SystemClock, SystemRandomness
from thunderagent.settings import Executor
from thunderagent.threads import PoolThreads


def agent_of(world: World, name: str = "a", *, plan: Plan | None = None, threads: Any = None, **changes: Any) -> Agent:
    """An agent for the world's only profile, which runs whatever it starts before it goes on."""
    seams = world.process(name).seams
    return Agent(
        plan or Plan(name),
        replace(world.settings, serves="default", **changes),
        replace(seams, threads=threads or seams.threads),
        registry=world.registry,
        handlers=world.handlers,
        telemetry=cast(Any, world.notes),
        make_threads=lambda: InlineThreads(world.clock),
    )


def real_agent(world: World, name: str, *, plan: Plan | None = None, threads: int = 4, **changes: Any) -> Agent:
    """An agent with threads, time and chance of its own."""
    executors = {"default": Executor("default", "", kind="agent", threads=threads, max_in_flight=100)}
    quick = {"poll_busy_seconds": 0.02, "poll_idle_seconds": 0.05, "poll_start_jitter_seconds": 0.05}
    seams = replace(
        world.process(name).seams, clock=SystemClock(), randomness=SystemRandomness(), threads=PoolThreads(4)
    )
    return Agent(
        plan or Plan(name),
        replace(world.settings, serves="default", **{"executors": executors, **quick, **changes}),
        seams,
        registry=world.registry,
        handlers=world.handlers,
        telemetry=cast(Any, world.notes),
        make_threads=lambda: PoolThreads(1),
    )


def real_world(*handlers: Callable[..., Any], **options: Any) -> World:
    """A world whose clock stands at the time it was made: what is submitted is due for agents with a real one."""
    world = World(*handlers, **options)
    world.clock.advance(SystemClock().now() - world.clock.now())
    return world


class Running:
    """Agents that run in threads until the block is left; each has then stopped in an orderly way."""

    def __init__(self, *agents: Agent) -> None:
        self.agents = agents
        self._threads = [threading.Thread(target=agent.run, daemon=True) for agent in agents]

    def __enter__(self) -> Running:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        for agent in self.agents:
            agent.stop()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def wait_until(self, holds: Callable[[], bool], *, seconds: float = 30) -> None:
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, "it never came to that"
            time.sleep(0.01)
