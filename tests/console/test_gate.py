"""Who gets in: hosts, tokens, origins and keys; and what no answer may lack."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.console import ORIGIN, PORT, Site, make_site
from thunder.console.app import PAGES
from thunder.console.forms import FORM_BYTES
from thunder.console.gate import COOKIE, POLICY
from thunder.console.keys import OPENING_SECONDS, Keys

POSTS = sorted({path for path, methods, _ in PAGES if "POST" in methods})


def strange(site: Site) -> Any:
    """A browser that has not signed in."""
    site.browser.cookies.clear()
    return site.browser


class TestHost:
    @pytest.mark.parametrize("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}"])
    def test_ours(self, site: Site, host: str) -> None:
        assert site.browser.get("/", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            f"evil.example:{PORT}",
            "127.0.0.1",
            f"127.0.0.1:{PORT + 1}",
            f"127.0.0.1.evil.example:{PORT}",
            "",
        ],
    )
    def test_a_name_that_was_rebound_to_us(self, site: Site, host: str) -> None:
        answer = site.browser.get("/", headers={"host": host})
        assert answer.status_code == 421
        assert "environment" not in answer.text.lower()

    def test_static_files_too(self, site: Site) -> None:
        assert site.browser.get("/static/console.css", headers={"host": "evil.example"}).status_code == 421


class TestSession:
    @pytest.mark.parametrize("path", [path.format(id="x", name="x", action="x", order="x") for path, _, _ in PAGES])
    def test_no_page_without_it(self, site: Site, path: str) -> None:
        answer = strange(site).get(path)
        assert answer.status_code == 401
        assert site.exchange.asked == []

    def test_not_even_whether_there_is_such_a_page(self, site: Site) -> None:
        assert strange(site).get("/nothing/here").status_code == 401

    def test_a_wrong_cookie(self, site: Site) -> None:
        browser = strange(site)
        browser.cookies.set(COOKIE.format(PORT), "guessed")
        assert browser.get("/").status_code == 401

    @pytest.mark.parametrize(
        "others",
        [
            "=; {ours}",
            "{ours}; =",
            'prefs={{"a":1,"b":"x y"}}; {ours}',
            "a b=1; {ours}",
            "\x80=1; {ours}",
            "; ;{ours};",
            "session; {ours}",
            "{name}=stale; {ours}",
            "{ours}; {name}=stale",
        ],
    )
    def test_what_other_programs_keep_for_this_host_locks_nobody_out(self, site: Site, others: str) -> None:
        name = COOKIE.format(PORT)
        header = others.format(ours=f"{name}={site.keys.session}", name=name)
        assert strange(site).get("/", headers={"cookie": header.encode("latin-1")}).status_code == 200

    @pytest.mark.parametrize(
        "header", ["", "=", "{name}", "{name}=", "{name}=\x80", "x{ours}", "{name}2={value}", "{value}"]
    )
    def test_nothing_like_it_is_taken_for_it(self, site: Site, header: str) -> None:
        name, value = COOKIE.format(PORT), site.keys.session
        header = header.format(name=name, value=value, ours=f"{name}={value}")
        assert strange(site).get("/", headers={"cookie": header.encode("latin-1")}).status_code == 401

    def test_a_console_on_another_port_has_a_cookie_of_its_own(self, site: Site, api: Api) -> None:
        other = make_site(api, port=PORT + 1)
        both = {"cookie": "; ".join(f"{each.cookie}={each.keys.session}" for each in (site, other))}
        assert [strange(each).get("/", headers=both).status_code for each in (site, other)] == [200, 200]

    def test_the_token_signs_in_and_leaves_the_address(self, site: Site) -> None:
        answer = strange(site).get(f"/tasks?status=FAILED&token={site.keys.token}")
        assert answer.status_code == 200
        assert "0;url=/tasks?status=FAILED" in answer.text
        assert site.keys.token not in answer.text
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert site.browser.get("/tasks").status_code == 200

    def test_the_cookie_is_not_the_token(self, site: Site) -> None:
        assert site.keys.session != site.keys.token

    def test_a_wrong_token(self, site: Site) -> None:
        answer = strange(site).get("/?token=guessed")
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers

    def test_signing_in_leads_nowhere_else(self, site: Site) -> None:
        answer = strange(site).get(f"//evil.example/?token={site.keys.token}")
        assert "url=//" not in answer.text

    def test_static_files_need_none(self, site: Site) -> None:
        assert strange(site).get("/static/console.css").status_code == 200

    def test_static_files_are_ours_alone(self, site: Site) -> None:
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py"):
            assert site.browser.get(path).status_code == 404


class TestOpeningCode:
    def test_once(self) -> None:
        keys = Keys()
        code = keys.opening_code()
        assert [keys.signs_in(code), keys.signs_in(code)] == [True, False]

    def test_for_a_minute(self) -> None:
        time = [0.0]
        keys = Keys(monotonic=lambda: time[0])
        code = keys.opening_code()
        time[0] = OPENING_SECONDS + 1
        assert not keys.signs_in(code)


@pytest.mark.parametrize("path", [path.format(id="x", name="x", action="redrive", order="pause") for path in POSTS])
class TestPosts:
    """Every page that takes a POST, so that none is forgotten."""

    def post(self, site: Site, path: str, *, headers: dict[str, str], csrf: str | None) -> Any:
        data = {"id": "x"} | ({"csrf": csrf} if csrf is not None else {})
        answer = site.browser.post(path, data=data, headers=headers, follow_redirects=False)
        assert site.exchange.asked == []
        return answer

    @pytest.mark.parametrize(
        "origin", ["http://evil.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1:1"]
    )
    def test_of_another_origin(self, site: Site, path: str, origin: str) -> None:
        assert self.post(site, path, headers={"origin": origin}, csrf=site.keys.csrf).status_code == 403

    def test_without_an_origin(self, site: Site, path: str) -> None:
        assert self.post(site, path, headers={}, csrf=site.keys.csrf).status_code == 403

    @pytest.mark.parametrize("csrf", [None, "", "guessed"])
    def test_without_the_key_of_our_forms(self, site: Site, path: str, csrf: str | None) -> None:
        assert self.post(site, path, headers={"origin": ORIGIN}, csrf=csrf).status_code == 403

    def test_in_a_console_that_only_shows(self, read_only_site: Site, path: str) -> None:
        site = read_only_site
        answer = self.post(site, path, headers={"origin": ORIGIN}, csrf=site.keys.csrf)
        assert (answer.status_code, "Read only" in answer.text) == (403, True)


class TestForms:
    def test_the_key_may_stand_in_a_header(self, site: Site) -> None:
        headers = {"origin": ORIGIN, "x-csrf-token": site.keys.csrf}
        assert site.browser.post("/submit", data={"type": ""}, headers=headers).status_code == 422

    def test_a_browser_that_sends_no_origin_but_says_where_it_is(self, site: Site) -> None:
        headers = {"sec-fetch-site": "same-origin"}
        assert site.browser.post("/submit", data={"csrf": site.keys.csrf}, headers=headers).status_code == 422

    @pytest.mark.parametrize("origins", [(ORIGIN, "http://evil.example"), ("http://evil.example", ORIGIN)])
    def test_two_origins_are_none(self, site: Site, origins: tuple[str, str]) -> None:
        headers = [("origin", origin) for origin in origins]
        assert site.browser.post("/submit", data={"csrf": site.keys.csrf}, headers=headers).status_code == 403

    def test_one_that_is_too_large(self, site: Site) -> None:
        body = b"a=" + b"x" * FORM_BYTES
        assert site.browser.post("/submit", content=body, headers={"origin": ORIGIN}).status_code == 413

    @pytest.mark.parametrize("body", [b"\xff\xfe", b"&".join(b"a%d=1" % n for n in range(700)), b"a=%ff"])
    def test_one_that_cannot_be_read(self, site: Site, body: bytes) -> None:
        assert site.browser.post("/submit", content=body, headers={"origin": ORIGIN}).status_code == 400

    @pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
    def test_other_methods(self, site: Site, method: str) -> None:
        assert site.browser.request(method, "/queues", headers={"origin": ORIGIN}).status_code == 405


class TestHeaders:
    @pytest.mark.parametrize("path", ["/", "/nothing", "/static/console.js", "/part/tasks", "/task/missing"])
    def test_on_every_answer(self, site: Site, path: str) -> None:
        headers = site.browser.get(path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers

    def test_on_refusals(self, site: Site) -> None:
        assert strange(site).get("/").headers["content-security-policy"] == POLICY

    def test_the_policy_allows_nothing_inline(self) -> None:
        assert "default-src 'none'" in POLICY
        assert "unsafe" not in POLICY

    @pytest.mark.parametrize(
        "path",
        ["/", "/tasks", "/queues", "/queue/default", "/dead-letters", "/schedule", "/submit", "/alarms", "/nothing"],
    )
    def test_pages_hold_nothing_that_the_policy_would_stop(self, site: Site, path: str) -> None:
        page = site.browser.get(path).text
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|hx-on|hx-vals=.js:", page)
        assert not re.findall(r"<script(?![^>]*\ssrc=)", page)
        assert all(address.startswith("/") for address in re.findall(r'(?:src|href|action)="([^"#?][^"]*)"', page))
