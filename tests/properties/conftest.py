"""A bank of this folder's own, so that no example meets what another test left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import bank as banks
from tests import servers


@pytest.fixture(scope="session")
def bank_url(postgres_server: servers.Server) -> Iterator[str]:
    with banks.fresh_bank(postgres_server) as url:
        yield url
