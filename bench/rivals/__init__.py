"""What people would use instead, written as a sensible engineer would: measured beside ours on one embedded AWS.

Both know the same three kinds of work as our own measured tasks: `nothing`, `once` (fails the first time) and `never`
(fails for good).
"""
