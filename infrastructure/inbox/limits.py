"""The limits of the inbox, by what they bound."""

# --- a batch ---

BATCH_MAX = 500
# Of bodies; few batches come near it, but the largest messages together would be more than a call's deadline allows.
BATCH_BYTES_MAX = 16 * 1024 * 1024
GATHER_SECONDS = 0.005
# Each finds what others, who stored the same event at the same moment, have committed by then.
ROUNDS_MAX = 3

# --- a queue ---

# All of them are in memory, up to a megabyte each and more; a thousand were hardly faster.
PREFETCH_MESSAGES = 250
LOOK_SECONDS = 0.1
# A connection that has stood for so long is lost for another reason than the one before.
PEACE_SECONDS = 60.0
DRAIN_SECONDS_MAX = 10.0
# What lasts is said again, for those who look at the end of a log; what is another sentence is said at once.
REPEAT_SECONDS = 60.0
