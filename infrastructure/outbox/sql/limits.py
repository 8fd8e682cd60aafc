"""The limits of the statements, by what they bound."""

# --- retention ---

# A receipt outlives even an event that is purged sooner: a relay that was stopped must still find it.
RECEIPT_DAYS_MIN = 7

# --- lists and graphs ---

# Of what is late for somebody so many events are looked at, for each transaction that ran at its place; and of what
# queues have brought again as many.
LATE_EVENTS_MAX = 1_000
# Cursors change their readers seldom; of one that has changed more often the oldest are left out.
STRETCHES_MAX = 20
