"""The limits of the commands, by what they bound."""

# --- what may be typed ---

# Fewer than an id has, and none that the database cannot count to.
POSITION_DIGITS_MAX = 18
PREFETCH_MAX = 65_535
TOKEN_HOURS = 24.0
TOKEN_HOURS_MAX = 10 * 365 * 24.0

# --- what is printed ---

LISTED_MAX = 100
ERROR_CHARACTERS_MAX = 80
# More of one value fills a terminal and shows nothing.
VALUE_CHARACTERS_MAX = 4_000
# The least of a column that can be read; what does not fit is folded, never cut.
COLUMN_CHARACTERS_MIN = 8

# --- what is served ---

# Rather an answer that it is busy than one that nobody waits for any more.
POOL_WAIT_SECONDS_MAX = 5.0
DEV_TOKEN_SECONDS = 7 * 24 * 3600
# A batch in hand is tens of thousands of objects, which all go by themselves: by Python's 700 they are walked over and
# over.
GARBAGE_COUNTED_MAX = 20_000

# --- the end ---

GRACE_SECONDS = 10
LEFT_OVER_SECONDS = 2.0
