"""Your handlers: every module of this package is deployed with the executor, and its `@task` functions are declared."""
