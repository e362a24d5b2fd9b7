"""How DynamoDB is asked: one pure builder per transition and per lease step. Values and `now` in, a `Write` out.

No expression about a task, a lease or what belongs to one is written anywhere else. Each builder names the clauses its
condition is made of; together with `states.TRANSITIONS` this is the whole protocol. By what a write is for:

    pending      submit, claim, and the other ways out of PENDING
    running      what a holder notes, and every exit from RUNNING
    ended        redrive, acknowledge, erase
    edges        what waits for parents
    leases       open, begin, heartbeat … close
    repairs      rows that are not as the library writes them
    side_items   schedules, bodies, the reaper's cursor

`clauses` are what conditions are made of; `shapes`, what several of the writes set.
"""

from thunderagent.expressions.clauses import (
    before_deadline,
    held_by,
    not_blocked,
    not_cancelled,
    of_known_format,
    of_region,
)
from thunderagent.expressions.edges import (
    born_blocked,
    cut_edge,
    cut_left_edge,
    dead_as_seen,
    edge_stands,
    look_again,
    mark_dependents,
    next_look,
    parent_failed,
    put_edge,
    recount,
    unblock,
)
from thunderagent.expressions.ended import acknowledge, erase, redrive
from thunderagent.expressions.leases import (
    begin,
    bury_lease,
    close,
    heartbeat,
    move_lease,
    open_lease,
    repair_lease,
    settle,
    tell_lease,
    void,
)
from thunderagent.expressions.pending import cancel, claim, defer, expire, free_unique, submit, take_unique
from thunderagent.expressions.repairs import park, relist, repair_lock, take_off_index
from thunderagent.expressions.running import (
    Result,
    cancel_end,
    cancel_request,
    commit,
    fail,
    finish,
    keep_attempts,
    move_aside,
    progress,
    reap,
    reap_failed,
    release,
    retry,
    snooze,
    step,
)
from thunderagent.expressions.side_items import (
    advance_schedule,
    delete_schedule,
    drop_body,
    put_cursor,
    put_schedule,
    renew_body,
    shorten_body,
)
