"""The templates, and what all of them are given."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from outbox_kernel.infrastructure.dashboard import charts, words
from outbox_kernel.infrastructure.dashboard.kinds import kind_field, kind_of
from outbox_kernel.infrastructure.dashboard.meanings import meaning
from outbox_kernel.infrastructure.dashboard.operator import Right
from outbox_kernel.kernel.identity import stream_key
from outbox_kernel.kernel.limits import NAME_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).parent
STATIC = HERE / "static"


@cache
def environment() -> Environment:
    """Load the templates; whatever they are given is escaped, and a name that is not given is a defect of ours."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update({name: getattr(words, name) for name in words.__all__})
    made.filters.update(meaning=meaning, kind_field=kind_field, kind_of=kind_of)
    made.globals.update(
        charts=charts, Right=Right, static_version=static_version(), aggregate_of=aggregate_of
    )
    return made


@cache
def static_version() -> str:
    """Return what changes whenever one of the files does, so that browsers may keep them."""
    digest = hashlib.sha256()
    for path in sorted(STATIC.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a page."""
    return environment().get_template(template).render(values)


def address(base: str, path: str, **query: object) -> str:
    """Return the address of a page; what is nothing is left out."""
    said = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "", False)}
    return f"{base}{path}" + (f"?{urlencode(said, doseq=True)}" if said else "")


def aggregate_of(event: Any) -> str | None:
    """Return whose event it is, as an operator types it; None where it is no aggregate's that capture would write."""
    kind, identity = event.aggregate_type, event.aggregate_key or event.aggregate_id
    if identity is None or not kind or len(kind) > NAME_CHARACTERS_MAX or stream_key(identity) is None:
        return None
    return f"{kind}:{identity}"
