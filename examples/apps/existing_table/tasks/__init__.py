"""Tasks on the kept table."""
