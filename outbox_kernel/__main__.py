"""The `outbox` command, which `python -m outbox_kernel` is too."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    """Run the command line, in the folder of an application whose `contexts` it shall find."""
    # As with `python -m`.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        from outbox_kernel.infrastructure.cli import main  # noqa: PLC0415 - loading it may be interrupted
    except KeyboardInterrupt:
        # The command itself, once it is there, says so too.
        sys.exit(130)
    main()


if __name__ == "__main__":
    main()
