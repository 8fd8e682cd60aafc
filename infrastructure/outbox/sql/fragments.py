"""What a rule of SQL says, written once: which event types a pattern means."""

from __future__ import annotations


def like(pattern: str) -> str:
    """Return the expression that makes of a pattern of event types what LIKE takes; as `kernel.matching` has it."""
    # Neither a backslash nor a per cent sign can stand in one.
    return rf"replace(replace(replace({pattern}, '_', '\_'), '*', '%'), '?', '_')"
