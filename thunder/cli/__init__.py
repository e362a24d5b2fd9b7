"""The command `thunder`: parse, call, print."""
