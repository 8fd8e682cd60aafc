"""The limits of the inbox, by what they bound."""

# --- a batch ---

# Half of what the broker gives ahead: it is stored while the other half arrives.
BATCH_MAX = 125
# Of bodies; few batches come near it, but the largest messages together would be more than a call's deadline allows.
BATCH_BYTES_MAX = 16 * 1024 * 1024
# Fewer than these trickle in: the next ones are gathered for so long.
GATHER_EVENTS_MAX = 25
GATHER_SECONDS = 0.005
# Each finds what others, who stored the same event at the same moment, have committed by then.
ROUNDS_MAX = 3

# --- a queue ---

# All of them are in memory, up to a megabyte each and more; a thousand were hardly faster.
PREFETCH_MESSAGES = 2 * BATCH_MAX
LOOK_SECONDS = 0.1
# A connection that has stood for so long is lost for another reason than the one before.
PEACE_SECONDS = 60.0
DRAIN_SECONDS_MAX = 10.0
# What lasts is said again, for those who look at the end of a log; what is another sentence is said at once.
REPEAT_SECONDS = 60.0
