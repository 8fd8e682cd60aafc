"""In which colours a browser is shown all this: its own affair, and no matter for the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse

from outbox_kernel.infrastructure.dashboard.sealing import keep_theme
from outbox_kernel.infrastructure.dashboard.visit import THEMES, own_path

if TYPE_CHECKING:
    from starlette.responses import Response

    from outbox_kernel.infrastructure.dashboard.visit import Form, Visit


async def theme(visit: Visit, form: Form) -> Response:
    """Remember it, and go back."""
    response = RedirectResponse(f"{visit.base}{own_path(form.get('back'))}", 303)
    wanted = form.get("theme")
    keep_theme(response, visit.request, wanted if wanted in THEMES else THEMES[0])
    return response
