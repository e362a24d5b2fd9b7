"""What of the operator's environment reaches a synthesis."""

from __future__ import annotations

from thunder.local.cdk import _pip_settings


def test_pip_finds_what_it_finds_elsewhere_and_nothing_else_comes_along():
    found = {"PIP_FIND_LINKS": "/wheels", "PIP_INDEX_URL": "https://index.example", "https_proxy": "http://proxy:1"}
    others = {"AWS_PROFILE": "prod", "PYTHONPATH": "/x", "HOME": "/root"}

    assert _pip_settings({**found, **others}) == found
