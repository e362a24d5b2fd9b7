"""The agent: the poller's sweep and the executor's batches in one process, its pauses, its end."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.support.agents import Running, agent_of, real_agent, real_world
from tests.support.batches import START
from tests.support.fakes import ScriptedThreads
from tests.support.memory_dynamodb import Fault
from tests.support.world import Died, World, die, on_lease, to_status
from thunderagent.agent import Agent, Plan
from thunderagent.context import Context
from thunderagent.registry import TaskType, task
from thunderagent.settings import Executor


@task("note")
def note(payload: Any, ctx: Context) -> Any:
    return payload


@pytest.fixture
def world() -> World:
    return World(note)


def stop_at(world: World, agent: Agent, seconds: float) -> None:
    """Told when the clock, which only the agent's own waits move, gets there."""
    world.clock.on_sleep = lambda _: agent.stop() if world.clock.now() >= START + seconds else None


# ---- the ordinary life ----------------------------------------------------------------------------------------------


def test_it_claims_runs_and_counts(world: World) -> None:
    ids = [world.submit("note", payload=str(number)) for number in range(25)]
    agent = agent_of(world)
    stop_at(world, agent, 20)
    report = agent.run()
    assert {world.status(task_id) for task_id in ids} == {"SUCCESS"}
    assert report.as_dict() == {
        "agent": "a",
        "claimed": 25,
        "conflicts": 0,
        "batches": 3,
        "running": 0,
        "stuck": False,
        "ended": {"succeeded": 25},
    }
    assert world.leases() == []
    assert {world.item(task_id)["attempts"][0]["outcome"] for task_id in ids if "attempts" in world.item(task_id)} <= {
        "success"
    }


def test_it_starts_after_a_jitter_and_adapts_its_pauses_to_what_there_is(world: World) -> None:
    agent = agent_of(world, poll_busy_seconds=1, poll_idle_seconds=5, poll_start_jitter_seconds=3)
    stop_at(world, agent, 13)
    world.clock.slept.clear()
    world.db.after(lambda call: call.operation == "Query", lambda: world.submit("note"), skip=3)
    agent.run()
    jitter, first, *rest = [pause for pause in world.clock.slept if pause > 0.2]
    assert jitter == 1.5  # half of 3: the test's fraction
    assert first in (1, 5)
    assert rest[-1] == 5  # nothing is left: the long pause


def test_a_task_due_soon_ends_the_pause_when_it_is_due(world: World) -> None:
    task_id = world.submit("note", delay_seconds=3.2)
    agent = agent_of(world, poll_start_jitter_seconds=0)
    stop_at(world, agent, 8)
    agent.run()
    assert world.item(task_id)["startedAt"] - START == pytest.approx(3.2, abs=0.1)


def test_how_many_it_claimed_is_told_every_minute(world: World) -> None:
    world.submit("note")
    agent = agent_of(world)
    stop_at(world, agent, 130)
    agent.run()
    told = world.log("agent.alive")
    assert [line["claimed"] for line in told] == [1, 1]
    assert world.log("agent.stopped")[0]["claimed"] == 1


def test_it_owns_what_it_claims_by_its_name(world: World) -> None:
    owners: list[str] = []
    world.db.before(
        lambda call: call.sets.get("status") == "SUCCESS", lambda: owners.append(world.item(task_id)["owner"])
    )
    task_id = world.submit("note")
    agent = agent_of(world, "host-7")
    stop_at(world, agent, 5)
    agent.run()
    assert owners == ["host-7"]


# ---- what is its own ------------------------------------------------------------------------------------------------


def with_profile_of(world: World, type_name: str, profile: str) -> None:
    types: Any = world.registry.types
    types[type_name] = TaskType(type_name, profile)


def test_it_leaves_types_of_other_profiles_and_unknown_ones_alone(world: World) -> None:
    with_profile_of(world, "echo", "other")
    others = [world.submit("echo"), world.submit("unheard.of")]
    before = [world.item(task_id) for task_id in others]
    mine = world.submit("note")
    agent = agent_of(world)
    stop_at(world, agent, 70)
    agent.run()
    assert world.status(mine) == "SUCCESS"
    assert [world.item(task_id) for task_id in others] == before


