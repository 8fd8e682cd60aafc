"""Who is refused what: strangers, foreign pages, whoever lacks a right; and what is logged of it (O3)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse

from outbox_kernel.infrastructure.dashboard import ALL_RIGHTS, Dashboard, Operator, Right
from outbox_kernel.infrastructure.dashboard import visit as visits
from outbox_kernel.infrastructure.database import create_engine
from outbox_kernel.infrastructure.errors import ArgumentRefused
from outbox_kernel.infrastructure.settings import Settings
from tests.integration.dashboard.conftest import SETTINGS
from tests.integration.operations.conftest import HANDLER, Outbox
from tests.visiting import Form, Visitor, visiting

STRANGER = ("10.9.8.7", 99)
# Each action with what it takes, and the right for it.
ACTIONS = {
    "/do/retry": (Right.RETRY, {"handler": HANDLER}),
    "/do/skip": (Right.SKIP, {"handler": HANDLER}),
    "/do/pause": (Right.PAUSE, {"name": HANDLER}),
    "/do/resume": (Right.PAUSE, {"name": HANDLER}),
    "/do/rewind": (Right.RETRY, {"name": HANDLER, "position": "1"}),
    "/do/retire": (Right.PURGE, {"name": HANDLER}),
    "/do/purge": (Right.PURGE, {"days": "0"}),
    "/do/theme": (Right.VIEW, {"theme": "dark"}),
}
QUESTIONS = {
    f"/confirm/retry?handler={HANDLER}": Right.RETRY,
    f"/confirm/skip?handler={HANDLER}": Right.SKIP,
    f"/confirm/rewind?name={HANDLER}": Right.RETRY,
    f"/confirm/retire?name={HANDLER}": Right.PURGE,
    "/confirm/purge": Right.PURGE,
}


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "outbox.dashboard")
    return caplog


def reasons(told: pytest.LogCaptureFixture) -> list[str]:
    return [vars(each)["reason"] for each in told.records if vars(each).get("action") == "dashboard.refused"]


def as_ada(*rights: Right) -> Any:
    return lambda _: Operator("ada", {Right.VIEW, *rights})


async def state_of(outbox: Outbox) -> list[Any]:
    """What an action might change."""
    found = []
    for table in (
        "outbox_subscriptions",
        "outbox_deliveries",
        "outbox_cursors",
        "outbox_receipts",
        "outbox_events",
    ):
        found += [tuple(row) for row in await outbox.rows(f"SELECT * FROM {table} ORDER BY 1, 2")]
    return found


@pytest.fixture
async def busy(outbox: Outbox) -> Outbox:
    """An outbox in which each action would change something."""
    await outbox.subscription()
    await outbox.failed_event(days_old=9)
    await outbox.event(days_old=9)
    await outbox.passed()
    return outbox


async def form_of(visitor: Visitor, action: str) -> Form:
    """A form as our own page would send it: with its token, and the cookie of its session."""
    page = await visitor.get("/")
    token = dict(page.form("/do/theme").fields)["form_token"]
    return Form(action, "post", [("form_token", token), *ACTIONS[action][1].items()])


# --- beyond this machine -------------------------------------------------------------------------------


async def test_without_authorize_nobody_else_is_answered(
    engine: AsyncEngine, told: pytest.LogCaptureFixture
) -> None:
    for options in (
        {"client": STRANGER},
        {"base_url": "http://evil.example"},
        {"x-forwarded-for": "127.0.0.1"},
    ):
        async with visiting(Dashboard(SETTINGS, engine), **options) as visitor:
            for path in ("/", "/events", "/live", "/static/dashboard.css", "/nowhere"):
                page = await visitor.get(path, 403)
                assert "authorize" in page.text
    assert set(reasons(told)) == {"client", "host", "proxy"}


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_page_with_a_name_that_leads_here_can_do_nothing(
    busy: Outbox, visitor: Visitor, engine: AsyncEngine, action: str
) -> None:
    """As DNS rebinding does: its own name, which leads to 127.0.0.1, and so it is the same origin."""
    form = await form_of(visitor, action)
    before = await state_of(busy)
    async with visiting(visitor.client._transport.app, base_url="http://evil.example") as evil:  # type: ignore[attr-defined]  # noqa: SLF001 - the same application
        evil.client.cookies = visitor.client.cookies
        response = await evil.send(form, follow=False)
    assert response.status_code == 403
    assert await state_of(busy) == before


# --- forms that are not ours ---------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_form_of_our_own_page_is_taken(busy: Outbox, visitor: Visitor, action: str) -> None:
    response = await visitor.send(await form_of(visitor, action), follow=False)
    assert response.status_code == 303, response.text


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_form_of_another_origin_is_refused(
    busy: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture, action: str
) -> None:
    form, before = await form_of(visitor, action), await state_of(busy)
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ):
        response = await visitor.post(form.action, form.fields, headers)
        assert response.status_code == 403
    assert await state_of(busy) == before
    assert reasons(told) == ["origin"] * 5


@pytest.mark.parametrize("action", ACTIONS)
async def test_a_form_without_its_token_is_refused(
    busy: Outbox, visitor: Visitor, told: pytest.LogCaptureFixture, action: str
) -> None:
    form, before = await form_of(visitor, action), await state_of(busy)
    for token in (None, "", "guessed", dict(form.fields)["form_token"][:-1]):
        response = await visitor.send(form, follow=False, form_token=token)
        assert response.status_code == 403
        assert "another session, or too old" in response.text
    visitor.client.cookies.clear()
    assert (await visitor.send(form, follow=False)).status_code == 403
    assert await state_of(busy) == before
    assert reasons(told) == ["token"] * 5


async def test_a_token_of_somebody_else_is_refused(busy: Outbox, engine: AsyncEngine) -> None:
    dashboard = Dashboard(
        SETTINGS, engine, authorize=lambda asked: Operator(asked.headers["x-who"], ALL_RIGHTS)
    )
    async with visiting(dashboard, **{"x-who": "eve"}) as eve, visiting(dashboard, **{"x-who": "ada"}) as ada:
        form = await form_of(eve, "/do/pause")
        # Her whole cookies put into Ada's browser, as a page of a sibling domain may.
        await ada.get("/")
        ada.client.cookies = eve.client.cookies
        assert (await ada.send(form, follow=False)).status_code == 403
        assert (await eve.send(form, follow=False)).status_code == 303


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_is_no_link(visitor: Visitor, outbox: Outbox, action: str) -> None:
    for method in ("GET", "HEAD", "PUT", "DELETE"):
        assert (await visitor.client.request(method, action)).status_code == 405


async def test_a_page_is_no_form(visitor: Visitor, outbox: Outbox) -> None:
    assert (await visitor.client.post("/events")).status_code == 405


async def test_what_is_no_form_is_refused(
    visitor: Visitor, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = await form_of(visitor, "/do/theme")
    response = await visitor.post(form.action, form.fields, {"content-type": "application/json"})
    assert response.status_code == 415
    sent = {"origin": "http://localhost", "content-type": "application/x-www-form-urlencoded"}
    response = await visitor.client.post(form.action, content=b"\xff=%ff", headers=sent)
    assert response.status_code == 400
    monkeypatch.setattr(visits, "FORM_BYTES_MAX", 10)
    assert (await visitor.send(form, follow=False)).status_code == 413


@pytest.mark.parametrize(
    "address",
    [
        *(
            f"{path}?{name}=%00"
            for path, name in (("/find", "q"), ("/aggregate", "key"), ("/subscription", "name"))
        ),
        *(f"/events?{name}=a%00b" for name in ("type", "aggregate", "text", "missed")),
        *(f"/dead-letters/of?handler=a&{name}=%00" for name in ("handler", "kind", "type")),
        *(f"/confirm/{verb}?handler=a&kind=%00" for verb in ("retry", "skip")),
        *(f"/confirm/{verb}?name=%00" for verb in ("rewind", "retire")),
    ],
)
async def test_what_no_database_can_be_asked_for_is_refused(
    visitor: Visitor, outbox: Outbox, address: str
) -> None:
    assert "has a NUL, which no text here has" in (await visitor.get(address, 400)).text


@pytest.mark.parametrize(
    "action", [action for action, (_, fields) in ACTIONS.items() if "name" in fields or "handler" in fields]
)
async def test_no_form_says_it_either(busy: Outbox, visitor: Visitor, action: str) -> None:
    form, before = await form_of(visitor, action), await state_of(busy)
    form.fields = [
        (name, f"{value}\0" if name in ("name", "handler") else value) for name, value in form.fields
    ]
    response = await visitor.send(form, follow=False)
    assert response.status_code == 400
    assert "has a NUL, which no text here has" in response.text
    assert await state_of(busy) == before


# --- rights --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lacking", [right for right in Right if right is not Right.VIEW])
async def test_without_a_right_one_sees_no_button_for_it_and_may_not_do_it(
    busy: Outbox, engine: AsyncEngine, told: pytest.LogCaptureFixture, lacking: Right
) -> None:
    dashboard = Dashboard(SETTINGS, engine, authorize=as_ada(*(ALL_RIGHTS - {lacking})))
    async with visiting(dashboard, client=STRANGER) as visitor:
        refused = {action for action, (right, _) in ACTIONS.items() if right is lacking}
        asked = {question for question, right in QUESTIONS.items() if right is lacking}
        before = await state_of(busy)
        for action in refused:
            response = await visitor.send(await form_of(visitor, action), follow=False)
            assert response.status_code == 403
            assert f"ada has no right to {lacking} here" in response.text
        assert await state_of(busy) == before
        for question in asked:
            await visitor.get(question, 403)
        for path in (
            "/",
            "/subscriptions",
            f"/subscription?name={HANDLER}",
            "/dead-letters",
            "/relays",
            "/events/1",
        ):
            page = await visitor.get(path)
            led = {*(form.action for form in page.forms), *(link.partition("?")[0] for link in page.links)}
            assert led.isdisjoint({*refused, *(question.partition("?")[0] for question in asked)}), path
    assert {reason for reason in reasons(told) if reason != f"right {lacking}"} == set()
    assert {vars(each).get("who") for each in told.records} <= {"ada"}


async def test_without_the_right_to_payloads_nothing_of_them_is_seen_or_searched(
    busy: Outbox, engine: AsyncEngine
) -> None:
    async with visiting(Dashboard(SETTINGS, engine, authorize=as_ada()), client=STRANGER) as visitor:
        page = await visitor.get("/events/1")
        assert "You have no right to see payloads" in page.text
        assert "***" not in page.text
        assert "text" not in dict((await visitor.get("/events")).form("/events").fields)
        assert "has no right to look into payloads" in (await visitor.get("/events?text=a", 403)).text


# --- authorize -----------------------------------------------------------------------------------------


async def test_whom_authorize_does_not_know_is_refused(
    engine: AsyncEngine, outbox: Outbox, told: pytest.LogCaptureFixture
) -> None:
    async def nobody(_: Request) -> None:
        return None

    for answer in (nobody, lambda _: None):
        async with visiting(Dashboard(SETTINGS, engine, authorize=answer)) as visitor:
            assert "You are not let in here" in (await visitor.get("/", 403)).text
    async with visiting(
        Dashboard(SETTINGS, engine, authorize=lambda _: Operator("eve", {Right.RETRY}))
    ) as visitor:
        assert "eve has no right to view here" in (await visitor.get("/", 403)).text
    assert reasons(told) == ["authorize", "authorize", "right view"]


async def test_authorize_may_ask_to_log_in(engine: AsyncEngine, outbox: Outbox) -> None:
    def ask(_: Request) -> Operator:
        raise HTTPException(401, "log in first", {"www-authenticate": "Basic"})

    async with visiting(Dashboard(SETTINGS, engine, authorize=ask)) as visitor:
        response = await visitor.client.get("/")
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Basic")
        assert "Log in first" in response.text or "log in first" in response.text
    login = Dashboard(SETTINGS, engine, authorize=lambda _: RedirectResponse("/login"))
    async with visiting(login) as visitor:
        for response in (
            await visitor.client.get("/"),
            await visitor.post("/do/theme", [("theme", "dark")]),
        ):
            assert (response.status_code, response.headers["location"]) == (307, "/login")


async def test_authorize_is_asked_from_anywhere_by_any_name(engine: AsyncEngine, outbox: Outbox) -> None:
    asked: list[str] = []

    async def authorize(request: Request) -> Operator:
        asked.append(request.url.path)
        return Operator("ada", ALL_RIGHTS)

    async with visiting(
        Dashboard(SETTINGS, engine, authorize=authorize),
        client=STRANGER,
        base_url="https://ops.example",
        **{"x-forwarded-for": "10.0.0.1"},
    ) as visitor:
        page = await visitor.get("/")
        assert "ada" in page.text
        response = await visitor.send(page.form("/do/theme"), follow=False, theme="dark")
        assert response.status_code == 303
        assert "secure" in response.headers["set-cookie"].lower()
    assert asked == ["/", "/do/theme"]


async def test_an_authorize_that_is_none_is_a_mistake(engine: AsyncEngine, outbox: Outbox) -> None:
    with pytest.raises(ArgumentRefused, match="is nothing that can be called"):
        Dashboard(SETTINGS, engine, authorize="ada")  # type: ignore[arg-type]
    async with visiting(Dashboard(SETTINGS, engine, authorize=lambda _: True)) as visitor:  # type: ignore[arg-type,return-value]
        with pytest.raises(ArgumentRefused, match="has returned a bool: let it return an Operator"):
            await visitor.get("/")


# --- a database that does not answer -------------------------------------------------------------------


async def test_a_database_that_is_away_is_said(told: pytest.LogCaptureFixture) -> None:
    engine = create_engine("postgresql://nobody@127.0.0.1:1/nothing")
    async with visiting(Dashboard(Settings(contexts=()), engine)) as visitor:
        response = await visitor.client.get("/events")
    assert (response.status_code, response.headers["retry-after"]) == (503, "5")
    assert "127.0.0.1" in response.text
    assert [vars(each)["action"] for each in told.records] == ["dashboard.unavailable"]
    await engine.dispose()


async def test_a_database_that_is_not_migrated_is_said(empty_postgres_url: str) -> None:
    engine = create_engine(empty_postgres_url)
    async with visiting(Dashboard(Settings(contexts=()), engine)) as visitor:
        assert "is not migrated" in (await visitor.get("/", 503)).text
    await engine.dispose()


async def test_what_an_operation_refuses_while_a_page_is_made_is_a_page(
    busy: Outbox, visitor: Visitor
) -> None:
    event_id = await busy.value("SELECT event_id FROM outbox_events WHERE position = 1")
    lease = await busy.relay({HANDLER: {"bank.paid": 1}})
    await busy.execute(
        "UPDATE outbox_deliveries SET status = 'leased', lease_relay = $1, lease_epoch = $2", *lease
    )
    page = await visitor.get(f"/confirm/skip?handler={HANDLER}&event={event_id}", 409)
    assert "is handling event" in page.text
