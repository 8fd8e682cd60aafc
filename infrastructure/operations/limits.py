"""The limits of what an operator asks and decides, by what they bound."""

# --- a session ---

DEADLOCK_ATTEMPTS_MAX = 3
# Relays hold what they hold for milliseconds: who waits for longer waits for somebody who has forgotten it.
LOCK_SECONDS_MAX = 10.0
# What is asked of a large outbox may take its time; who asks can end it.
STATEMENT_SECONDS_MAX = 300.0
# While an operator is asked whether to go on, no transaction is open.
IDLE_SECONDS_MAX = 60.0
LOOK_SECONDS_MAX = 2.0
LOOK_LOCK_SECONDS_MAX = 1.0
LOOK_IDLE_SECONDS_MAX = 10.0

# --- what doctor asks ---

CLOCK_SECONDS_MAX = 2.0
# Longer than any lock is waited for, so that the sentence can tell the one from the other.
ANSWER_SECONDS_MAX = LOCK_SECONDS_MAX + 5.0
BROKER_ANSWER_SECONDS_MAX = 15.0
# What ends a session's statement or transaction; a commit on a busy server takes longer than less than this.
TIMEOUT_SECONDS_MIN = 1.0
ECHO_SECONDS_MAX = 2.0
DEAD_ROWS_MIN = 50_000
TRANSACTION_SECONDS_MAX = 600.0
# A claim takes milliseconds, and a takeover half a minute.
PENDING_SECONDS_MAX = 60.0
# Longer than the longest delay between two attempts.
OPEN_SECONDS_MAX = 3_600.0
# Live relays sweep for such leases once a minute, and at once when another's lease runs out.
ORPHAN_SECONDS_MAX = 120.0

# --- an overview ---

# So many events behind a cursor are looked at: of what is further behind it is only said that it is more.
LAG_EVENTS_MAX = 10_000
# A larger table is not counted but estimated.
COUNT_BYTES_MAX = 64 * 1024 * 1024
# So many events ahead of each place, and deliveries of each handler, are looked at.
GLANCE_LAG_EVENTS_MAX = 1_000
DELIVERIES_MAX = 2_000
KINDS_DELIVERIES_MAX = 500
OPEN_DELIVERIES_MAX = 20
TYPES_MAX = 200
SERIES_STEPS = 60
LATENCY_EVENTS_MAX = 20
LATENCY_LOOK_MAX = 200

# --- lists of events ---

AGGREGATE_EVENTS_MAX = 50
# Of what was emitted about an aggregate, which has no number, so many are looked at.
AGGREGATE_EMITTED_MAX = 10_000
DEPTH_MAX = 20
CHILDREN_MAX = 25
LINEAGE_EVENTS_MAX = 200
# As long as one answer may take to be looked for, and how many events are looked at in one statement.
SEARCH_SECONDS_MAX = 0.1
STRETCH_EVENTS = 5_000
# Payloads may be large: so many are read at once to be looked at without their secrets.
PAYLOADS_MAX = 20
FOUND_EVENTS_MAX = 50
# An aggregate with as many events without a number is looked for by the log: no index has their order.
FOUND_EMITTED_MAX = 1_000
# Of what Python reads as a number; the longer ones stay text.
DIGITS_MAX = 1_000

# --- dead letters ---

LETTERS_MAX = 50
# Kinds of errors that are told apart at one look, the largest groups first.
GROUPS_MAX = 100
BEHIND_MAX = 100
# Where a filter asks of the events, so many letters are looked at for one page.
LOOK_MAX = 2_000
# So long one request works; what is left then is said, and another one goes on.
WORK_SECONDS_MAX = 20.0

# --- what is changed at once ---

# Relays that settle one of these events wait for us meanwhile.
BATCH_MAX = 500
REWRAPPED_BATCH_MAX = 500
WINDOW_EVENTS = 5_000
# A relay's retention purges for milliseconds at a time.
TURN_SECONDS = 0.05
