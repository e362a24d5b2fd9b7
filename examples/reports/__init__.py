"""The report generation ThunderAgent grew from: one weather report per station and period.

A handlers path: the directory is staged beside the executor's entry point as the package `reports`, and is
`examples.reports` in the checkout, so its modules import one another relatively.
"""
