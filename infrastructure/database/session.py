"""Sessions with capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from outbox_kernel.infrastructure.outbox.install import install_capture

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from outbox_kernel.infrastructure.master_keys import MasterKeys


def session_factory(
    engine: AsyncEngine,
    *,
    schema: str | None = None,
    channel: str | None = None,
    wake_up: bool = True,
    master_keys: MasterKeys | None = None,
) -> async_sessionmaker[AsyncSession]:
    """Return the maker of captured sessions on an engine; the options are those of `install_capture`."""
    # A committed aggregate stays readable: to load an expired attribute is what async code cannot do unasked.
    maker = async_sessionmaker(engine, expire_on_commit=False)
    return install_capture(maker, schema=schema, channel=channel, wake_up=wake_up, master_keys=master_keys)
