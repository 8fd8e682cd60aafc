"""The limits of sealing, by what they bound."""

# --- keys ---

KEY_BYTES = 32
NONCE_BYTES = 12
# Each finds the keys that others, who waited for nobody, have committed by then.
ROUNDS_MAX = 3

# --- the search for secrets in errors ---

SECRET_CHARACTERS_MIN = 4
# A piece of a value so long is taken for it; a shorter value only whole.
PIECE_CHARACTERS = 8
# What is longer is not searched for, nor searched: nothing of such an error is told.
SEARCHED_CHARACTERS_MAX = 200_000
# How much is shown of what is longer and holds no secret.
SHOWN_CHARACTERS_MAX = 10_000
CAUSES_MAX = 20
