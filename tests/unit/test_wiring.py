"""How a container's parts come to be."""

from __future__ import annotations

import threading

import pytest

from thunderagent.wiring import Once


def test_what_is_built_at_its_first_use_is_built_once_by_however_many_threads() -> None:
    built: list[object] = []
    first_is_building, others_came = threading.Event(), threading.Event()

    def build() -> object:
        first_is_building.set()
        others_came.wait(10)
        built.append(object())
        return built[-1]

    once = Once(build)
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(once())) for _ in range(8)]
    threads[0].start()
    first_is_building.wait(10)
    for thread in threads[1:]:
        thread.start()
    others_came.set()
    for thread in threads:
        thread.join(10)
    assert len(built) == 1
    assert got == built * 8


def test_a_build_that_failed_is_tried_again() -> None:
    answers = [OSError("no network"), "client"]

    def build() -> str:
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    once = Once(build)
    with pytest.raises(OSError, match="no network"):
        once()
    assert (once(), once()) == ("client", "client")
