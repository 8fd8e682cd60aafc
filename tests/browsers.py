"""Finding a Chromium for the tests: the one that the environment names, else the one that is installed.

One that was asked for must be there; one that was merely looked for may be missing, unless `OUTBOX_REQUIRE_SERVICES=1`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.servers import required

if TYPE_CHECKING:
    from playwright.sync_api import Browser

VARIABLE = "OUTBOX_TEST_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NONE = f"no Chromium is installed (Debian's package chromium), and {VARIABLE} names none"
# It runs as root in CI, shows nothing to nobody, and asks nobody for anything.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoBrowserError(Exception):
    """No Chromium: a sentence that says what to do."""


def program(environ: Mapping[str, str] = os.environ) -> str | None:
    """Where it is."""
    named = environ.get(VARIABLE)
    if named:
        return shutil.which(named)
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def missing(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The fixture that cannot be had here though nobody said that it must, with the reason."""
    if required(environ) or environ.get(VARIABLE) or program(environ) is not None:
        return {}
    return {"browser": NONE}


@contextmanager
def running_browser(environ: Mapping[str, str] = os.environ) -> Iterator[Browser]:
    """A browser that shows nothing."""
    found = program(environ)
    if found is None:
        raise NoBrowserError(NONE)
    # Here, since every run of pytest comes through this module, and few drive a browser.
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()
