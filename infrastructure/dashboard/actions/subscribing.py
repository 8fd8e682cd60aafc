"""Pause, resume, rewind, retire: a subscription as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.dashboard.actions.doing import done
from outbox_kernel.infrastructure.dashboard.pages.confirming import position_of
from outbox_kernel.infrastructure.dashboard.security import Refused
from outbox_kernel.infrastructure.dashboard.visit import own_path
from outbox_kernel.infrastructure.operations import replaying, subscriptions
from outbox_kernel.infrastructure.plain_text import count

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Form, Visit
    from outbox_kernel.infrastructure.operations.replaying import Rewound
    from outbox_kernel.infrastructure.operations.subscriptions import Retired


async def pause(visit: Visit, form: Form) -> Response:
    """Hold a subscription."""
    name = form.required("name")
    return await done(
        visit,
        "pause",
        {"subscription": name},
        lambda desk: subscriptions.pause(desk, name),
        lambda changed: (f"{name} is paused{'' if changed else ' already'}", {"changed": changed}),
        _back(form, name),
    )


async def resume(visit: Visit, form: Form) -> Response:
    """Let a subscription go on."""
    name = form.required("name")
    return await done(
        visit,
        "resume",
        {"subscription": name},
        lambda desk: subscriptions.resume(desk, name),
        lambda changed: (f"{name} goes on" if changed else f"{name} was not paused", {"changed": changed}),
        _back(form, name),
    )


async def rewind(visit: Visit, form: Form) -> Response:
    """Have a subscription handle the past again, from a position on."""
    name, again = form.required("name"), form.get("again") is not None
    try:
        position = position_of(form.required("position"))
    except ValueError:
        raise Refused(400, "that is no position: write a number such as 4711", "form") from None

    def told(rewound: Rewound) -> tuple[str, dict[str, object]]:
        events = f"{'at least ' if rewound.is_at_least else ''}{count(rewound.events, 'event')}"
        if not rewound.shards:
            return f"{name} has yet to come to position {position}, and is left where it is", {"shards": 0}
        return (
            f"{name} goes on from position {position}: {events} to go",
            {"shards": rewound.shards, "effects": rewound.effects},
        )

    return await done(
        visit,
        "rewind",
        {"subscription": name, "position": position, "again": again},
        lambda desk: replaying.rewind(desk, name, position, again=again),
        told,
        _back(form, name),
    )


async def retire(visit: Visit, form: Form) -> Response:
    """End a subscription that nobody carries, or one pattern of it."""
    name, pattern = form.required("name"), form.get("pattern")

    def told(ended: Retired) -> tuple[str, dict[str, object]]:
        what = name if pattern is None else f"{pattern} of {name}"
        word = "retired" if ended.newly else "retired already"
        skipped = count(ended.skipped, "delivery", "deliveries")
        return f"{what} is {word}, {skipped} skipped", {"changed": ended.newly, "skipped": ended.skipped}

    return await done(
        visit,
        "retire",
        {"subscription": name, "pattern": pattern},
        lambda desk: (
            subscriptions.retire(desk, name)
            if pattern is None
            else subscriptions.retire_pattern(desk, name, pattern)
        ),
        told,
        _back(form, name),
    )


def _back(form: Form, name: str) -> tuple[str, dict[str, object]]:
    given = form.get("back")
    return ("/subscription", {"name": name}) if given is None else (own_path(given), {})
