"""Takes the picture of the dashboard that the README shows, of `outbox dev --sample`; `make picture` runs it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.browsers import NoBrowserError, running_browser

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "dashboard.png"
WIDTH, HEIGHT = 1440, 1010
BYTES_MAX = 200_000


def take(url: str) -> None:
    """Take it, once the page has its scripts and hears the server."""
    with running_browser() as browser:
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(url)
        page.wait_for_selector("#live-state:not([hidden])")
        # What the sample has of other scripts no picture needs: it depends on the machine's fonts.
        page.screenshot(path=PICTURE)


def main() -> int:
    """Serve the sample, and take the picture."""
    with tempfile.TemporaryDirectory(prefix="outbox-picture-") as folder:
        # The server that root starts runs as another user, who must get in.
        Path(folder).chmod(0o711)
        command = [sys.executable, "-m", "outbox_kernel", "dev", "--sample", "--json", "--port", "0"]
        with subprocess.Popen(
            [*command, "--folder", f"{folder}/sample"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server:
            assert server.stdout is not None  # noqa: S101 - it is a pipe
            told = ""
            try:
                for line in server.stdout:
                    told += line
                    if line.rstrip().endswith("}"):
                        break
                take(json.loads(told)["dashboard"])
            except NoBrowserError as error:
                print(error)
                return 1
            finally:
                server.send_signal(signal.SIGTERM)
    size = PICTURE.stat().st_size
    print(f"{PICTURE.name}: {size:,} bytes")
    return 0 if size < BYTES_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
