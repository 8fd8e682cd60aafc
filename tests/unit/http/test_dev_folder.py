"""The folder in which `outbox dev` keeps its data: one for each application, for one process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_kernel.infrastructure import dev
from outbox_kernel.infrastructure.dev import DevFolder, FolderRefused, default_folder


def test_two_applications_of_one_name_have_two_folders() -> None:
    one, other = default_folder(Path("/a/shop"), {}), default_folder(Path("/b/shop"), {})
    assert one != other
    assert one == default_folder(Path("/a/shop"), {})
    assert one.name.startswith("shop-")


def test_it_lies_with_the_users_other_data(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_folder(Path("/a"), {"XDG_DATA_HOME": "/data"}).parent == Path("/data/outbox-kernel")
    monkeypatch.setattr(dev, "is_root", lambda: False)
    monkeypatch.setenv("HOME", "/users/ada")
    assert default_folder(Path("/a"), {}).is_relative_to("/users/ada/.local/share/outbox-kernel")
    monkeypatch.setattr(dev, "is_root", lambda: True)
    assert default_folder(Path("/a"), {}).is_relative_to("/var/lib/outbox-kernel")


def test_it_is_one_processes_at_a_time(tmp_path: Path) -> None:
    folder = DevFolder(tmp_path / "new")
    with (
        folder.held(),
        pytest.raises(FolderRefused, match="is in use by another `outbox dev`: stop that one") as refused,
        DevFolder(tmp_path / "new").held(),
    ):
        pass
    assert refused.value.folder == folder.path
    with DevFolder(tmp_path / "new").held():
        pass


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(FolderRefused, match=r"cannot be written \(.+\): make it yours"),
        DevFolder(tmp_path / "file" / "in").held(),
    ):
        pass


def test_the_key_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    folder = DevFolder(tmp_path)
    assert folder.token_key() is None
    key = folder.made_token_key()
    assert len(key) == 64
    assert folder.made_token_key() == folder.token_key() == key
    assert (tmp_path / "token-key").stat().st_mode & 0o077 == 0


def test_the_master_key_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    """O6: what is sealed in one run can be opened in the next."""
    folder = DevFolder(tmp_path)
    made = folder.made_master_keys()
    assert made == folder.made_master_keys()
    assert made.active == "dev"
    assert (tmp_path / "master-key").stat().st_mode & 0o077 == 0
    (tmp_path / "master-key").write_text("dev:short")
    with pytest.raises(
        FolderRefused, match="master-key holds no key that serves: put back the one that was there"
    ):
        folder.made_master_keys()


def test_a_key_that_was_never_written_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "token-key").touch()
    assert not DevFolder(tmp_path).token_key()
    assert len(DevFolder(tmp_path).made_token_key()) == 64


def test_a_key_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "token-key").mkdir()
    with pytest.raises(FolderRefused, match="holds a key that cannot be read"):
        DevFolder(tmp_path).token_key()
