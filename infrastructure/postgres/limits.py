"""The limits of connections to PostgreSQL, and of a server of our own, by what they bound."""

# --- connecting ---

# The driver's own deadline ends with the login; what the engine asks after it has none.
CONNECT_SECONDS_MAX = 10.0
CONNECT_TIMEOUT_SECONDS = 5.0
# A machine that is gone answers nothing: each is given this first, and those that were late all of the time once more.
FIRST_TIMEOUT_SECONDS = 1.5
# Firewalls forget a quiet connection after minutes without telling either side.
POOL_RECYCLE_SECONDS = 900
PORT_MAX = 65_535

# --- sessions ---

# Longer than a caller waits for an answer: of two who tell of it, the one that knows what it asked is to be first.
PATIENCE_SECONDS = 5.0
# Who is stopped between two statements, or whose machine is gone without a word, would hold its rows' locks for as
# long, and with them whoever is to take over from it.
IDLE_IN_TRANSACTION_SECONDS = 5.0

# --- errors ---

CHAIN_ERRORS_MAX = 10

# --- the embedded server ---

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.01