def test_the_poller_leaves_the_types_of_agents_alone(world: World) -> None:
    with_profile_of(world, "note", "agents")
    agents = Executor("agents", "", kind="agent", timeout_seconds=86_430)
    world.settings = replace(world.settings, executors={**world.settings.executors, "agents": agents})
    world.poller = world.process("poller")
    long, short = world.submit("note"), world.submit("echo")
    before = world.item(long)
    for _ in range(3):
        world.sweep()
        world.advance(30)
    assert world.status(short) == "RUNNING"
    assert world.item(long) == before
    assert [event["taskIds"] for event in world.events] == [[short]]


def test_a_type_that_nobody_has_is_still_put_off_by_the_poller(world: World) -> None:
    task_id = world.submit("unheard.of")
    world.sweep()
    assert world.item(task_id)["deferredFor"] == "no_handler"


def test_it_looks_only_into_the_queues_it_was_given(world: World) -> None:
    world.api.queues.put("long", {"paused": None})
    other, mine = world.submit("note"), world.submit("note", queue="long")
    agent = agent_of(world, plan=Plan("a", queues=("long",)))
    stop_at(world, agent, 10)
    agent.run()
    assert (world.status(mine), world.status(other)) == ("SUCCESS", "PENDING")


# ---- caps -----------------------------------------------------------------------------------------------------------


def test_no_batch_is_larger_than_its_threads(world: World) -> None:
    for _ in range(7):
        world.submit("note")
    default = replace(world.settings.executors["default"], threads=3)
    agent = agent_of(world, executors={"default": default}, poll_batch_size=10)
    stop_at(world, agent, 10)
    assert agent.run().batches == 3


def test_its_leases_count_against_the_cap_of_the_profile(world: World) -> None:
    """Two batches are in flight elsewhere, and the profile has room for two."""
    default = replace(world.settings.executors["default"], max_in_flight=2)
    world.settings = replace(world.settings, executors={"default": default}, poll_batch_size=1)
    world.poller = world.process("poller")
    for _ in range(3):
        world.submit("note")
    world.sweep()
    assert len(world.events) == 2
    agent = agent_of(world)
    stop_at(world, agent, 10)
    assert agent.run().claimed == 0


def test_it_takes_no_more_batches_than_it_can_run_at_once(world: World) -> None:
    """With four slots and a backlog, no claim is made in vain: nothing is ever released."""
    for _ in range(30):
        world.submit("note")
    default = replace(world.settings.executors["default"], threads=1)
    agent = agent_of(
        world,
        plan=Plan("a", batches=4),
        threads=ScriptedThreads(world.clock, durations=[3]),
        executors={"default": default},
    )
    stop_at(world, agent, 60)
    report = agent.run()
    assert report.claimed == 30
    assert report.ended == {"succeeded": 30}
    assert world.log("task.released") == []
    assert world.log("batch.dispatch_failed") == []


# ---- the end --------------------------------------------------------------------------------------------------------


def test_a_stop_between_claim_and_start_takes_the_batch_back(world: World) -> None:
    task_id = world.submit("note")
    agent = agent_of(world)
    world.db.after(to_status("RUNNING"), agent.stop)
    report = agent.run()
    item = world.item(task_id)
    assert (item["status"], item["retryCount"], item.get("lost", 0)) == ("PENDING", 0, 0)
    assert world.leases() == []
    assert (report.claimed, report.batches) == (0, 0)


def test_a_stop_before_the_start_claims_nothing(world: World) -> None:
    task_id = world.submit("note")
    agent = agent_of(world)
    agent.stop()
    assert agent.run().claimed == 0
    assert world.status(task_id) == "PENDING"


