"""An interrupt surfaces in the handler, or not at all: never in a shielded stretch, never after `leave`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from thunderagent.threads import HandlerInterrupted, Interruption, PoolThreads


def in_thread(function: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_it_reaches_running_python_code() -> None:
    interruption, inside, met = Interruption(), threading.Event(), threading.Event()

    def work() -> None:
        try:
            interruption.enter()
            inside.set()
            while True:
                sum(range(10))
        except HandlerInterrupted:
            met.set()

    thread = in_thread(work)
    inside.wait(10)
    interruption.interrupt()
    thread.join(10)
    assert met.is_set()


def test_a_shielded_stretch_ends_whole_and_the_interrupt_is_met_after_it() -> None:
    interruption, inside, sent = Interruption(), threading.Event(), threading.Event()
    order: list[str] = []

    def work() -> None:
        try:
            interruption.enter()
            with interruption.shielded():
                inside.set()
                sent.wait(10)
                for _ in range(1000):
                    sum(range(10))
                order.append("written")
            order.append("never")
        except HandlerInterrupted:
            order.append("interrupted")

    thread = in_thread(work)
    inside.wait(10)
    interruption.interrupt()
    sent.set()
    thread.join(10)
    assert order == ["written", "interrupted"]


def test_one_that_comes_after_the_handler_left_is_not_met_and_leaving_says_so() -> None:
    interruption = Interruption()
    interruption.enter()
    assert interruption.leave() is False
    interruption.interrupt()
    sum(range(1000))


def test_one_that_comes_before_the_handler_enters_is_met_there() -> None:
    interruption = Interruption()
    interruption.interrupt()
    with pytest.raises(HandlerInterrupted):
        interruption.enter()


def test_it_never_surfaces_outside_however_closely_it_is_aimed() -> None:
    """Sent from another thread around the moment of leaving, some hundred times: the code after `leave` stays whole."""
    outside_torn = 0
    met = 0
    for round_ in range(300):
        interruption = Interruption()
        go = threading.Event()

        def aim(interruption: Interruption = interruption, go: threading.Event = go, spins: int = round_ % 50) -> None:
            go.wait(10)
            sum(range(spins * 20))
            interruption.interrupt()

        thread = in_thread(aim)
        left = False
        try:
            interruption.enter()
            go.set()
            try:
                sum(range(200))
            finally:
                interruption.leave()
            left = True
            for _ in range(50):
                sum(range(10))
        except HandlerInterrupted:
            outside_torn += left
            met += 1
        thread.join(10)
    assert outside_torn == 0
    assert met < 300  # some came too late, else nothing was aimed at


def test_a_thread_of_the_handlers_own_shields_nothing_and_is_not_in_the_way() -> None:
    interruption = Interruption()
    interruption.enter()
    done: list[bool] = []

    def helper() -> None:
        with interruption.shielded():
            done.append(True)

    in_thread(helper).join(10)
    assert done == [True]
    with pytest.raises(HandlerInterrupted):  # the thread that entered is as exposed as before
        interruption.interrupt()


def test_wait_returns_when_something_ended_and_not_before() -> None:
    threads, release = PoolThreads(1), threading.Event()

    def work() -> None:
        release.wait(10)

    job = threads.start(work)
    threads.wait(0.01)
    assert not job.done
    release.set()
    started = time.monotonic()
    threads.wait(10)
    assert job.done
    assert time.monotonic() - started < 5


def test_map_keeps_the_order_and_raises_the_first_error() -> None:
    threads = PoolThreads(4)
    assert threads.map(lambda n: n * n, [3, 1, 2]) == [9, 1, 4]
    with pytest.raises(ZeroDivisionError):
        threads.map(lambda n: 1 // n, [1, 0, 2])


@pytest.mark.parametrize("size", [1, 3])
def test_what_is_mapped_may_map_in_its_turn_however_small_the_pool(size: int) -> None:
    threads = PoolThreads(size)

    def sums(number: int) -> int:
        return sum(threads.map(lambda each: sum(threads.map(lambda one: one * number, [each] * 5)), range(4)))

    assert threads.map(sums, range(10)) == [30 * number for number in range(10)]
