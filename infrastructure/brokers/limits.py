"""The limits of messages and names, whichever broker it is, by what they bound."""

# --- names ---

NAME_BYTES_MAX = 255

# --- messages ---

MESSAGE_BYTES_MAX = 128 * 1024 * 1024
INTEGER_MAX = 2**31 - 1
BIG_INTEGER_MAX = 2**63 - 1
