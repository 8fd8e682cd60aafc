"""The limits of the kernel, by what they bound."""

# --- names and keys ---

NAME_CHARACTERS_MAX = 200
KEY_CHARACTERS_MAX = 500

# --- payloads and headers ---

# C7. jsonb takes 255 MiB; a payload near that is a file in the wrong place, and it costs every reader.
PAYLOAD_BYTES_MAX = 1024 * 1024
HEADER_CHARACTERS_MAX = 8_192
# What a broker's header and every reader's own integer can hold.
HEADER_INTEGER_BITS_MAX = 63
HEADERS_BYTES_MAX = 64 * 1024

# --- handlers ---

TIMEOUT_SECONDS = 30.0

# --- units of work ---

CONFLICT_ATTEMPTS_MAX = 3
FIRST_PAUSE_SECONDS = 0.005

# --- what is watched in one ---

# So many are held for as long as the unit is open, those that it holds itself included. Then they are looked through.
NOTED_COUNT_MIN = 64
NAMED_COUNT_MAX = 3