def test_a_real_agent_lets_what_runs_end_and_claims_no_more() -> None:
    running, may_end = threading.Semaphore(0), threading.Event()

    @task("slow")
    def slow(payload: Any, ctx: Context) -> str:
        running.release()
        may_end.wait(20)
        return "done"

    world = real_world(slow)
    ids = [world.submit("slow") for _ in range(8)]
    agent = real_agent(world, "a", plan=Plan("a", batches=1, grace_seconds=20), threads=4)
    with Running(agent):
        for _ in range(4):
            assert running.acquire(timeout=20)
        agent.stop()
        may_end.set()
    assert agent.report().ended == {"succeeded": 4}
    assert sorted(world.status(task_id) for task_id in ids) == ["PENDING"] * 4 + ["SUCCESS"] * 4
    assert {world.item(task_id)["retryCount"] for task_id in ids} == {0}
    assert world.leases() == []


def test_a_real_agent_releases_uncharged_what_does_not_end_in_its_grace() -> None:
    began = threading.Event()

    @task("endless")
    def endless(payload: Any, ctx: Context) -> None:
        began.set()
        while True:
            pass

    world = real_world(endless)
    task_id = world.submit("endless")
    agent = real_agent(world, "a", plan=Plan("a", batches=1, grace_seconds=0.1))
    with Running(agent):
        assert began.wait(20)
    item = world.item(task_id)
    assert (item["status"], item["retryCount"], item.get("lost", 0)) == ("PENDING", 0, 0)
    assert agent.report().ended == {"released": 1}
    assert not agent.report().stuck
    assert world.leases() == []


