"""The folder in which `outbox dev` keeps its database and its keys, for one process at a time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import BadSetting, InfrastructureError
from outbox_kernel.infrastructure.master_keys import MasterKeys, new_master_key
from outbox_kernel.infrastructure.postgres.unprivileged import is_root

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KEY_BYTES = 32
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
            self.path.mkdir(parents=True, exist_ok=True)
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
        """Return the key that tokens are signed with, if one was made here."""
        key = self._read(self._token_file)
        # Nothing is in it when whoever made it was killed at once.
        if key is not None and (not key or (len(key) >= KEY_BYTES and key.isascii())):
            return key
        if key is not None:
            raise FolderRefused(
                self._token_file,
                "holds no key that serves: remove this file, and `outbox dev` makes another",
            )
        return None

    def made_token_key(self) -> str:
        """Return that key, the same in every run; only this user may read it."""
        return self.token_key() or self._write(self._token_file, secrets.token_hex(KEY_BYTES))

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
        try:
            return file.read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FolderRefused(
                self.path, f"holds a key that cannot be read ({error.strerror}): make it yours"
            ) from error

    def _write(self, file: Path, made: str) -> str:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
            written.write(made)
        return made

    @property
    def _token_file(self) -> Path:
        return self.path / "token-key"

    @property
    def _master_file(self) -> Path:
        return self.path / "master-key"
