"""The folder in which `outbox dev` keeps its database and its keys, for one process at a time."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import BadSetting, InfrastructureError
from outbox_kernel.infrastructure.limits import KEY_BYTES_READ_MAX, TOKEN_KEY_BYTES
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.postgres.unprivileged import is_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# Where everybody may enter, since the server that root starts runs as another user.
ROOTS_DATA = Path("/var/lib")


class FolderRefused(InfrastructureError):
    """The folder cannot be used; `folder` is which."""

    def __init__(self, folder: Path, sentence: str) -> None:
        self.folder = folder
        super().__init__(f"{folder} {sentence}")


def default_folder(project: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Say where the data of an application's folder are: under the user's data, told apart by its path."""
    data = ROOTS_DATA if is_root() else Path.home() / ".local" / "share"
    home = Path(environ.get("XDG_DATA_HOME") or data)
    mark = hashlib.sha256(str(project).encode()).hexdigest()[:8]
    return home / "outbox-kernel" / f"{project.name}-{mark}"


class DevFolder:
    """What is kept between two runs."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().resolve()

    @property
    def database(self) -> Path:
        """The data of the embedded PostgreSQL."""
        return self.path / "postgres"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and keep others out of it while this process lives, however it ends."""
        try:
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._check_owner()
            lock = (self.path / "lock").open("ab")
        except OSError as error:
            raise FolderRefused(
                self.path,
                f"cannot be written ({error.strerror}): make it yours, or choose another with --folder",
            ) from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderRefused(
                    self.path,
                    "is in use by another `outbox dev`: stop that one, or choose another with --folder",
                ) from None
            yield

    def token_key(self) -> str | None:
        """Return the key that tokens are signed with, if one was made here; none that others may have put there."""
        key = self._read(self._token_file)
        if key and (len(key) < TOKEN_KEY_BYTES or not key.isascii()):
            raise FolderRefused(
                self._token_file, "holds no key that serves: remove this file, and `outbox dev` makes another"
            )
        return key

    def made_token_key(self) -> str:
        """Return that key, the same in every run; only this user may read it."""
        return self.token_key() or self._write(self._token_file, secrets.token_hex(TOKEN_KEY_BYTES))

    def made_master_keys(self) -> MasterKeys:
        """Return the key that sealed fields need, the same in every run; only this user may read it."""
        text = self._read(self._master_file) or self._write(self._master_file, new_master_key("dev"))
        try:
            return MasterKeys.parse(text)
        except BadSetting:
            raise FolderRefused(
                self._master_file,
                "holds no key that serves: put back the one that was there, or what it has sealed stays sealed",
            ) from None

    def _read(self, file: Path) -> str | None:
        """Return what a file of ours holds; nothing, if whoever made it was killed at once."""
        try:
            self._check_owner()
            key, found = _opened(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(file, error) from error
        if key:
            _check_key_file(file, found)
        return key.decode(errors="replace")

    def _write(self, file: Path, made: str) -> str:
        file.unlink(missing_ok=True)
        only_new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(file, only_new, 0o600), "w") as written:
            written.write(made)
        return made

    def _check_owner(self) -> None:
        found = self.path.stat()
        if found.st_uid != os.geteuid():
            raise FolderRefused(
                self.path,
                "is another user's, who could put a key of theirs there: choose another with --folder",
            )
        if found.st_mode & _OF_OTHERS:
            raise FolderRefused(
                self.path,
                "can be written by others, who could put a key of theirs there: run `chmod go-w` on it, or choose "
                "another with --folder",
            )

    def _unreadable(self, file: Path, error: OSError) -> FolderRefused:
        if error.errno == errno.ELOOP:
            return FolderRefused(file, "is a link to somewhere else: remove it, and `outbox dev` makes a key")
        return FolderRefused(self.path, f"holds a key that cannot be read ({error.strerror}): make it yours")

    @property
    def _token_file(self) -> Path:
        return self.path / "token-key"

    @property
    def _master_file(self) -> Path:
        return self.path / "master-key"


def _opened(file: Path) -> tuple[bytes, os.stat_result]:
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return os.read(opened, KEY_BYTES_READ_MAX), os.fstat(opened)
    finally:
        os.close(opened)


def _check_key_file(file: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise FolderRefused(file, "was put there by somebody else: remove it, and `outbox dev` makes another")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise FolderRefused(
            file,
            "can be read or written by others, who could sign in as anybody: remove it, and `outbox dev` makes another",
        )
