"""Entry point of the CDK CLI for a smoke run; THUNDER_SMOKE_NAME names the instance."""

from __future__ import annotations

import os

from infra.config import ROOT
from infra.node import prefer_bundled_node
from thunder.smoke.configuration import ENVIRONMENT, NAME_VARIABLE, config, context
from thunderagent.registry_build import ProfileSource, build_registry, write_registry


def main() -> None:
    prefer_bundled_node()
    from aws_cdk import App  # starts Node, so only after the line above

    from infra.application import build, check

    name = os.environ[NAME_VARIABLE]
    chosen = config(name)
    sources = {
        profile.name: ProfileSource(
            handlers=[ROOT / handlers for handlers in profile.handlers],
            queues=profile.queues,
            timeout_seconds=profile.timeout_seconds,
        )
        for profile in chosen.executors
    }
    write_registry(build_registry(sources), ROOT / "build" / "registry" / ENVIRONMENT)
    app = App(context=context(name))
    build(app, chosen)
    check(app)
    app.synth()


if __name__ == "__main__":
    main()
