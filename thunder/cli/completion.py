"""`thunder completion`: the script that a shell needs to complete `thunder`."""

from __future__ import annotations

import click

from thunder.cli.options import Command

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_THUNDER_COMPLETE"


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  eval "$(thunder completion bash)"         in ~/.bashrc
    zsh:   eval "$(thunder completion zsh)"          in ~/.zshrc, after compinit
    fish:  thunder completion fish > ~/.config/fish/completions/thunder.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows these shells"
    # ShellComplete's own: that of bash would first start a bash to ask for its version.
    click.echo(ShellComplete.source(kind(ctx.find_root().command, {}, "thunder", VARIABLE)))
