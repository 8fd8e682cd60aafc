"""The limits of the outbox, by what they bound."""

# --- capture ---

COMBINED_STATEMENTS_MAX = 1_000
CALL_SECONDS_MAX = 10.0
# Of so many connections one is left to those who need it for a transaction only.
SHARE_LEFT_CONNECTIONS = 5
ERROR_CHARACTERS_MAX = 2_000

# --- telling relays of a commit ---

BURST_SECONDS = 0.005
# Whoever has committed goes on first: its session is closed by a task of its own, which it waits for.
COMMIT_TURNS = 3
# Whoever waits for all tasks to end, as some do when they shut down, waits for this one as well.
LINGER_SECONDS = 10.0
ANSWER_SECONDS_MAX = 1.0

# --- migrations ---

POSTGRES_VERSION_MIN = 15
# Another machine's whole migration is worth waiting for.
TURN_SECONDS_MAX = 60.0
# A statement that waits for a table makes every writer behind it wait too, so it gives up soon.
TABLE_LOCK_SECONDS_MAX = 5.0

# --- a purge ---

WINDOW_ROWS = 2_000
# Of the log, so that a window costs no more where all of it is gone.
WINDOW_POSITIONS = 200_000
# After so many in a row with nothing in them each is twice as large as the one before: a position far ahead, which
# somebody wrote, is not walked to in steps of that size.
WINDOWS_EMPTY_MAX = 64
GAP_POSITIONS_MAX = 2**61
# Of each reader's progress.
WINDOW_PLACES = 500
# Of who goes on for ever: between two walks, and until the next over the whole.
RETENTION_REST_SECONDS = 60.0
WHOLE_SECONDS = 3_600.0
