"""What operators come for, with real tasks: submit and watch, find out why, redrive, pause, redrive all that match."""

from __future__ import annotations

import re
import time
from typing import Any

from playwright.sync_api import Page, expect

from tests.console.browser.conftest import Shown
from thunderagent.client import NewTask
from thunderagent.queues import CACHE_SECONDS

FINISHING_MS = 40_000
SWEEPING_MS = 100_000  # what rings no doorbell waits for the sweep: the first comes a minute after the stack is up


def ask(page: Page, button: str) -> Any:
    """Presses a button that asks first, once the page's scripts are there; the dialog."""
    page.wait_for_load_state()
    page.get_by_role("link", name=button).or_(page.get_by_role("button", name=button)).first.click()
    dialog = page.locator("#dialog")
    expect(dialog).to_be_visible()
    return dialog


def test_submit_a_task_and_watch_it_finish(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="Submit a task").click()
    page.get_by_label("Type").fill("demo.sleep")
    page.get_by_label("Payload").fill('{"seconds": 2}')
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("The task is submitted.")).to_be_visible()
    expect(page).not_to_have_url(re.compile("notice="))
    page.evaluate("window.sameDocument = true")
    expect(page.locator("#state")).to_contain_text("SUCCESS", timeout=FINISHING_MS)
    expect(page.get_by_label("The result")).to_contain_text('"seconds"')
    assert page.evaluate("window.sameDocument")
    expect(page.locator("#announcer")).to_have_text("Task is SUCCESS")


def test_open_a_failed_task_read_why_and_redrive_it(page: Page, shown: Shown) -> None:
    id = shown.client.submit("demo.permanent", {"order": 17}).task_id
    shown.client.wait(id, timeout_seconds=40)
    page.goto("/tasks?status=FAILED")
    page.get_by_role("link", name=id).click()
    expect(page.locator(".error-box")).to_contain_text("Fail")
    expect(page.get_by_label("The error's message")).to_have_text("this task fails for good")
    expect(page.get_by_label("Table of attempts")).to_contain_text("failed")
    expect(page.locator("#logs")).to_contain_text("task.failed", timeout=FINISHING_MS)
    dialog = ask(page, "Redrive…")
    dialog.get_by_label("Why?").fill("the order was mended")
    dialog.get_by_role("button", name="Redrive it").click()
    expect(page.get_by_text(f"Task {id} is redriven.")).to_be_visible()
    expect(page.get_by_text("the order was mended")).to_be_visible()
    again = shown.client.wait(id, timeout_seconds=40)
    assert again.fields["operator"]["reason"] == "the order was mended"
    assert again.fields["fence"] > 1


def test_pause_a_queue_see_why_nothing_runs_and_resume_it(page: Page, shown: Shown) -> None:
    shown.client.set_queue("slow", {})
    page.goto("/queues")
    row = page.get_by_role("row", name=re.compile("^slow"))
    row.get_by_role("link", name="Pause…").click()
    page.locator("#dialog").get_by_label("Why?").fill("the disk is full")
    page.locator("#dialog").get_by_role("button", name="Pause it").click()
    expect(row).to_contain_text("paused")
    time.sleep(CACHE_SECONDS + 1)  # as long as pollers may go by what they read before
    id = shown.client.submit("demo.echo", "waits", queue="slow").task_id
    page.goto(f"/task/{id}")
    expect(page.locator(".why")).to_contain_text("queue slow is paused")
    page.get_by_role("link", name="slow").click()
    ask(page, "Resume…").get_by_role("button", name="Resume it").click()
    expect(page.get_by_text("Queue slow is resumed.")).to_be_visible()
    page.goto(f"/task/{id}")
    expect(page.locator("#state")).to_contain_text("SUCCESS", timeout=SWEEPING_MS)


def test_cancel_chosen_tasks(page: Page, shown: Shown) -> None:
    shown.client.set_queue("chosen", {})
    tasks = [NewTask("demo.echo", n, {"delay_seconds": 3600, "queue": "chosen"}) for n in range(3)]
    ids = [task.task_id for task in shown.client.submit_many(tasks).accepted]
    page.goto("/tasks?status=PENDING&queue=chosen")
    expect(page.get_by_role("button", name="Cancel chosen…")).to_be_disabled()
    page.get_by_label("Choose all on this page").check()
    expect(page.get_by_text("3 chosen")).to_be_visible()
    page.get_by_label(f"Choose task {ids[0]}").uncheck()
    dialog = ask(page, "Cancel chosen…")
    dialog.get_by_role("button", name="Cancel 2").click()
    expect(page.get_by_text("2 of 2 tasks are cancelled.")).to_be_visible()
    assert sorted(shown.client.get(id).status for id in ids) == ["DONE", "DONE", "PENDING"]


def test_redrive_two_hundred_dead_letters_that_match(page: Page, shown: Shown) -> None:
    shown.client.set_queue("mass", {})
    tasks = [NewTask("demo.permanent", n, {"queue": "mass"}) for n in range(200)]
    ids = {task.task_id for task in shown.client.submit_many(tasks).accepted}
    until = time.monotonic() + 60
    while len({task.task_id for task in shown.client.list("FAILED", queue="mass")}) < 200:
        assert time.monotonic() < until
        time.sleep(0.5)
    shown.client.set_queue("mass", {"paused": True})  # so that they stay where the redrive puts them
    time.sleep(CACHE_SECONDS + 1)  # as long as pollers may go by what they read before
    page.goto("/dead-letters?queue=mass")
    expect(page.get_by_role("heading", name="Fail 100")).to_be_visible()
    page.get_by_role("link", name="Look at more").click()
    expect(page.get_by_role("heading", name="Fail 200")).to_be_visible()
    dialog = ask(page, "Redrive all of these…")
    expect(dialog).to_contain_text("200 dead letters")
    dialog.get_by_role("button", name="Redrive 200").click()
    expect(page).to_have_url(re.compile("/dead-letters"))  # the reason is needed
    dialog.get_by_label("Why?").fill("the supplier is back")
    dialog.get_by_role("button", name="Redrive 200").click()
    expect(page.locator("#job-state")).to_have_text("Finished: 200 redriven.", timeout=FINISHING_MS)
    found = list(shown.client.list("PENDING", queue="mass"))
    assert {task.task_id for task in found} == ids
    assert {task.fields["operator"]["reason"] for task in found} == {"the supplier is back"}


def test_the_deployed_dashboard_is_drawn(page: Page) -> None:
    page.goto("/dashboards?hours=1")
    expect(page.get_by_text("Heartbeats")).to_be_visible(timeout=FINISHING_MS)
    expect(page.locator(".widget").nth(8)).to_be_visible()
    expect(page.locator(".plot canvas").first).to_be_visible(timeout=FINISHING_MS)
    page.goto("/alarms")
    expect(page.get_by_role("row", name=re.compile("PollerStopped"))).to_be_visible()
