"""Which turns of deliveries there is reason to look at: all there are, or those of which something was heard (R4, R13).

To look at all of them is to hop over the whole index, with all in it that was settled and cannot be cleaned up behind
somebody's long snapshot. So that is done at each poll, when somebody asks for it, and else now and then; of what was
stored or settled in this process the turn is known, and it alone is looked at.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

# The handler, and the key within which it takes one after the other.
TurnKey = tuple[str, str]

# More than these are found sooner by a look at all.
KNOWN_MAX = 5_000
# After a look at all, what is merely heard of causes the next when so many times longer is over, or, where it found
# something, when no turn is known any more.
# There is a limit, since what is measured is also how long the answer waited for this process, a lock or the road.
REST_TIMES = 9
REST_SECONDS_MAX = 1.0


@attrs.define(eq=False)
class DueTurns:
    """What is to be looked at next."""

    everywhere: bool = True
    """Whether somebody wants a look at all to begin, and at once."""
    _heard: bool = False
    """Whether one is to begin after a rest."""
    _after: dict[str, str] = attrs.Factory(dict)
    """Where a look at all goes on, by handler; one that has come to its end there waits for the others."""
    _known: dict[TurnKey, None] = attrs.Factory(dict)
    _in_use: set[TurnKey] = attrs.Factory(set)
    """Of which something was heard, and nothing could be taken: what is in hand may have been before it."""
    _was_fruitful: bool = False
    _rest_until: float = 0.0

    @property
    def scanning(self) -> bool:
        """Whether a look at all is under way, or to begin."""
        return self.everywhere or self._heard or bool(self._after)

    @property
    def has_known(self) -> bool:
        """Whether something was heard of a turn."""
        return bool(self._known)

    @property
    def rest_seconds(self) -> float:
        """Return how long to look at nothing but what is known."""
        if self.everywhere or self._after or (self._was_fruitful and not self._known):
            return 0.0
        return max(0.0, self._rest_until - time.monotonic())

    def hear(self, turns: Iterable[TurnKey]) -> None:
        """Take note that something was committed about these: they come first, then what others may have left."""
        self._known.update(dict.fromkeys(turns))
        self._heard = True
        if len(self._known) > KNOWN_MAX:
            self._known.clear()
            self.everywhere = True

    def hear_of_done(self, turns: Iterable[TurnKey]) -> None:
        """Take note that nothing of these is in hand any more: only where more was heard of is there reason to look."""
        self._heard = True
        for each in turns:
            if each in self._in_use:
                self._in_use.discard(each)
                self._known[each] = None

    def keep_in_use(self, turns: Iterable[TurnKey]) -> None:
        """Take note of those that were looked at in vain."""
        self._in_use.update(turns)
        if len(self._in_use) > KNOWN_MAX:
            self._in_use.clear()

    def take_known(self, most: int, runnable: Collection[str]) -> list[TurnKey]:
        """Take some; what cannot be run here now is found by a look at all when it can."""
        turns = list(islice(self._known, most))
        for each in turns:
            del self._known[each]
        return [each for each in turns if each[0] in runnable]

    def begin_scan(self) -> Mapping[str, str]:
        """Begin a look at all, or go on with it; return after which turns."""
        if not self._after:
            # Who says from now on that there is more may be too late for this look: he causes another.
            self.everywhere = self._heard = False
        return self._after

    def end_scan(self, began: float, after: dict[str, str], *, found: bool) -> None:
        """Take note of how far a step of it came, and for how long it was under way."""
        self._after = after
        now = time.monotonic()
        self._was_fruitful = found
        self._rest_until = now + min(REST_TIMES * (now - began), REST_SECONDS_MAX)

    def look_on(self) -> None:
        """Begin a look at all, unless one is under way."""
        self.everywhere = self.everywhere or not self._after
