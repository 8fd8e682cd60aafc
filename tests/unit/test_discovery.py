"""Where the contexts are looked for, and what is said where they are not (O1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from outbox_kernel.infrastructure import discovery
from outbox_kernel.infrastructure.discovery import context_folder, context_packages, project_folder
from outbox_kernel.infrastructure.errors import BadContext, ProjectElsewhere
from outbox_kernel.infrastructure.settings import Settings


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder two below an application's, where Python finds no `contexts`."""
    (tmp_path / "contexts").mkdir()
    (tmp_path / "contexts" / "__init__.py").touch()
    below = tmp_path / "docs" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.setattr(discovery, "find_spec", lambda _: None)
    return tmp_path


def test_a_subfolder_of_an_application_is_not_taken_for_one_without_contexts(elsewhere: Path) -> None:
    with pytest.raises(ProjectElsewhere, match="has a folder `contexts`: run this there") as refused:
        context_packages(Settings())
    assert refused.value.folder == elsewhere
    assert str(elsewhere / "docs" / "deep") in str(refused.value)


def test_an_application_without_contexts_has_none(elsewhere: Path) -> None:
    (elsewhere / "contexts" / "__init__.py").unlink()
    assert context_packages(Settings()) == ()
    assert project_folder() == Path.cwd()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("store_of_cakes.handlers", "is a module, .*: name the package, 'store_of_cakes'$"),
        ("stor_of_cakes", r"is not found from .*: correct its name \(in `contexts=`, or OUTBOX_CONTEXTS\)"),
        ("stor_of_cakes.inner", "is not found from"),
        (
            "lacking_of_cakes.inner",
            "the module 'no_module_of_cakes' is not installed here: install what it needs",
        ),
    ],
)
def test_what_is_no_package_of_a_context_is_told_with_what_to_name(
    name: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package, text in (("store_of_cakes", ""), ("lacking_of_cakes", "import no_module_of_cakes")):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(text)
    (tmp_path / "store_of_cakes" / "handlers.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BadContext, match=sentence):
        context_folder(name)
