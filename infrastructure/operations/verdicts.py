"""What a check of the doctor comes to."""

from __future__ import annotations

from typing import Literal

import attrs


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
