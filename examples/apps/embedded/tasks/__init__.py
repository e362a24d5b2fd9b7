"""Tasks of the shop."""
