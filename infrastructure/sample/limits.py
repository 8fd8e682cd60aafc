"""The limits of the sample's story, by what they bound."""

# --- the week ---

WEEK_SECONDS = 7 * 24 * 3_600.0
DAY_SECONDS = 24 * 3_600.0
WEEK_ORDERS = 3_000
# Nothing is of the future.
AGE_SECONDS_MIN = 0.05

# --- what goes on ---

BEAT_SECONDS = 2.0
LEASE_SECONDS = 30.0

# --- failures ---

# How long ago an event was stored, at least, that is one of these.
DEAD_SECONDS = 900.0
DEAD_APART_SECONDS = 2_400.0
RETRYING_SECONDS = 30.0
LEASED_SECONDS = 3_000.0
DONE_SECONDS = 7_200.0
NEWER_SECONDS = 20_000.0
# How long those wait whose turn comes later, and those that are tried again.
LATER_SECONDS = 10_000.0
AGAIN_SECONDS = 45.0
