"""The registry is built from directories as the executor will see them, and leaves no trace."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from thunderagent.errors import ConfigurationError
from thunderagent.registry import Registry
from thunderagent.registry_build import ProfileSource, build_registry, write_registry

ROOT = Path(__file__).parents[2]
HEAD = "from thunderagent import task, Backoff\n"


def module(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + textwrap.dedent(text))


@pytest.fixture
def handlers(tmp_path: Path) -> Path:
    directory = tmp_path / "mine"
    module(directory / "__init__.py", "")
    module(
        directory / "mail.py",
        """
        from .shared import limit

        @task("mail.send", timeout=60, max_retries=0, backoff=Backoff(base=2, cap=60), priority="high", lease=120)
        def send(payload, ctx): ...

        @task("mail.sort")
        def sort(payload, ctx): ...
        """,
    )
    module(directory / "shared.py", "limit = 5\n")
    module(directory / "deep" / "more.py", '@task("deep.more")\ndef more(payload, ctx): ...\n')
    module(directory / "test_mail.py", "raise AssertionError('tests are not handlers')\n")
    module(directory / "tests" / "helpers.py", "raise AssertionError('tests are not handlers')\n")
    return directory


def test_it_says_what_was_declared_and_null_for_what_was_not(handlers: Path) -> None:
    assert build_registry({"default": [handlers]}) == {
        "formatVersion": 1,
        "profiles": {"default": {"modules": ["mine.deep.more", "mine.mail"], "timeoutSeconds": 900}},
        "queues": {"default": {}},
        "types": {
            "deep.more": _entry(),
            "mail.send": _entry(
                priority="high",
                timeoutSeconds=60,
                maxRetryNumber=0,
                leaseSeconds=120,
                backoff={"base": 2, "factor": 2, "cap": 60},
            ),
            "mail.sort": _entry(),
        },
    }


def test_limits_of_queues_are_deployed_with_them(handlers: Path) -> None:
    limits = {"default": {"maxConcurrency": 5}}
    document = build_registry({"default": [handlers]}, queue_limits=limits)
    assert document["queues"] == limits
    assert Registry.from_dict(document).queue_limits == limits


def _entry(**more: Any) -> dict[str, Any]:
    entry = {
        "profile": "default",
        "queue": "default",
        "priority": "normal",
        "timeoutSeconds": None,
        "maxRetryNumber": None,
        "leaseSeconds": None,
        "backoff": {"base": 1, "factor": 2, "cap": 300},
    }
    return {**entry, **more}


def test_equal_sources_give_equal_bytes_and_leave_no_trace(handlers: Path, tmp_path: Path) -> None:
    path, modules = list(sys.path), set(sys.modules)
    texts = [
        write_registry(build_registry({"default": [handlers]}), tmp_path / name).read_bytes() for name in ("a", "b")
    ]
    assert texts[0] == texts[1]
    assert sys.path == path
    assert {name for name in set(sys.modules) - modules if name.startswith("mine")} == set()
    assert list(handlers.rglob("__pycache__")) == []
    assert Registry.from_dict(json.loads(texts[0])).profile_of("mail.send") == "default"


def test_modules_of_the_same_name_are_put_back(handlers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", json)
    build_registry({"default": [handlers]})
    assert sys.modules["mine"] is json


def test_profiles_name_their_queues_and_the_first_is_the_default(handlers: Path, tmp_path: Path) -> None:
    module(tmp_path / "heavy" / "film.py", '@task("film.cut", queue="slow")\ndef cut(payload, ctx): ...\n')
    module(tmp_path / "heavy" / "more.py", '@task("film.show")\ndef show(payload, ctx): ...\n')
    document = build_registry(
        {
            "default": ProfileSource([handlers]),
            "heavy": ProfileSource([tmp_path / "heavy"], queues=["films", "slow"], timeout_seconds=300),
        }
    )
    assert document["types"]["film.cut"]["queue"] == "slow"
    assert document["types"]["film.show"]["queue"] == "films"
    assert list(document["queues"]) == ["default", "films", "slow"]
    assert document["profiles"]["heavy"] == {"modules": ["heavy.film", "heavy.more"], "timeoutSeconds": 300}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('@task("mail.send")\ndef other(payload, ctx): ...\n', r"'mail\.send' is declared twice: .*extra:other and"),
        ('@task("x", queue="nowhere")\ndef f(payload, ctx): ...\n', r"mine\.extra:f: queue='nowhere', but .* serves"),
        ('@task("x", timeout=871)\ndef f(payload, ctx): ...\n', r"mine\.extra:f: timeout=871 s, but .* at most 870 s"),
        ('@task("x")\ndef f(payload): ...\n', r"mine\.extra:f\(payload\): a handler is called with two arguments"),
        ('@task("X")\ndef f(payload, ctx): ...\n', r"mine\.extra:f: @task name='X'"),
        ('@task("x")\ndef f(payload: "Gone", ctx): ...\n', r"mine\.extra:f: the annotation 'Gone' of payload"),
        ("import no_such_package\n", r"module mine\.extra cannot be imported: ModuleNotFoundError.*no_such_package"),
        ("1 / 0\n", r"module mine\.extra cannot be imported: ZeroDivisionError"),
        ("def f(:\n", r"module mine\.extra cannot be imported: SyntaxError"),
    ],
)
def test_mistakes_show_when_it_is_built(handlers: Path, text: str, complaint: str) -> None:
    path, modules = list(sys.path), {name for name in sys.modules if name.startswith("mine")}
    module(handlers / "extra.py", text)
    with pytest.raises(ConfigurationError, match=complaint):
        build_registry({"default": [handlers]})
    assert sys.path == path
    assert {name for name in sys.modules if name.startswith("mine")} == modules


def test_a_type_belongs_to_one_profile(handlers: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"declared in two executor profiles: .*\(default\) and .*\(other\)"):
        build_registry({"default": [handlers], "other": [handlers]})


def test_directories_that_are_not_there_or_share_a_name_are_named(handlers: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere: there is no such handlers directory"):
        build_registry({"default": [tmp_path / "nowhere"]})
    module(tmp_path / "else" / "mine" / "a.py", "")
    with pytest.raises(ConfigurationError, match="must differ in name: mine, mine"):
        build_registry({"default": [handlers, tmp_path / "else" / "mine"]})
    (tmp_path / "not-a-name").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be the name of a package"):
        build_registry({"default": [tmp_path / "not-a-name"]})


def test_the_projects_own_handlers_build() -> None:
    directories = [ROOT / each for each in ("functions/executor/tasks", "examples/demo", "examples/reports")]
    types = build_registry({"default": directories})["types"]
    assert {"hello.greet", "demo.echo", "demo.count", "demo.steps", "report.generate"} <= set(types)
    assert types["report.generate"]["maxRetryNumber"] == 5
