"""Templates escape what they are given, and have nothing inline that the policy would refuse (O3)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from outbox_kernel.infrastructure.dashboard.rendering import (
    HERE,
    STATIC,
    address,
    environment,
    render,
    static_version,
)

TEMPLATES = sorted((HERE / "templates").glob("*.html"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_template_can_be_loaded(path: Path) -> None:
    environment().get_template(path.name)


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_a_style_or_a_script_of_its_own(path: Path) -> None:
    text = path.read_text()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)", text)
    assert "|safe" not in text.replace(" ", "")
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_form_that_changes_something_has_a_token(path: Path) -> None:
    for form in re.findall(r'<form method="post".*?</form>', path.read_text(), re.DOTALL):
        assert 'name="{{ token_field }}" value="{{ token }}"' in form


def test_what_a_page_is_given_is_escaped() -> None:
    page = render(
        "refused.html",
        {
            "title": "<script>alert(1)</script>",
            "status": 400,
            "happened": '"><img src=x onerror=alert(1)>',
            "remedy": None,
            "base": "",
            "theme": "auto",
        },
    )
    assert "<script>alert" not in page
    assert "<img" not in page


def test_an_address_leaves_out_what_is_nothing_and_escapes_the_rest() -> None:
    assert address("/ops", "/events", type="a b&c", since=None, from_=7, again=False) == (
        "/ops/events?type=a+b%26c&from=7"
    )
    assert address("", "/") == "/"


def test_the_licence_of_what_is_not_ours_lies_beside_it() -> None:
    assert (STATIC / "htmx.min.js").is_file()
    assert "Zero-Clause BSD" in (STATIC / "htmx.LICENSE.txt").read_text()
    assert re.fullmatch("[0-9a-f]{12}", static_version())
