"""The limits of what is on the wire, by what they bound."""

# --- values ---

# Each level takes frames of Python's stack, here and wherever it is read. So few leave room on every one.
LEVELS_MAX = 100
SUBJECT_CHARACTERS_MAX = 500

# --- versions ---

# The first whose validation can be told to take fields by their names, whatever their aliases are.
PYDANTIC_VERSION_MIN = (2, 11)
