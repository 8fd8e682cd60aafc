"""The limits of the modules that stand beside infrastructure's packages, by what they bound."""

# --- connections and servers ---

BACKLOG_MAX = 2048
ACCEPTED_AT_ONCE_MAX = 100
# Handlers hold a connection for the length of a transaction; those that hold one for a whole run take turns.
POOL_SIZE_MAX = 20
# Pages take milliseconds, and few people look at once.
DASHBOARD_POOL_SIZE_MAX = 5
DASHBOARD_POOL_SECONDS_MAX = 2.0

# --- the database's readiness ---

ANSWER_SECONDS_MAX = 8.0
WAIT_SECONDS = 1.0

# --- handlers within the process ---

# How long a handler whose time is over may take to end.
GRACE_SECONDS = 5.0

# --- settings ---

IDENTIFIER_CHARACTERS_MAX = 63
EXCHANGE_CHARACTERS_MAX = 255
# Whoever has pasted something else here finds it by its beginning.
SHOWN_CHARACTERS_MAX = 40

# --- keys ---

MASTER_KEY_BYTES = 32
TOKEN_KEY_BYTES = 32
KEY_BYTES_READ_MAX = 4096
