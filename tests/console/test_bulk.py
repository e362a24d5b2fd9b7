"""Acting on all that match: counted first, page after page, watched, stopped, and gone on with."""

from __future__ import annotations

import pytest

from tests.functions.test_api_list import ended
from tests.support.console import Site, hidden, text_of
from tests.support.fakes import START
from thunder.console import jobs
from thunder.console.jobs import Job, Jobs, Preview, preview
from thunderagent.signed_http import ApiError


def fail(site: Site, count: int, **attributes: object) -> None:
    for number in range(count):
        site.api.table.put(ended(f"f{number:03}{len(attributes)}", START + number, **attributes))


def statuses(site: Site) -> list[str]:
    return sorted(row["status"] for row in site.api.table.items().values() if "status" in row)


class TestAsking:
    def test_says_how_many(self, site: Site) -> None:
        fail(site, 12)
        fail(site, 3, error={"type": "KeyError"})
        page = site.get("/all/redrive?errorType=KeyError&queue=default", part=True)
        assert "3 dead letters" in text_of(page)
        assert hidden(page)["errorType"] == ["KeyError"]
        assert hidden(page)["matched"] == ["3"]
        assert set(statuses(site)) == {"FAILED"}

    def test_counting_stops_when_it_takes_too_long(self) -> None:
        answers = iter([{"matched": 1000, "done": 0, "failed": [], "nextToken": "t"}] * 5)
        assert preview(lambda **asked: next(answers), {}, until=lambda: True) == Preview(1000, at_least=True)

    def test_nothing_matches(self, site: Site) -> None:
        page = site.get("/all/redrive?type=none.such")
        assert "Nothing matches" in page
        assert "<button" not in page.partition('class="confirm"')[2].partition("</form>")[0]

    def test_a_stretch_before_now_is_fixed_when_asked(self, site: Site) -> None:
        fail(site, 5)
        assert hidden(site.get("/all/redrive?since=1h"))["since"] == [str(START - 3600)]

    @pytest.mark.parametrize("query", ["queue=A%20B", "type=A%20B", "since=yesterday", "since=-1"])
    def test_what_cannot_be(self, site: Site, query: str) -> None:
        site.get(f"/all/redrive?{query}", status=422)

    def test_an_action_there_is_not(self, site: Site) -> None:
        site.get("/all/delete", status=404)


class TestDoing:
    def begin(self, site: Site, **fields: str) -> str:
        return str(site.post("/all/redrive", {"reason": "fixed", "matched": "250", **fields}).headers["location"])

    def test_every_page_of_it(self, site: Site) -> None:
        fail(site, 250)
        address = self.begin(site)
        assert "Under way." in site.get(address)
        site.run_jobs()
        text = text_of(site.get(address))
        assert "Finished: 250 redriven." in text
        assert "100 %" in text
        assert statuses(site) == ["PENDING"] * 250
        assert (site.api.table.item("f0000") or {})["operator"]["reason"] == "fixed"

    def test_only_what_matches(self, site: Site) -> None:
        fail(site, 4)
        fail(site, 2, error={"type": "KeyError"})
        self.begin(site, errorType="KeyError")
        site.run_jobs()
        assert statuses(site) == ["FAILED"] * 4 + ["PENDING"] * 2

    def test_cancel(self, site: Site) -> None:
        for _ in range(3):
            site.api.submit()
        site.post("/all/cancel", {"reason": "wrong"})
        site.run_jobs()
        assert statuses(site) == ["DONE"] * 3

    def test_a_reason_is_needed(self, site: Site) -> None:
        site.post("/all/redrive", {"reason": " "}, status=422)
        assert site.jobs == []

    def test_every_page_tells_of_it_meanwhile(self, site: Site) -> None:
        fail(site, 2)
        address = self.begin(site)
        assert f'href="{address}"' in site.get("/tasks")
        site.run_jobs()
        assert f'href="{address}"' not in site.get("/tasks")

    def test_one_there_is_not(self, site: Site) -> None:
        site.get("/job/nothing", status=404)
        site.post("/job/nothing/stop", status=404)

    def test_stop_and_go_on(self, site: Site) -> None:
        fail(site, 250)
        address = self.begin(site)
        site.post(f"{address}/stop")
        job = site.console.jobs.find(address.removeprefix("/job/"))
        assert job is not None
        first_run, stop = site.jobs.pop(), job.stop
        job._stop.clear = lambda: None  # type: ignore[method-assign]  # it was stopped before its thread began
        first_run()
        assert (job.state, job.done) == ("stopped", 100)
        assert "Go on" in site.get(address)
        del job._stop.clear
        site.post(f"{address}/go-on")
        site.run_jobs()
        assert (job.state, job.done) == ("finished", 250)
        assert stop is not None

    def test_a_page_that_is_refused(self, site: Site) -> None:
        fail(site, 250)
        address = self.begin(site)
        site.exchange.refusal = 503, b'{"error":{"code":"throttled","message":"later"}}'
        site.run_jobs()
        site.exchange.refusal = None
        text = text_of(site.get(address))
        assert "The API refused a page after 0." in text
        assert "later" in text
        site.post(f"{address}/go-on")
        site.run_jobs()
        assert "Finished: 250 redriven." in site.get(address)


class TestJobs:
    def test_failures_are_named_up_to_a_bound(self) -> None:
        failed = [{"taskId": f"t{n}", "error": {"code": "c", "message": "changed"}} for n in range(150)]
        job = Job(
            "j",
            "redrive",
            lambda **asked: {"matched": 150, "done": 0, "failed": failed},
            {},
            "why",
            Preview(150, False),
        )
        job.run()
        assert (job.refused, len(job.failures)) == (150, jobs.FAILURES_KEPT)

    def test_old_ones_are_forgotten_but_not_those_that_run(self) -> None:
        kept = Jobs(lambda run: None)
        running = kept.begin("redrive", lambda **asked: {}, {}, reason="r", expected=Preview(0, False))
        for _ in range(jobs.JOBS_KEPT + 5):
            kept.begin("redrive", lambda **asked: {}, {}, reason="r", expected=Preview(0, False)).state = "finished"
        assert kept.find(running.id) is running
        assert len(kept._jobs) <= jobs.JOBS_KEPT + 1

    def test_nobody_knows_how_far_when_counting_stopped(self) -> None:
        job = Job("j", "redrive", lambda **asked: {}, {}, "why", Preview(1000, at_least=True))
        assert job.fraction is None

    def test_a_refusal_is_kept(self) -> None:
        def refused(**asked: object) -> dict[str, object]:
            raise ApiError(503, "throttled", "later")

        job = Job("j", "redrive", refused, {}, "why", Preview(1, False))
        job.run()
        assert (job.state, job.is_running) == ("broken", False)
