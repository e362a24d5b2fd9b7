"""The handler of bench.agents: what a `--handlers` directory looks like."""
