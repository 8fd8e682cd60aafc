"""A small disk of a cell's own: a tmpfs in a mount namespace that nobody else sees."""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Self, TypeVar

from outbox_kernel.infrastructure.postgres import unprivileged

T = TypeVar("T")

# Of <sched.h> and <sys/mount.h>.
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000
BLOCK_BYTES = 8192
SIZE = "128m"


class SmallDisk:
    """One thread sees it, and so does every process that is started from there."""

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="outbox-disk-"))
        self.folder.chmod(0o755)
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(_mount, self.folder).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        self.folder.rmdir()

    async def run(self, do: Callable[[], T]) -> T:
        """Do it where the disk is to be seen."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, do)

    async def folder_for_the_server(self, name: str) -> Path:
        """Make a folder on it that the server may write to."""

        def make() -> Path:
            (self.folder / name).mkdir()
            shutil.chown(self.folder / name, unprivileged.USER_INSTEAD_OF_ROOT)
            return self.folder / name

        return await self.run(make)

    async def fill(self) -> None:
        """Leave no room for one block."""
        await self.run(self._fill)

    def _fill(self) -> None:
        size = BLOCK_BYTES * 128
        with self._ballast.open("ab", buffering=0) as file:
            while size >= BLOCK_BYTES // 2:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2

    async def free(self) -> None:
        """Give the room back."""
        await self.run(lambda: self._ballast.unlink(missing_ok=True))

    @property
    def _ballast(self) -> Path:
        return self.folder / "ballast"


def _mount(folder: Path) -> None:
    """Give this thread mounts of its own, and one more."""
    libc = ctypes.CDLL(None, use_errno=True)
    calls = (
        (libc.unshare, (CLONE_NEWNS,)),
        (libc.mount, (b"none", b"/", None, MS_REC | MS_PRIVATE, None)),
        (libc.mount, (b"none", bytes(folder), b"tmpfs", 0, f"size={SIZE},mode=0755".encode())),
    )
    for call, arguments in calls:
        if call(*arguments) != 0:
            raise OSError(ctypes.get_errno(), f"no disk of one's own: {os.strerror(ctypes.get_errno())}")


@cache
def missing_small_disk() -> str | None:
    """Say why there can be none here, or None."""
    if sys.platform != "linux" or not unprivileged.is_root():
        return "a small disk is a tmpfs in a mount namespace, which only root on Linux can make"
    try:
        with SmallDisk():
            return None
    except OSError as error:
        return str(error)
