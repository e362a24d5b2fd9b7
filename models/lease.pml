/* Claim, lease, commit, reap, cancel and redrive of one task, as a Promela model for Spin.
 *
 * Each atomic step below is one conditional write (or one consistent read) of the protocol, docs/state-machine.md; what
 * lies between two steps may take for ever, so that every stall, every crossing of requests and every late delivery is
 * an interleaving. Time is abstract: a lease may pass its lockTime whenever it was not renewed (`late`), and a renewal
 * makes a new lockTime (`version`). FAULTS is how often, in all, something crashes, is refused, is lost or comes twice.
 *
 * -DNO_… leaves a rule out; models/check.py tries each, and expects Spin to find what goes wrong.
 */

#ifndef TOKENS
#define TOKENS 2      /* leases that pollers may open, one after the other */
#endif
#ifndef EXECUTORS
#define EXECUTORS 3   /* deliveries that are ever executed */
#endif
#ifndef POLLERS
#define POLLERS 1
#endif
#ifndef REAPERS
#define REAPERS 1
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef RETRIES
#define RETRIES 1     /* maxRetryNumber */
#endif
#ifndef REDRIVES
#define REDRIVES 0
#endif
#ifndef CANCELS
#define CANCELS 0
#endif

#define SLOTS (TOKENS + 1)

mtype = { PENDING, RUNNING, SUCCESS, FAILED, DONE };

/* the task */
mtype status = PENDING;
byte token = 0;       /* 0: none */
byte fence = 0;
byte retries = 0;
bool cancelling = false;
bool redriven = false;   /* the redriveId is recorded */

/* the leases */
bool stands[SLOTS];
bool late[SLOTS];
byte version[SLOTS];
byte begun[SLOTS];    /* the nonce: who began; 0: nobody */
bool closed[SLOTS];
bool started[SLOTS];
bool told[SLOTS];     /* of a cancel */

/* what is on its way */
byte events[SLOTS];
byte faults = FAULTS;

/* what only an observer knows */
byte commits = 0;
byte starts = 0;
byte redrives = 0;
bool ran[SLOTS];
bool recorded[SLOTS];
bool answered = false;      /* the cancel's 200 */
bool recorded_late[SLOTS];  /* recorded after that 200 */

#define FAULT (faults > 0) -> faults--
#define HELD(k) (status == RUNNING && token == k)

#ifdef NO_TOKEN
#define MINE(k) (status == RUNNING)
#else
#define MINE(k) HELD(k)
#endif

#ifdef NO_CANCEL_GUARD
#define NOT_CANCELLED true
#else
#define NOT_CANCELLED (!cancelling)
#endif

inline gone_now(k) {    /* what nobody can see any more */
    stands[k] = false; late[k] = false; version[k] = 0; begun[k] = 0; closed[k] = false; started[k] = false;
    told[k] = false
}

inline to_pending(k) {
    assert(!answered);
    status = PENDING; token = 0
}

/* ---- pollers --------------------------------------------------------------------------------------------------- */

byte next = 1;

proctype Poller()
{
    byte k; byte seen; bool gone; bool travels; bool delivered;

look:
    atomic {
        if
        :: next <= TOKENS && status == PENDING -> k = next; next++; seen = fence
        :: next > TOKENS || status == SUCCESS || status == DONE -> goto done
        fi;
        travels = false; delivered = false
    }
    /* open; an open whose answer is lost abandons the token */
    atomic {
        stands[k] = true;
        if
        :: skip
        :: FAULT -> goto look
        fi
    }
    /* claim; one whose answer is lost travels too, applied or not */
    atomic {
        if
#ifdef NO_CLAIM_FENCE
        :: status == PENDING ->
#else
        :: status == PENDING && fence == seen ->
#endif
            assert(fence == seen);    /* not by a look from before somebody else's claim */
            status = RUNNING; token = k; fence++; travels = true
        :: else -> skip
        :: FAULT -> travels = true    /* not applied, and not answered */
        fi;
        if
        :: skip
        :: FAULT -> goto look   /* it dies here */
        fi
    }
    /* dispatch */
    atomic {
        if
        :: !travels -> skip
        :: travels -> events[k] = 1; delivered = true
        :: travels && FAULT -> events[k] = 2; delivered = true
        :: travels && FAULT -> skip                /* refused, or lost on its way, and told so */
        :: travels && FAULT -> events[k] = 1       /* accepted, and the answer lost */
        :: travels && FAULT -> delivered = true    /* accepted, and dropped */
        :: FAULT -> goto look                      /* it dies here */
        fi
    }
    if
    :: delivered -> goto look
    :: else
    fi;
    /* take back: the lease first, and only if nobody has begun */
    atomic {
        gone = false;
        if
        :: !stands[k] -> gone = true
        :: stands[k] && begun[k] == 0 && !closed[k] -> gone_now(k); gone = true
        :: else
        fi;
#ifdef NO_VOID_FIRST
        gone = true;
#endif
        if
        :: skip
        :: FAULT -> goto look
        fi
    }
    if
    :: gone ->
        atomic {
            if
            :: MINE(k) && NOT_CANCELLED -> assert(!recorded[k]); to_pending(k)
            :: MINE(k) && cancelling -> status = DONE
            :: else
            fi
        }
    :: else
    fi;
    goto look;
done:
    skip
}

