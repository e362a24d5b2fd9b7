"""Entry point of the CDK CLI: reads the environment's configuration and builds its stacks."""

from infra.assets import AssetError
from infra.config import ConfigError, load_config, read_context
from infra.node import prefer_bundled_node


def main() -> None:
    prefer_bundled_node()
    from aws_cdk import App  # starts Node, so only after the line above

    from infra.application import build, check

    app = App(context=read_context())  # what the CLI passes wins over the file
    try:
        build(app, load_config(app.node.get_all_context()))
    except (ConfigError, AssetError) as error:
        raise SystemExit(f"thunder: {error}") from error
    check(app)
    app.synth()


main()
