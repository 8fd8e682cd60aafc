"""The limits of the pages, by what they bound."""

# --- what may be asked for ---

USUAL_DAYS = 7.0
DAYS_MAX = 36_500.0
POSITION_DIGITS_MAX = 18
EVENTS_MAX = 500

# --- what is shown at one look ---

# The latest and the busiest first: more do not fit one look.
SUBSCRIPTIONS_MAX = 50
