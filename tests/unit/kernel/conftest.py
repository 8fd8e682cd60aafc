"""What these tests define, they forget; and what others defined does not disturb them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from outbox_kernel.kernel.catalogue import definitions
from outbox_kernel.kernel.testing import isolated_definitions


@pytest.fixture(autouse=True)
def isolated() -> Iterator[None]:
    with isolated_definitions():
        definitions.handlers, definitions.upcasters = {}, {}
        yield
