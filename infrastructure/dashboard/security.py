"""What is refused before anything is shown: strangers, foreign names and foreign pages (O3)."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from outbox_kernel.infrastructure.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request

# By which a browser runs nothing that is not a file of ours, sends no form elsewhere and shows us in no frame. What is
# asked for says where it comes from, to ourselves alone: without that forms would come from nowhere.
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
# Whoever adds one of these hands on what others have asked, and nobody knows whom.
_HANDED_ON = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")


class Refused(InfrastructureError):
    """Somebody is not to be shown this, or may not do it; `status` is HTTP's word for it."""

    def __init__(self, status: int, sentence: str, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(sentence)


def require_this_machine(request: Request) -> None:
    """Refuse whoever is not at this machine, or has come by a name that is not this machine's.

    A page of somebody's may have its own name lead to 127.0.0.1, and would so read what is shown here: the name in the
    request is still that one.
    """
    remedy = "give the dashboard `authorize`, which says who asks"
    if request.client is None or not is_loopback(request.client.host):
        raise Refused(403, f"without `authorize` only this machine itself is answered: {remedy}", "client")
    if any(name in request.headers for name in _HANDED_ON):
        raise Refused(
            403, f"without `authorize` nothing is answered that a proxy hands on: {remedy}", "proxy"
        )
    name = host_name(request.headers.get("host", ""))
    if name not in _LOCAL_NAMES and not is_loopback(name):
        raise Refused(
            403,
            f"{name!r} is no name of this machine's own: ask for localhost or 127.0.0.1, or {remedy}",
            "host",
        )


def is_loopback(address: str) -> bool:
    """Whether an address leads back to this machine."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def host_name(host: str) -> str:
    """Return the name of what a Host header says, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def require_text(fields: Iterable[tuple[str, str]]) -> None:
    """Refuse what PostgreSQL can be asked for by nobody: a NUL."""
    for name, value in fields:
        if "\0" in value:
            raise Refused(400, f"{name!r} has a NUL, which no text here has: write it without", "text")


def require_own_page(request: Request) -> None:
    """Refuse a form that a page of somebody else's has sent; browsers say whose it was."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        is_own = site == "same-origin"
    else:
        is_own = origin is not None and urlsplit(origin).netloc == request.headers.get("host")
    if not is_own:
        raise Refused(
            403, "this did not come from a page of the dashboard: open it, and do it there", "origin"
        )
