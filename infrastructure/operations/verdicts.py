"""What a check of the doctor comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from outbox_kernel.kernel.errors import KernelError


@attrs.frozen
class Check:
    """One question, its answer, and what to do about it."""

    check: str
    state: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str | None = None


def ok(check: str, detail: str) -> Check:
    """All is well."""
    return Check(check, "ok", detail)


def warn(check: str, detail: str, remedy: str) -> Check:
    """It works, and somebody should look."""
    return Check(check, "warn", detail, remedy)


def fail(check: str, detail: str, remedy: str) -> Check:
    """Something is not delivered, or will not be."""
    return Check(check, "fail", detail, remedy)


def halves(error: KernelError | str) -> tuple[str, str]:
    """Part a sentence of ours into what happened and what to do."""
    happened, _, remedy = str(error).rpartition(": ")
    return (happened, remedy) if happened else (remedy, "see the sentence")


def seconds(number: float) -> str:
    """Write a duration as a person says it."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{max(number, 0):.1f} s"
