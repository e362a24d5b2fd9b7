"""The pages as a browser has them: live and still, by keyboard, for assistive technology, narrow, and unharmed."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, expect

from tests.console.browser.conftest import Shown

PAGES = [
    "/",
    "/tasks?status=PENDING",
    "/tasks?status=DONE&type=none.such",
    "/dead-letters",
    "/queues",
    "/queue/default",
    "/schedules",
    "/schedule",
    "/alarms",
    "/dashboards?hours=1",
    "/submit",
    "/all/redrive?type=none.such",
]


@pytest.fixture(scope="module")
def task(shown: Shown) -> str:
    """A failed task whose every text is hostile."""
    probe = '<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>'
    payload = {"kind": "html", probe: probe, "bytes": 10}
    id = shown.client.submit("demo.raise", payload, max_retry_number=0, tags={"t": probe[:100]}).task_id
    shown.client.wait(id, timeout_seconds=40)
    return id


def visit(page: Page, path: str) -> None:
    """Until all that the page fetches is there."""
    page.goto(path)
    expect(page.locator(".loading, .htmx-request")).to_have_count(0, timeout=20_000)


def violations(page: Page, *rules: str) -> list[str]:
    """What axe finds, by all of its rules or by some."""
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = Axe().run(page, options=options).response["violations"]
    return [f"{each['id']}: {node['html'][:160]}" for each in found for node in each["nodes"]]


def test_nothing_that_keeps_people_out(page: Page, task: str) -> None:
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    for path in [*PAGES, f"/task/{task}", f"/act/redrive?id={task}"]:
        visit(page, path)
        assert violations(page) == [], path


def test_the_dark_colours_can_be_read(page: Page, task: str) -> None:
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    for path in ["/", "/tasks?status=FAILED", "/dead-letters", "/queue/default", "/alarms", "/submit", f"/task/{task}"]:
        visit(page, path)
        assert violations(page, "color-contrast") == [], path


def test_a_dialog_keeps_nobody_out_and_gives_the_focus_back(page: Page, task: str) -> None:
    visit(page, f"/task/{task}")
    button = page.get_by_role("link", name="Redrive…")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.locator("#dialog")
    expect(dialog).to_be_visible()
    assert violations(page) == []
    assert page.evaluate("document.activeElement.closest('#dialog') !== null")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(button).to_be_focused()


def test_by_keyboard(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("/")
    expect(page.get_by_label("Find a task by its id")).to_be_focused()
    page.keyboard.type("no-such-task")
    page.keyboard.press("Enter")
    expect(page.get_by_text("There is no task no-such-task.")).to_be_visible()


def test_it_fits_a_narrow_screen(page: Page, task: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for path in [*PAGES, f"/task/{task}"]:
        visit(page, path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


def test_what_tasks_say_does_nothing(page: Page, task: str) -> None:
    for path in (f"/task/{task}", "/tasks?status=FAILED", "/dead-letters", f"/submit?like={task}"):
        visit(page, path)
        assert page.evaluate("window.harmed") is None
        assert page.locator("main img").count() == 0


class TestLive:
    def requests(self, page: Page) -> list[str]:
        seen: list[str] = []
        page.on("request", lambda request: seen.append(request.url) if "/part/" in request.url else None)
        return seen

    def test_only_while_it_is_looked_at(self, page: Page) -> None:
        page.clock.install()
        page.goto("/queues")
        seen = self.requests(page)
        with page.expect_response("**/part/queues"):
            page.clock.run_for(5_100)
        page.evaluate("Object.defineProperty(document, 'hidden', { configurable: true, get: () => true })")
        seen.clear()
        page.clock.run_for(30_000)
        assert seen == []
        page.evaluate("Object.defineProperty(document, 'hidden', { get: () => false })")
        with page.expect_response("**/part/queues"):
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def test_not_when_it_is_switched_off_and_it_stays_so(self, page: Page) -> None:
        page.clock.install()
        page.goto("/queues")
        page.get_by_role("button", name="Live").click()
        page.goto("/queues")
        seen = self.requests(page)
        page.clock.run_for(30_000)
        assert seen == []
        expect(page.get_by_role("button", name="Live: off")).to_have_attribute("aria-pressed", "false")

    def test_what_is_chosen_stays_chosen(self, page: Page, shown: Shown) -> None:
        shown.client.set_queue("kept", {})
        id = shown.client.submit("demo.echo", 1, delay_seconds=3600, queue="kept").task_id
        page.clock.install()
        page.goto("/tasks?status=PENDING&queue=kept")
        page.get_by_label(f"Choose task {id}").check()
        with page.expect_response("**/part/tasks*"):
            page.clock.run_for(5_100)
        expect(page.get_by_label(f"Choose task {id}")).to_be_checked()
        expect(page.get_by_text("1 chosen")).to_be_visible()


def test_a_console_that_has_ended_says_so(context: BrowserContext) -> None:
    page = context.new_page()  # the browser complains of a refused connection, and shall
    page.clock.install()
    page.goto("/queues")
    page.route("**/part/**", lambda route: route.abort())
    page.clock.run_for(5_100)
    expect(page.get_by_text("The console does not answer")).to_be_visible()


def test_colours_are_chosen_and_kept(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/queues")
    light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    button = page.locator("#theme")
    for name in ("light", "dark"):
        button.click()
        expect(button).to_have_accessible_name(f"Colours: {name}")
    page.reload()
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != light


def test_a_stranger_sees_nothing(context: BrowserContext, shown: Shown) -> None:
    context.clear_cookies()
    page = context.new_page()
    page.goto(shown.base + "/tasks")
    expect(page.get_by_role("heading")).to_have_text("Not signed in")
    assert "000000000000" not in page.content()
