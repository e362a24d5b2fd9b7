"""The operator's side of ThunderAgent: the command line and the embedded AWS it can run."""
