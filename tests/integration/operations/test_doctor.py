"""Doctor: each finding with a remedy, and a failure only where something is not delivered (O1, O5)."""

from __future__ import annotations

from typing import Any

import pytest

import contexts.accounts.handlers  # noqa: F401 - registers them
from infrastructure.operations.health import examine
from infrastructure.operations.health_of_work import examine_work
from infrastructure.operations.overview import overview
from infrastructure.operations.verdicts import Check
from infrastructure.relay import RelaySettings
from infrastructure.settings import Settings
from kernel import catalogue

HANDLER = "bank.Letters"


@pytest.fixture(autouse=True)
def only_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what other tests of this process have registered, since no container here can make it."""
    handlers = catalogue.definitions.handlers
    mine = {name: found for name, found in handlers.items() if name.startswith("accounts.")}
    monkeypatch.setattr(catalogue.definitions, "handlers", mine)


async def work(outbox: Any) -> dict[str, Check]:
    return {each.check: each for each in await examine_work(outbox.desk, await overview(outbox.desk))}


async def test_an_outbox_at_rest_with_a_relay_is_well(outbox: Any) -> None:
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    await outbox.event()
    assert {each.state for each in (await work(outbox)).values()} == {"ok"}


async def test_without_a_relay_a_backlog_is_a_failure_and_an_empty_outbox_a_warning(outbox: Any) -> None:
    assert (await work(outbox))["relays"].state == "warn"
    await outbox.event(status="pending")
    found = (await work(outbox))["relays"]
    assert (found.state, found.detail) == ("fail", "none lives, and 1 events are undelivered")
    assert found.remedy == "start `outbox relay`"


async def test_an_old_event_is_named_with_the_command_that_tells_why(outbox: Any) -> None:
    await outbox.relay()
    event = await outbox.event(status="pending", days_old=1)
    found = (await work(outbox))["oldest event"]
    assert found.state == "warn"
    assert found.remedy == f"`outbox show {event}` says what it waits for"


async def test_a_lease_of_nobody_fails_when_a_live_relay_does_not_take_it_over(outbox: Any) -> None:
    event = await outbox.event(status="open")
    await outbox.delivery(event, "leased", lease=await outbox.relay(live=False))
    assert (await work(outbox))["leases"].state == "warn"
    await outbox.relay({HANDLER: {"bank.paid": 1}})
    assert (await work(outbox))["leases"].state == "ok"
    await outbox.execute("UPDATE outbox_deliveries SET updated_at = now() - interval '3 minutes'")
    found = (await work(outbox))["leases"]
    assert (found.state, found.detail) == ("fail", "1 are held by nobody, the oldest since 3.0 min")


async def test_deliveries_that_nobody_can_run_fail_with_both_remedies(outbox: Any) -> None:
    await outbox.subscription()
    await outbox.delivery(await outbox.event(status="open"), "waiting")
    found = (await work(outbox))["abilities"]
    assert found.state == "fail"
    assert found.remedy == "deploy the code that can, or end the handler with `outbox retire bank.Letters`"
    await outbox.execute("UPDATE outbox_subscriptions SET retired_at = now()")
    assert (await work(outbox))["abilities"].remedy == "`outbox retire bank.Letters` again ends them"


async def test_dead_letters_and_paused_handlers_are_warnings(outbox: Any) -> None:
    await outbox.subscription()
    await outbox.execute("UPDATE outbox_subscriptions SET paused_at = now()")
    await outbox.delivery(await outbox.event(status="dead"))
    found = await work(outbox)
    assert (found["dead letters"].state, found["dead letters"].detail) == ("warn", "1 deliveries are dead")
    assert found["paused"].remedy == "`outbox resume bank.Letters` lets it go on"


async def test_the_server_is_reached_heard_and_dated(outbox: Any) -> None:
    # The tables were made without migrations, so these are named, and nothing is asked of what may be missing.
    settings = Settings(database_url=outbox.url, contexts=("contexts.accounts",))
    found = {each.check: each for each in await examine(settings, RelaySettings(code_version="v1"))}
    assert [name for name, each in found.items() if each.state != "ok"] == ["migrations"]
    assert "outbox_0001" in found["migrations"].detail
    assert found["listen"].detail.startswith("heard after ")
    assert "accounts.LogAccountCreated" in found["handlers"].detail


async def test_an_unreachable_database_leaves_the_checks_of_the_code(outbox: Any) -> None:
    settings = Settings(
        database_url="postgresql://nobody@127.0.0.1:1/nothing", contexts=("contexts.accounts",)
    )
    found = {each.check: each for each in await examine(settings, RelaySettings(code_version="v1"))}
    assert [name for name, each in found.items() if each.state != "ok"] == ["connection"]
    assert found["connection"].remedy == "start the server, or correct DATABASE_URL"


async def test_a_channel_that_nothing_comes_back_on_is_a_warning(outbox: Any, postgres_url: str) -> None:
    # A listener in another database is as deaf as one behind a pooler.
    settings = Settings(database_url=outbox.url, contexts=("contexts.accounts",))
    relay_settings = RelaySettings(listen_url=postgres_url)
    found = {each.check: each for each in await examine(settings, relay_settings)}
    assert found["listen"].state == "warn"
    assert "every 5 s" in found["listen"].detail


async def test_a_handler_that_cannot_be_made_is_named(outbox: Any, tmp_path: Any, monkeypatch: Any) -> None:
    package = tmp_path / "ailing"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "handlers.py").write_text("import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = Settings(database_url=outbox.url, contexts=("ailing",))
    found = {each.check: each for each in await examine(settings, RelaySettings())}
    assert found["handlers"].state == "fail"
    assert "nothing_of_that_name" in found["handlers"].detail
