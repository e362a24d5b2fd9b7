"""Agents beside one another, with real threads and one table: each task once, shared about evenly."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from tests.support.agents import Running, real_agent, real_world
from thunderagent.agent import Plan
from thunderagent.context import Context
from thunderagent.registry import task

AGENTS, TASKS = 4, 400


def test_four_agents_share_their_tasks_with_none_run_twice() -> None:
    """The exact shares are the bench's business (bench/agents.py); here nobody may starve or take it all."""
    starts: Counter[str] = Counter()
    lock = threading.Lock()

    @task("note")
    def note(payload: Any, ctx: Context) -> None:
        with lock:
            starts[ctx.task_id] += 1
        time.sleep(0.005)

    world = real_world(note, shards=2)
    ids = [world.submit("note") for _ in range(TASKS)]
    agents = [real_agent(world, name, plan=Plan(name, batches=2), threads=4) for name in "abcd"[:AGENTS]]
    with Running(*agents) as running:
        running.wait_until(lambda: sum(agent.report().ended["succeeded"] for agent in agents) == TASKS, seconds=60)
    assert set(starts) == set(ids)
    assert set(starts.values()) == {1}
    assert {world.status(task_id) for task_id in ids} == {"SUCCESS"}
    claimed = [agent.report().claimed for agent in agents]
    assert sum(claimed) == TASKS
    assert min(claimed) > TASKS / AGENTS / 3
    assert world.leases() == []
