"""The web console: pages on the operator's own machine, with the operator's own AWS credentials."""