/* ---- executors ------------------------------------------------------------------------------------------------- */

proctype Executor(byte me)
{
    byte k; bool unsure;

    /* one delivery */
    atomic {
        if
        :: events[1] > 0 -> k = 1
#if TOKENS > 1
        :: events[2] > 0 -> k = 2
#endif
#if TOKENS > 2
        :: events[3] > 0 -> k = 3
#endif
        fi;
        events[k]--
    }
    /* begin */
    atomic {
#ifdef NO_BEGIN_ONCE
        if
        :: stands[k] && !closed[k] && !late[k] -> begun[k] = me
#else
        if
        :: stands[k] && !closed[k] && !late[k] && begun[k] == 0 -> begun[k] = me
#endif
        :: else -> goto done
        fi;
        version[k]++;
        if
        :: skip
        :: FAULT -> goto done
        fi
    }
    /* the look at what is ours */
#ifndef NO_LOOK
    atomic {
        if
        :: HELD(k) && !cancelling -> skip
        :: HELD(k) && cancelling -> status = DONE; goto settle
        :: else -> goto settle
        fi
    }
#endif
    /* record the start: a heartbeat that adds the id */
    atomic {
#ifdef NO_RECORD_GUARD
        if
        :: stands[k] -> skip
#else
        if
        :: stands[k] && begun[k] == me && !closed[k] -> skip
#endif
        :: else -> goto done    /* refused: none of it starts */
        fi;
        late[k] = false; version[k]++;
#ifndef NO_RECORD
        started[k] = true;
#endif
        recorded[k] = true;
        assert(HELD(k));
        if
        :: told[k] && HELD(k) -> goto cancelled
        :: else -> recorded_late[k] = answered
        fi;
        if
        :: skip
        :: FAULT -> goto done
        fi
    }
    /* the handler */
    atomic {
        assert(!ran[k]);
        assert(!recorded_late[k]);
        ran[k] = true; starts++;
        assert(REDRIVES > 0 || starts <= RETRIES + 1);
        if
        :: skip
        :: FAULT -> goto done
        fi
    }
    /* one more heartbeat, or none */
    atomic {
        if
        :: stands[k] && begun[k] == me && !closed[k] -> late[k] = false; version[k]++
        :: skip
        fi
    }
    /* its end: a commit, or the handler's own failure */
    atomic {
        unsure = false;
        if
        :: MINE(k) && NOT_CANCELLED ->
            if
            :: status = SUCCESS; commits++; assert(token == k && commits == 1 && !answered)
            :: retries < RETRIES -> assert(token == k); retries++; to_pending(k)
            :: retries >= RETRIES -> assert(token == k && !answered); status = FAILED
            :: FAULT -> unsure = true    /* neither applied nor answered */
            fi
        :: MINE(k) && cancelling -> status = DONE
        :: else
        fi;
        if
        :: skip
        :: FAULT -> goto done
        fi
    }
    goto settle;
cancelled:
    atomic {
        if
        :: HELD(k) && cancelling -> status = DONE
        :: else
        fi
    }
settle:
    /* only when every end was answered */
    atomic {
        if
#ifdef NO_SURE_SETTLE
        :: stands[k] && begun[k] == me && !closed[k] ->
#else
        :: stands[k] && begun[k] == me && !closed[k] && !unsure ->
#endif
            gone_now(k);
            assert(!(HELD(k) && recorded[k]))
        :: else
        fi
    }
done:
    skip
}

#ifdef NO_FINISH
#define LAPSED(k) (stands[k] && late[k] && !closed[k])
#else
#define LAPSED(k) (stands[k] && (late[k] || closed[k]))
#endif

/* ---- reapers --------------------------------------------------------------------------------------------------- */

