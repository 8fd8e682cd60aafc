"""Plays a page of the documentation as a reader would: a folder, a shell, a Python, a database."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import asyncpg

from tests import servers
from tests.commands import environment_with
from tests.forge import FORGE
from tests.pages import ELSEWHERE, ROOT, Block, PageError, commands_of, is_excerpt, matches

_END = "---end of command---"
_EXPORTED = "import json, os; print(json.dumps(dict(os.environ)))"


class PageRunner:
    """Runs the blocks of one page in order. `fresh`: with nothing of this checkout in reach but its path.

    `serves`: it begins commands that serve, and ends them by signals.
    `python` is another environment's, with its programs beside it; `settings` are set before the page begins.
    """

    def __init__(
        self,
        folder: Path,
        database_url: str,
        *,
        fresh: bool = False,
        serves: bool = False,
        python: str | Path = sys.executable,
        **settings: str,
    ) -> None:
        self._folder = folder
        self._interpreter = Path(python)
        self._fresh, self._serves = fresh, serves
        self._database_url = database_url
        self._environment = {**self._make_environment(), **settings}
        self._shell = self._start("bash", "--norc", "--noprofile", merge_errors=True)
        self._python: subprocess.Popen[str] | None = None
        self._printed = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in (self._shell, self._python):
            if process is not None:
                process.communicate()

    def run(self, block: Block) -> None:
        """Run one block, and hold its output against what the page shows."""
        play = {
            "python": self._python_block,
            "console": self._console_block,
            "sql": self._sql_block,
            "text": self._text_block,
            "ini": self._file_block,
            "yaml": self._file_block,
            "diff": self._diff_block,
        }
        play[block.language](block)

    def _python_block(self, block: Block) -> None:
        if block.argument:
            self._file_block(block)
            return
        if self._python is None:
            # As a reader starts it: from that shell, with what it exports by then.
            exported, _ = self._in_shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(_EXPORTED)}")
            self._environment = json.loads(exported)
            self._python = self._start(str(self._interpreter), str(ROOT / "tests" / "page_worker.py"))
        request = json.dumps({"code": "\n" * block.line + block.text, "place": block.place})
        answer = json.loads(_asked(self._python, request))
        self._printed = answer["output"]
        if answer["error"]:
            raise PageError(f"{block.place} fails:\n{answer['error']}")

    def _file_block(self, block: Block) -> None:
        """Write the reader's file, or check that ours says what the page quotes."""
        if not block.argument:
            raise PageError(f"{block.place}: say which file this is")
        ours = ROOT / block.argument
        if ours.exists() and not self._fresh:
            if not is_excerpt(block.text, ours):
                raise PageError(f"{block.place} quotes {block.argument}, which says something else")
            return
        target = self._folder / block.argument
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text)

    def _diff_block(self, block: Block) -> None:
        if not block.argument or block.text.rstrip() not in (ROOT / block.argument).read_text():
            raise PageError(f"{block.place} is no part of a patch of ours: {block.argument or 'say which'}")

    def _console_block(self, block: Block) -> None:
        for command in commands_of(block):
            line = ELSEWHERE[command.line][0] if command.line in ELSEWHERE else command.line
            if not line:
                continue
            self._printed, code = self._in_shell(line)
            if code != 0:
                raise PageError(f"{block.place}: `{line}` ends with code {code}:\n{self._printed}")
            if command.output and not matches(command.output, self._printed):
                raise PageError(
                    f"{block.place}: `{line}` prints\n{self._printed}\ninstead of\n{command.output}"
                )

    def _sql_block(self, block: Block) -> None:
        servers.run(_execute(self._database_url, block.text))

    def _text_block(self, block: Block) -> None:
        if block.argument == "output" and not matches(block.text, self._printed):
            raise PageError(f"{block.place}: it prints\n{self._printed}\ninstead of\n{block.text}")

    def _in_shell(self, line: str) -> tuple[str, int]:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        # Commands read nothing, or they would read the commands after them.
        self._shell.stdin.write(f"{{ {line}\n}} </dev/null; printf '\\n%s %d\\n' {shlex.quote(_END)} $?\n")
        self._shell.stdin.flush()
        printed = ""
        for output in self._shell.stdout:
            if output.startswith(_END):
                return printed, int(output.split()[-1])
            printed += output
        raise PageError(f"`{line}` ended the shell:\n{printed}")

    def _make_environment(self) -> dict[str, str]:
        environment = environment_with(
            DATABASE_URL=self._database_url,
            CHECKOUT=str(ROOT),
            TERM="dumb",
            PIP_DISABLE_PIP_VERSION_CHECK="1",
        )
        path = [str(self._interpreter.parent), environment["PATH"]]
        if self._fresh:
            del environment["PYTHONPATH"]
        else:
            environment["PYTHONPATH"] = os.pathsep.join((str(self._folder), str(ROOT)))
            path.insert(0, str(_outbox_script(self._folder.parent / "bin", forged=not self._serves)))
        return {**environment, "PATH": os.pathsep.join(path)}

    def _start(self, *command: str, merge_errors: bool = False) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merge_errors else None,
            text=True,
        )


def _asked(process: subprocess.Popen[str], request: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def _outbox_script(folder: Path, *, forged: bool) -> Path:
    """Put the command of this checkout on the path, whether or not it is installed.

    One that is forged begins sooner, and hears no signals.
    """
    folder.mkdir(exist_ok=True)
    script = folder / "outbox"
    forge = f'"{sys.executable}" -S -E "{ROOT}/tests/forge.py" "{FORGE.address}"'
    command = forge if forged else f'"{sys.executable}" -m outbox_kernel'
    script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    script.chmod(0o755)
    return folder


async def _execute(url: str, statements: str) -> None:
    connection = await asyncpg.connect(url, timeout=servers.CONNECT_SECONDS_MAX)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()
