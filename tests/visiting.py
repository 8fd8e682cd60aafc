"""A browser without scripts: it follows links, fills in forms and keeps cookies, as HTML says and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import attrs
import httpx

LOCAL = ("127.0.0.1", 4711)
OWN = "http://localhost"
MAY_BREAK = "\N{ZERO WIDTH SPACE}"


@attrs.define
class Form:
    """A form of a page, as it stands there."""

    action: str
    method: str
    fields: list[tuple[str, str]] = attrs.Factory(list)
    buttons: list[tuple[str, str | None, str, str]] = attrs.Factory(list)
    """Label, where it sends to if that is elsewhere, and the name and value that it adds."""

    def filled(self, **changes: str | None) -> list[tuple[str, str]]:
        """Return its fields with some of them changed, or left out."""
        kept = [(name, value) for name, value in self.fields if name not in changes]
        return [*kept, *((name, value) for name, value in changes.items() if value is not None)]


class Page(HTMLParser):
    """What a page has: its text, its links, its forms."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.words: list[str] = []
        self.checkboxes: list[str] = []
        self.suggestions: list[str] = []
        self._button: tuple[str | None, str, str] | None = None
        self._label: list[str] = []
        self.feed(html)

    @property
    def text(self) -> str:
        """What is read."""
        return " ".join(" ".join(self.words).replace(f" {MAY_BREAK} ", "").split())

    def form(self, action: str, **having: str) -> Form:
        """The form that sends there, with these fields in it."""
        found = [
            form
            for form in self.forms
            if urlsplit(form.action).path.endswith(action)
            and all((name, value) in form.fields for name, value in having.items())
        ]
        assert found, f"no form sends to {action} with {having}: {[form.action for form in self.forms]}"
        return found[0]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(given["href"])
        elif tag == "wbr":
            self.words.append(MAY_BREAK)
        elif tag == "form":
            self.forms.append(Form(given["action"], given.get("method", "get")))
        elif tag == "input":
            self._input(given)
        elif tag == "option" and "value" in given:
            self.suggestions.append(given["value"])
        elif tag == "button" and self.forms and given.get("type") != "button":
            self._button = (given.get("formaction"), given.get("name", ""), given.get("value", ""))
            self._label = []

    def _input(self, given: dict[str, str]) -> None:
        if given.get("type") == "checkbox":
            self.checkboxes.append(given.get("value", ""))
            if "checked" not in given:
                return
        if "name" in given:
            self.forms[-1].fields.append((given["name"], given.get("value", "")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "button" and self._button is not None:
            action, name, value = self._button
            self.forms[-1].buttons.append((" ".join(self._label), action, name, value))
            self._button = None

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self._button is not None:
            self._label.append(data.strip())


@attrs.define
class Visitor:
    """Somebody before a browser."""

    client: httpx.AsyncClient

    async def get(self, path: str, status: int = 200) -> Page:
        """Load a page."""
        response = await self.client.get(path)
        assert response.status_code == status, response.text
        return Page(response.text)

    async def send(self, form: Form, *, follow: bool = True, **changes: str | None) -> httpx.Response:
        """Send a form, and go where that leads."""
        fields = form.filled(**changes)
        if form.method == "get":
            return await self.client.get(f"{form.action}?{urlencode(fields)}", follow_redirects=follow)
        return await self.post(form.action, fields, follow=follow)

    async def post(
        self,
        action: str,
        fields: list[tuple[str, str]],
        headers: Mapping[str, str] | None = None,
        *,
        follow: bool = False,
    ) -> httpx.Response:
        """Send fields as a form of our own page does, unless the headers say otherwise."""
        sent = {
            "origin": str(self.client.base_url).rstrip("/"),
            "content-type": "application/x-www-form-urlencoded",
            **(headers or {}),
        }
        body = urlencode(fields).encode()
        return await self.client.post(
            action,
            content=body,
            headers={name: value for name, value in sent.items() if value},
            follow_redirects=follow,
        )

    async def did(self, form: Form, **changes: str | None) -> Page:
        """Send a form that does something, see that one is led away from it, and return the page that tells."""
        response = await self.send(form, follow=False, **changes)
        assert response.status_code == 303, response.text
        return await self.get(response.headers["location"])


@asynccontextmanager
async def visiting(
    app: Any, client: Any = LOCAL, base_url: str = OWN, **headers: str
) -> AsyncIterator[Visitor]:
    """Somebody who looks at an application, from this machine unless said otherwise."""
    transport = httpx.ASGITransport(app=app, client=client)
    async with httpx.AsyncClient(transport=transport, base_url=base_url, headers=headers) as browser:
        yield Visitor(browser)


def query_of(url: str) -> dict[str, str]:
    """What an address says."""
    return dict(parse_qsl(urlsplit(url).query))