proctype Reaper()
{
    byte k; byte seen; bool charge; bool sure;

look:
    atomic {
        if
        :: LAPSED(1) -> k = 1
#if TOKENS > 1
        :: LAPSED(2) -> k = 2
#endif
#if TOKENS > 2
        :: LAPSED(3) -> k = 3
#endif
        :: status == RUNNING && !stands[token] -> k = token; charge = false; sure = true; goto reset   /* the backstop */
        fi;
        seen = version[k]
    }
    /* close, with the lockTime as seen */
    atomic {
        if
        :: !stands[k] -> goto look
        :: stands[k] && closed[k] -> skip
#ifdef NO_CLOSE_SEEN
        :: stands[k] && !closed[k] ->
#else
        :: stands[k] && !closed[k] && version[k] == seen ->
#endif
            assert(late[k]);
#ifndef NO_CLOSE
            closed[k] = true
#endif
        :: else -> goto look    /* renewed meanwhile */
        fi;
        charge = started[k]; sure = true;
        if
        :: skip
        :: FAULT -> goto look   /* it dies here; the next one goes on */
        fi
    }
reset:
    /* take the task back, under the token as seen */
    atomic {
        if
#ifdef NO_REAP_TOKEN
        :: status == RUNNING && NOT_CANCELLED ->
#else
        :: HELD(k) && NOT_CANCELLED ->
#endif
            if
            :: FAULT -> sure = false
            :: else ->
                assert(token == k && charge == recorded[k]);
                if
                :: !charge -> to_pending(k)
                :: charge && retries < RETRIES -> retries++; to_pending(k)
                :: charge && retries >= RETRIES -> assert(!answered); status = FAILED
                fi
            :: sure && faults > 0 ->
                assert(token == k && charge == recorded[k]);
                if
                :: !charge -> to_pending(k)
                :: charge && retries < RETRIES -> retries++; to_pending(k)
                :: charge && retries >= RETRIES -> assert(!answered); status = FAILED
                fi
            fi
        :: HELD(k) && cancelling -> status = DONE
        :: else
        fi;
        if
        :: skip
        :: FAULT -> goto look
        fi
    }
    /* the lease goes when every reset was answered */
    atomic {
        if
#ifdef NO_SURE_BURY
        :: stands[k] && closed[k] ->
#else
        :: stands[k] && closed[k] && sure ->
#endif
            gone_now(k)
#ifdef NO_CLOSE
        :: stands[k] && !closed[k] -> gone_now(k)
#endif
        :: else
        fi;
        k = 0; seen = 0; charge = false; sure = false
    }
    goto look
}

/* ---- clients --------------------------------------------------------------------------------------------------- */

proctype Canceller()
{
    byte k = 0;

    atomic {
        if
        :: status == PENDING -> status = DONE; answered = true; goto done
        :: status == RUNNING -> cancelling = true; k = token
        :: status == SUCCESS || status == FAILED || status == DONE -> goto done   /* 409 */
        fi
    }
    atomic {
        if
        :: stands[k] -> told[k] = true
        :: else
        fi
    }
    answered = true;
done:
    skip
}

proctype Redriver()
{
    byte seen; byte again = 2;   /* the answer may be lost: the same request once more */

look:
    atomic {
        if
        :: again > 0 && status == FAILED && !redriven -> seen = fence; again--
        :: again == 0 || redriven -> goto done
        :: status == SUCCESS || status == DONE -> goto done
        fi
    }
    atomic {
        if
#ifdef NO_REDRIVE_FENCE
        :: status == FAILED ->
#else
        :: status == FAILED && fence == seen ->
#endif
            status = PENDING; token = 0; retries = 0; fence++; cancelling = false;
#ifndef NO_REDRIVE_FENCE
            redriven = true;
#endif
            redrives++;
            assert(redrives <= 1)
        :: else
        fi
    }
    goto look;
done:
    skip
}

/* ---- time, and the end ----------------------------------------------------------------------------------------- */

proctype Time()
{
    do
    :: atomic { stands[1] && !late[1] -> late[1] = true }
#if TOKENS > 1
    :: atomic { stands[2] && !late[2] -> late[2] = true }
#endif
#if TOKENS > 2
    :: atomic { stands[3] && !late[3] -> late[3] = true }
#endif
    od
}

/* When nothing can happen any more: no lease is left, and no task runs for ever. */
proctype Rest()
{
    timeout;
    assert(!stands[1]);
#if TOKENS > 1
    assert(!stands[2]);
#endif
#if TOKENS > 2
    assert(!stands[3]);
#endif
    assert(status != RUNNING)
}

init {
    atomic {
        byte each = 1;
        do
        :: each <= EXECUTORS -> run Executor(each); each++
        :: else -> break
        od;
        run Poller();
#if POLLERS > 1
        run Poller();
#endif
        run Reaper();
#if REAPERS > 1
        run Reaper();
#endif
#if CANCELS
        run Canceller();
#endif
#if REDRIVES
        run Redriver();
#endif
        run Time();
        run Rest()
    }
}
