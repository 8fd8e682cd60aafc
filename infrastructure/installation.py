"""Whether the `kernel` that Python finds is the one this `infrastructure` was installed with."""

from __future__ import annotations

from outbox_kernel import shadowing_sentence


def require_our_kernel() -> None:
    """Raise `ImportError` with the sentence; the errors of a foreign kernel are not ours to derive from."""
    if sentence := shadowing_sentence():
        raise ImportError(sentence, name="kernel")