def test_a_thread_that_cannot_be_ended_ends_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs on beside the retry of its own task; only the end of its process ends it."""
    monkeypatch.setattr("thunderagent.runner.INTERRUPT_SECONDS", 0.1)
    release = threading.Event()

    @task("foreign")
    def foreign(payload: Any, ctx: Context) -> None:
        release.wait()  # no bytecode runs while it waits

    world = real_world(foreign)
    task_id = world.submit("foreign", timeout_seconds=1)
    world.db.put({**world.item(task_id), "timeoutSeconds": 0.2})
    agent = real_agent(world, "a", plan=Plan("a", batches=1, grace_seconds=1))
    with Running(agent) as running:
        running.wait_until(lambda: agent.report().stuck)
    release.set()
    assert world.item(task_id)["error"]["reason"] == "timeout"


# ---- a store that fails ---------------------------------------------------------------------------------------------


def test_a_store_that_fails_for_a_while_ends_nothing(world: World) -> None:
    task_id = world.submit("note")
    world.db.inject(Fault.THROTTLED, where=lambda call: call.operation == "Query", times=40)
    agent = agent_of(world)
    stop_at(world, agent, 60)
    agent.run()
    assert world.status(task_id) == "SUCCESS"


def test_a_table_that_refuses_to_be_read_is_asked_seldom(world: World) -> None:
    world.db.inject(Fault.REFUSED, where=lambda call: call.operation == "Query", times=None)
    agent = agent_of(world)
    stop_at(world, agent, 130)
    agent.run()
    assert 3 <= len(world.log("sweep.failed")) <= 6


# ---- the cases, with an agent ---------------------------------------------------------------------------------------


def test_ta18_an_agent_renews_the_lease_of_hours_of_work_and_one_failed_renewal_is_harmless() -> None:
    """Two hours under a lease of 60 s, every third renewal unanswered."""
    beats = 0

    @task("long")
    def long(payload: Any, ctx: Context) -> str:
        nonlocal beats
        for _ in range(2 * 60 * 4):
            world.advance(15)
            ctx.heartbeat()
            beats += 1
            world.reap()
        return "done"

    world = World(long)
    task_id = world.submit("long", timeout_seconds=870)
    world.db.put({**world.item(task_id), "timeoutSeconds": 80_000})
    for third in range(200):
        world.db.inject(Fault.LOST_REQUEST, where=on_lease("UpdateItem", setting="lockTime"), skip=2 + 2 * third)
    agent = agent_of(world, plan=Plan("a", batches=1))
    stop_at(world, agent, 7_400)
    report = agent.run()
    assert beats == 480
    assert (world.status(task_id), world.item(task_id)["fence"]) == ("SUCCESS", 1)
    assert report.ended == {"succeeded": 1}
    assert world.log("lease.closed") == []
    renewals = [call.outcome for call in world.db.calls if on_lease("UpdateItem", setting="lockTime")(call)]
    assert renewals.count("OutcomeUnknown") > 30


def test_ta18_an_agent_that_lost_its_lease_stops_and_writes_nothing() -> None:
    @task("long")
    def long(payload: Any, ctx: Context) -> str:
        world.lapse()
        world.reap()
        ctx.heartbeat()
        return "must not count"

    world = World(long)
    task_id = world.submit("long", max_retry_number=0)
    agent = agent_of(world)
    stop_at(world, agent, 100)
    agent.run()
    assert world.item(task_id)["error"]["reason"] == "worker_lost"
    assert "result" not in world.item(task_id)


def test_ta20_a_task_may_take_a_day_but_not_more() -> None:
    seconds: list[float] = []

    @task("long")
    def long(payload: Any, ctx: Context) -> None:
        seconds.append(ctx.remaining_seconds)

    world = World(long)
    for timeout in (80_000, 200_000):
        task_id = world.submit("long")
        world.db.put({**world.item(task_id), "timeoutSeconds": timeout})
    executor = Executor("default", "", kind="agent", timeout_seconds=200_100, threads=2)
    agent = agent_of(world, executors={"default": executor})
    stop_at(world, agent, 10)
    agent.run()
    assert sorted(seconds) == [80_000, 86_400]


def test_ta27_two_agents_a_poller_and_two_reapers_start_each_of_a_hundred_once() -> None:
    starts: list[str] = []

    @task("note")
    def counted(payload: Any, ctx: Context) -> None:
        starts.append(ctx.task_id)

    world = World(counted)
    ids = [world.submit("note") for _ in range(100)]
    first, second = agent_of(world, "a", poll_batch_size=5), agent_of(world, "b", poll_batch_size=5)
    other = world.process("reaper")

    def meanwhile() -> None:
        if len(starts) < 60:
            world.sweep()
        world.reap()
        world.reap(other)

    world.db.before(on_lease("UpdateItem", setting="begun"), meanwhile, times=8)
    stop_at(world, first, 30)
    first.run()
    world.deliver_all()
    stop_at(world, second, 90)
    second.run()
    assert sorted(starts) == sorted(ids)
    assert {world.status(task_id) for task_id in ids} == {"SUCCESS"}


def test_ta28_a_killed_agents_task_has_one_child_however_often_it_is_tried() -> None:
    """The handler submits its child, and then its process is gone: three times of four."""
    tries = 0

    @task("parent")
    def parent(payload: Any, ctx: Context) -> None:
        nonlocal tries
        tries += 1
        ctx.submit("note", {"from": ctx.task_id})

    world = World(parent, note)
    task_id = world.submit("parent", max_retry_number=3)
    for _ in range(3):
        world.db.before(lambda call: to_status("SUCCESS")(call) and task_id in call.item_ids, die)
        with pytest.raises(Died):
            agent_of(world).run()
        world.lapse()
        world.reap()
        world.advance(300)
    agent = agent_of(world)
    stop_at(world, agent, world.clock.now() - START + 20)
    agent.run()
    children = [item for item in world.db.items().values() if item.get("type") == "note"]
    assert (tries, len(children)) == (4, 1)
    assert {world.status(task_id), children[0]["status"]} == {"SUCCESS"}


def test_r5_a_chain_of_twenty_tasks_that_submit_their_successor_is_not_cut() -> None:
    @task("chain")
    def chain(payload: int, ctx: Context) -> int:
        if payload < 20:
            ctx.submit("chain", payload + 1)
        return payload

    world = World(chain)
    world.submit("chain", payload="1")
    agent = agent_of(world)
    stop_at(world, agent, 120)
    report = agent.run()
    assert report.ended == {"succeeded": 20}
    assert sorted(int(item["result"]) for item in world.db.items().values() if item.get("type") == "chain") == [
        *range(1, 21)
    ]
