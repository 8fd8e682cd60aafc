"""What the words on badges mean, each in a sentence: shown on hover, and all together on a page of their own."""

from __future__ import annotations

OF_EVENTS = {
    "pending": "A subscription that the event is due for has not come to it yet.",
    "open": "The event has a delivery that is still to be run, or that is running.",
    "delivered": "All who were due for the event have had it, or an operator let them skip it.",
    "dead": "It has failed for the last time, and stays until an operator retries or skips it.",
}
OF_DELIVERIES = {
    "waiting": "It is to be run: at its time, and once what is before it in its aggregate is settled.",
    "retrying": "It has failed, and is tried again by itself.",
    "leased": "A relay has it in hand.",
    "done": "The handler has had it, and its effect is committed.",
    "passed": "The subscription has come past the event without leaving a delivery: it succeeded at once.",
    "skipped": "An operator let the event pass without this handler's effect.",
    "began later": "The subscription began after this event, and was never due for it.",
}
OF_SUBSCRIPTIONS = {
    "delivering": "A live relay carries it, and nothing of it has failed.",
    "dead letters": "Some deliveries have failed for the last time: retry or skip them. The others go on.",
    "unread": "Events stand behind it, and no live relay carries it.",
    "not carried": "No live relay carries it, and nothing stands behind it.",
    "stands still": "What it delivers to is away. It goes on by itself, and nothing is charged as a failure.",
    "paused": "An operator holds it: what is due for it waits.",
    "retired": "An operator ended it: nothing more is due for it.",
    "unknown": "It has deliveries, and never subscribed.",
}
OF_RELAYS = {
    "live": "The relay renews its lease.",
    "vanished": "The relay's lease ran out without being ended: another relay takes over what it had.",
}
GROUPS = {
    "An event": OF_EVENTS,
    "An event for one handler": OF_DELIVERIES,
    "A subscription": OF_SUBSCRIPTIONS,
    "A relay": OF_RELAYS,
}


def meaning(word: str) -> str:
    """Return the sentence about a word; of one that says all itself, nothing."""
    return next((words[word] for words in GROUPS.values() if word in words), "")
