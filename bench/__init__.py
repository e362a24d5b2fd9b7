"""Where the figures of docs/performance.md come from: `make bench`."""
