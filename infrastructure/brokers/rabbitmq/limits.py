"""The limits of RabbitMQ and its client, by what they bound."""

# --- a connection ---

# Together with the longest pause between two probes, less than what a broker's return may go unnoticed for.
ANSWER_SECONDS_MAX = 4.0
CLOSE_SECONDS_MAX = 2.0
# How far the client reads ahead of whoever works on its channels. Its own 10 are three messages for each turn of the
# event loop, in which handlers may keep it for milliseconds.
FRAMES_MAX = 1_000
# RabbitMQ's own default.
FRAME_BYTES_MAX = 131_072
# A peer that is gone without a word is noticed after three of these.
HEARTBEAT_SECONDS = 10
# The client takes the next number for none at all.
HEARTBEAT_SECONDS_MAX = 65_534

# --- names and options ---

LINK_NAME_CHARACTERS_MAX = 200
SHOWN_CHARACTERS_MAX = 40

# --- declaring ---

DECLARE_SECONDS_MAX = 10.0

# --- publishing ---

CONFIRM_SECONDS_MAX = 10.0
# A channel or a connection that was closed in the middle is opened again for this message; not for ever.
CHANNELS_MAX = 3
SUSPECTS_AT_ONCE_MAX = 16
REDECLARE_SECONDS = 5.0
LOOK_SECONDS = 0.1

# --- consuming ---

STEP_SECONDS_MAX = 10.0
# Python's own limit is met by a few hundred, and as many have to be written again in a dead letter.
NESTING_MAX = 100

# --- dead letters ---

LETTER_CONFIRM_SECONDS_MAX = 10.0
# Beside that, a letter has the time that it takes on a slow road: the largest that brokers take are 128 MiB and more.
LETTER_BYTES_PER_SECOND_MIN = 64 * 1024
# How soon an alarm of the broker is noticed.
ALARM_LOOK_SECONDS = 0.5
LETTER_STEP_SECONDS_MAX = 10.0
