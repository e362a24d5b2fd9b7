"""Demonstration tasks: something to run, to break and to count. Deployed in the local environment only.

A handlers path like `examples/reports`: staged as the package `demo`, so its modules import one another relatively.
"""
