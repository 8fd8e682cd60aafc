"""Every test here runs on each broker that those of publishing run on."""

from __future__ import annotations

from tests.conformance.publishing.conftest import stage

__all__ = ["stage"]
