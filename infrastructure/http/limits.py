"""The limits of the HTTP door, by what they bound."""

# --- connections ---

SLICE_BYTES = 8 * 1024
# Beyond what any parser's own limit lets through.
HEAD_BYTES_MAX = 64 * 1024
LINGER_SECONDS = 2.0
# Each may be open for some turns of the loop before it is counted, and so may one that was cut.
ACCEPTED_AT_ONCE_MAX = 32
# For the database, the broker, files, and what was cut a moment ago.
SPARE_DESCRIPTORS = 256
CONNECTIONS_MIN = 16
TELLING_SECONDS = 10.0

# --- requests ---

LENGTH_DIGITS_MAX = 20
TYPE_CHARACTERS_MAX = 200
PATH_CHARACTERS_MAX = 500
JSON_LEVELS_MAX = 64

# --- operations of GraphQL ---

DEPTH_MAX = 10
ALIASES_MAX = 15
TOKENS_MAX = 2_000
TEXT_CHARACTERS_MAX = 20_000
OPERATION_NAME_CHARACTERS_MAX = 1_000
SELECTIONS_MAX = 2_000
# Of what lies in one another, fragments in fragments too: more than anybody reads, and less than Python's stack holds.
GRAPHQL_LEVELS_MAX = 50

# --- tokens and their keys ---

TOKEN_CHARACTERS_MAX = 8_192
SUBJECT_CHARACTERS_MAX = 200
# Clocks of two machines differ.
LEEWAY_SECONDS = 30
SECRET_BYTES_MIN = 32
SECRET_BITS_MIN = 80
RSA_BITS_MIN = 2048

# --- answers ---

RETRY_SECONDS = 5
ERRORS_SHOWN_MAX = 20
NAME_CHARACTERS_MAX = 100

# --- questions about health ---

DEADLINE_SECONDS = 2.0
# However often anybody asks, the database is asked this often at most; its migrations seldom change, and each time
# that it is written to leaves a row for it to clean up.
FRESH_SECONDS = 1.0
WRITTEN_FRESH_SECONDS = 5.0
MIGRATIONS_FRESH_SECONDS = 30.0
