"""The limits of the relay, by what they bound."""

# --- a lease, and who is gone ---

LEASE_RENEWALS = 3
STEP_SECONDS_MAX = 0.5
SWEEP_SECONDS = 60.0
SUSPECT_TAKEOVERS = 2

# --- a shift ---

ANSWER_SECONDS_MAX = 1.0
# Rests between shifts: short, so that it is back within about a second after the database (R12).
RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0)
WATCH_SECONDS = 0.1
# A relay that stops lets what is in hand end for so long, before it leaves the rest to others.
FINISH_SECONDS = 0.2
# What has killed relays before runs alone. So long nothing is taken on, until what is in hand has ended; so long one
# such run follows another. Who takes longer begins nothing more until then; all others go on for so long.
ALONE_WAIT_SECONDS = 5.0
ALONE_REST_SECONDS = 30.0
WRITERS_LOOK_SECONDS = 0.05
PROBE_EVERY_SECONDS = 5.0
LISTENER_ANSWER_SECONDS_MAX = 2.0

# --- reading the log ---

# Of payloads, about, in a read or a claim; few come near it, but a thousand of the largest would be a gigabyte.
READ_BYTES_MAX = 16 * 1024 * 1024
# Beside less than this in hand one more read is made, or one more claim, so that the next is there when one is done.
IN_HAND_BYTES_MAX = 2 * READ_BYTES_MAX
# Deliveries that a cursor goes back over, so many in one statement.
AHEAD_MAX = 10_000
# However few are asked for, as by a handler with a bound, so many are looked at.
LOOK_EVENTS_MIN = 1_000
# Events that a glance may bring. More would make it cost what the whole read costs, which is asked for then.
GLANCE_EVENTS_MAX = 16
# Of what is mostly for others, so many are looked at for each event that a read may bring.
LOOK_TIMES_MAX = 8
WINDOW_ROWS = 2_000

# --- runs and sending ---

# How long a run whose time is over may take to end.
GRACE_SECONDS = 5.0
SLOW_SECONDS = 1.0
# How long workers may keep the event loop when no handler ever waits for anything.
LOOP_SECONDS_MAX = 0.005
# Sent and not confirmed, at the most.
WINDOW_MESSAGES = 200
# What a timer comes late is made good, up to so much: else a rate of a few hundred a second would never be reached.
LATE_SECONDS_MAX = 0.01
# Events in hand for each run that there may be: a place is written down once all that were read with it are done.
IN_HAND_TIMES = 4

# --- places written ---

# Under load not more often than this: each time is a write that waits for its way to the disk.
WRITE_SECONDS = 0.1
# A place that has only passed what is for others is not worth more.
IDLE_SECONDS = 1.0
# So many are worth a write of their own when they were the last of the log.
BURST_EVENTS = 500

# --- deliveries ---

# More than these are found sooner by a look at all.
KNOWN_MAX = 5_000
# After a look at all, what is merely heard of causes the next when so many times longer is over, or, where it found
# something, when no turn is known any more.
# There is a limit, since what is measured is also how long the answer waited for this process, a lock or the road.
REST_TIMES = 9
REST_SECONDS_MAX = 1.0
HEADS_MAX = 500
TURNS_MAX = 100
TURN_MAX = 20
# A delivery counts for so much however small it is, so that no more are taken beside a thousand in hand.
DELIVERY_BYTES_MIN = IN_HAND_BYTES_MAX // 1_000
BATCH_MAX = 2_000

# --- failures and outages ---

# A century: what a handler asks for must stay a time that the database can store.
DELAY_SECONDS_MAX = 100 * 365.25 * 86_400
# The third delay of EXPONENTIAL: a broker that is back is found within seconds, however long it was away.
FAILURES_COUNTED_MAX = 3
# Lost races of transactions, one after the other, after which it stands still: fewer are run again at once.
RACES_MAX = 3
# The fifth delay of EXPONENTIAL: a probe a minute costs nobody anything, and finds soon what is back.
PROBES_COUNTED_MAX = 5
