"""`thunder registry`: what the handlers declare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from infra.config import ConfigError, EnvironmentConfig, load_config, project_root, read_context
from thunder.cli.errors import Failed
from thunder.cli.options import Noun, Options
from thunder.cli.output import print_json, print_list
from thunderagent.errors import ConfigurationError
from thunderagent.registry_build import ProfileSource, build_registry, write_registry

BUILT = "build/registry"
COLUMNS = ("type", "profile", "queue", "priority", "timeoutSeconds", "maxRetryNumber")


@click.group(cls=Noun)
def registry() -> None:
    """The declared task types and queues."""


environment_option = click.option(
    "--env", "environment", default="local", show_default=True, help="Whose executors: an environment of cdk.json."
)
root_option = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=project_root,
    help="The project, where cdk.json is (default: this checkout, or the current directory).",
)


@registry.command()
@environment_option
@root_option
def build(environment: str, root: Path) -> None:
    """Import the handlers, check what they declare, and write the registry's layer below build/registry."""
    document = _document(environment, root)
    path = write_registry(document, root / BUILT / environment)
    click.echo(f"{len(document['types'])} task types, {len(document['queues'])} queues: {path}", err=True)


@registry.command()
@environment_option
@root_option
@click.pass_obj
def show(options: Options, environment: str, root: Path) -> None:
    """Print what the handlers declare now; nothing is written. JSON is the whole registry."""
    document = _document(environment, root)
    if options.output == "json":
        print_json(document)
    else:
        rows = [{"type": name, **entry} for name, entry in document["types"].items()]
        print_list(rows, COLUMNS, options.output)


def _document(environment: str, root: Path) -> Mapping[str, Any]:
    try:
        config = load_config(read_context(root), environment)
        return build_registry(_sources(config, root), queue_limits=config.queue_limits)
    except (ConfigError, ConfigurationError) as error:
        raise Failed(str(error)) from error
    except OSError as error:
        raise Failed(f"{root / 'cdk.json'}: {error}") from error


def _sources(config: EnvironmentConfig, root: Path) -> dict[str, ProfileSource]:
    return {
        profile.name: ProfileSource(
            handlers=[root / handlers for handlers in profile.handlers],
            queues=profile.queues,
            timeout_seconds=profile.timeout_seconds,
        )
        for profile in config.executors
    }
