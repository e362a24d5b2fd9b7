"""How far it scales, by simulation: what the services allow as they document it, and the library's own policy.

- `capacity`: DynamoDB's partitions, their burst, their splits, and an index that holds its table up.
- `functions`: how fast Lambda's concurrency grows, and where it ends.
- `policy`: the library's own pollers in simulated time over a model table: calls, batches and races of their dispatch.
- `load`: second by second, a load through all of it; ours and the plain design beside each other.
- `check`: the same pollers over the embedded AWS, against the model.
- `run`: the bench; `plots`: its curves.
"""
