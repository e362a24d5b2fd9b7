"""A first handler, to copy from.

A handler is a plain function of the payload (the JSON value that was submitted) and `ctx` (what is known of this
attempt). What it returns is the task's result. What it raises is retried, at most `max_retries` times, each time a
little later. Work may be done twice, for a machine can die between the work and its record: see to it that twice does
no harm.

Try it: POST `{"type": "hello.greet", "payload": {"name": "Ada"}}` to `/tasks`.
"""

from typing import TYPE_CHECKING, Any

from thunderagent import Fail, task

if TYPE_CHECKING:
    from thunderagent import Context


@task("hello.greet", timeout=30, max_retries=3)
def greet(payload: Any, ctx: "Context") -> dict[str, str]:
    """Greets whoever `{"name": "…"}` says."""
    match payload:
        case {"name": str(name)} if name.strip():
            return {"greeting": f"Hello, {name.strip()}!"}
    # Another attempt would not help, so do not ask for one. Any other exception would be retried.
    raise Fail('payload.name: a name is needed, as in {"name": "Ada"}')
