"""The wheel, built once; and applications with tests of their own, for environments of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wheels import built_wheel

collect_ignore = ["adopter_app", "existing_app", "existing_app_adopted"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed."""
    return built_wheel(tmp_path_factory.mktemp("dist"))
