"""The `outbox` command, which `python -m outbox_kernel` is too: it says who hides ours before it needs ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from outbox_kernel import shadowing_sentence


def main() -> None:
    """Run the command line, in the folder of an application whose `contexts` it shall find."""
    # As with `python -m`; a foreign `kernel` or `infrastructure` is found there too.
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    if sentence := shadowing_sentence():
        as_json = "--json" in sys.argv[1:]
        line = json.dumps({"error": sentence, "kind": "Shadowed"}) if as_json else f"error: {sentence}"
        sys.exit(line)  # to stderr, with code 1
    try:
        from infrastructure.cli import main  # noqa: PLC0415 - only now is it known to be ours
    except KeyboardInterrupt:
        # The command itself, once it is there, says so too.
        sys.exit(130)
    main()


if __name__ == "__main__":
    main()
