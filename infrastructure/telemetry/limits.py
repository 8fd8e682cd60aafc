"""The limits of telemetry, by what they bound."""

# --- alerts ---

LAG_SECONDS = 60.0

# --- counting ---

# Of runs that follow each other within so much time only one of so many is timed.
BUSY_SECONDS = 0.001
TIMED_OF_MAX = 32
# Kinds of errors that one handler's failures are told apart by; those of others go together.
ERROR_TYPES_MAX = 20
# An answer that took longer than the best one says less of what the server's clock shows.
ROUND_TRIPS_MAX = 1.5
BEST_SECONDS_MAX = 60.0

# --- what is asked of the database ---

# However often anybody asks, the database is asked this often at most, and no longer than that.
FRESH_SECONDS = 5.0
ASK_SECONDS_MAX = 5.0
# Numbers that are older are no numbers any more.
STALE_SECONDS = 30.0

# --- who asks for the numbers ---

REQUEST_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 10.0
HEAD_BYTES_MAX = 8 * 1024
CONNECTIONS_MAX = 16
PORT_MAX = 65_535

# --- what is exported ---

INTERVAL_MILLISECONDS = 60_000.0
FAREWELL_SECONDS_MAX = 3.0
# A batch has as many links, or spans, at the most: of more an exporter drops some.
LINKS_MAX = 100

# --- lines of the log ---

LINE_CHARACTERS_MAX = 100_000
EXCEPTION_CHARACTERS_MAX = 10_000
TRACEBACK_LINE_CHARACTERS_MAX = 2_000
FRAMES_MAX = 50
AGAIN_SECONDS = 60.0
PLACES_MAX = 200
