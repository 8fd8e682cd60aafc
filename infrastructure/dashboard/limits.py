"""The limits of the dashboard, by what they bound."""

# --- what is sent to it ---

FORM_BYTES_MAX = 64 * 1024

# --- what it remembers in a browser ---

STATIC_SECONDS = 365 * 24 * 3600
NOTICE_SECONDS = 60
THEME_SECONDS = 365 * 24 * 3600
KEY_CHARACTERS_MIN = 32
SESSION_BYTES = 24

# --- what it writes ---

ID_CHARACTERS = 8
# More of one value fills a page and shows nothing.
VALUE_CHARACTERS_MAX = 20_000
SHOWN_MIN = 0.1

# --- who listens to it ---

LOOK_SECONDS = 1.0
# Times on a page are relative, and so grow old though nothing happens.
QUIET_SECONDS_MAX = 10.0
# A browser comes back by itself, and is asked again then who it is.
STREAM_SECONDS_MAX = 60.0
LISTENERS_MAX = 200
RETRY_MILLISECONDS = 2_000
