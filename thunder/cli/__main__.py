"""`python -m thunder.cli`: the same command where its script is not installed."""

from thunder.cli.main import main

main(prog_name="thunder")
