"""Runs the Python blocks of one page, in order, in one namespace and one loop: JSON lines in and out."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys
import traceback
from types import ModuleType
from typing import Any


def main() -> None:
    """Answer each block with what it printed, or with its traceback."""
    # As at a prompt: what lies in the reader's folder is found first, and nothing that lies beside this file.
    sys.path[0] = ""
    # A module like any other, so that annotations in it can be resolved.
    names = sys.modules.setdefault("page", ModuleType("page")).__dict__
    with asyncio.Runner() as runner:
        for request in sys.stdin:
            block = json.loads(request)
            printed = io.StringIO()
            error = None
            with contextlib.redirect_stdout(printed):
                try:
                    _run(block["code"], block["place"], names, runner)
                except BaseException:  # noqa: BLE001 - whatever it is, the test shows it
                    error = traceback.format_exc()
            print(json.dumps({"output": printed.getvalue(), "error": error}), flush=True)  # noqa: T201 - the answer


def _run(code: str, place: str, names: dict[str, Any], runner: asyncio.Runner) -> None:
    # As typed at a prompt: `await` may stand at the top, and this module's __future__ does not count.
    compiled = compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if compiled.co_flags & inspect.CO_COROUTINE:
        runner.run(_awaited(compiled, names))
    else:
        exec(compiled, names)  # noqa: S102 - that is what the page is for


async def _awaited(code: Any, names: dict[str, Any]) -> None:
    await eval(code, names)  # noqa: S307 - as above


if __name__ == "__main__":
    main()
