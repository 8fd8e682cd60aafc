"""The scenes of this context for `outbox demo`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker

from contexts.accounts.domain import Account, EmailAddress
from contexts.accounts.events import AccountCreated, AccountRole
from contexts.accounts.persistence import SqlAccountsUnitOfWork
from contexts.accounts.use_cases import ChangeEmail, ChangeEmailHandler, SignUp, SignUpHandler
from outbox_kernel import OutboxRelay, RetrySchedule, Settings
from outbox_kernel.errors import ConcurrencyError
from outbox_kernel.infrastructure.demo import Scene, Stage
from outbox_kernel.infrastructure.operations import desk
from outbox_kernel.infrastructure.operations.subscriptions import retire
from outbox_kernel.kernel.handlers import HandlerRegistration, registered_handlers

_PEOPLE = {"ada": AccountRole.ADMIN, "brian": AccountRole.MEMBER, "carol": AccountRole.MEMBER}


async def three_sign_ups(stage: Stage) -> None:
    """Three people sign up, and each account commits with its event."""
    stage.say("The use case records the event on the account and calls `await uow.commit()`; nothing else.")
    for name, role in _PEOPLE.items():
        await stage.container[SignUpHandler].handle(SignUp(f"{name}@example.org", role))
    counts = await stage.show_counts("committed")
    rows = await stage.show_events()
    stage.check(
        "as many events as accounts", holds=counts["accounts"] == counts["outbox_events"] == len(rows)
    )


async def a_rollback(stage: Stage) -> None:
    """A use case fails after it has written, and leaves nothing."""
    before = await stage.show_counts("before")
    inside: dict[str, int] = {}
    try:
        async with stage.container[SqlAccountsUnitOfWork] as uow:
            uow.accounts.add(Account.sign_up(EmailAddress("dora@example.org")))
            await uow.session.flush()
            inside = await stage.show_counts("inside its transaction", await uow.session.connection())
            _take_payment()
    except _PaymentRefused:
        stage.say("The payment is refused, so the use case ends without a commit.")
    after = await stage.show_counts("after")
    stage.check("account and event were written, and both are gone", holds=before == after != inside)


async def two_writers(stage: Stage) -> None:
    """Two writers change one account at once: one loses, tries again, and wins."""
    account_id = await stage.container[SignUpHandler].handle(SignUp("erin@example.org"))
    lost: list[str] = []

    async def holder_first() -> None:
        await stage.container[ChangeEmailHandler].handle(ChangeEmail(account_id, "erin@home.example"))
        stage.say("The holder changes the address while the support is changing it, and commits first.")

    uow = _OvertakenUnitOfWork(stage.container[async_sessionmaker], holder_first, lost)
    await ChangeEmailHandler(uow).handle(ChangeEmail(account_id, "erin@work.example"))
    for sentence in lost:
        stage.say(f"The support is told, as ConcurrencyError: {sentence}.")
    stage.say("Nothing of the loser was stored. `@retry_on_conflict` runs it again on what the winner left:")
    rows = await stage.show_events()
    stage.check("one of the two lost, once", holds=len(lost) == 1)
    stage.check(
        "signed up, changed by the holder, changed by the support: each event once, in order",
        holds=[row["aggregate_version"] for row in rows] == [1, 2, 3],
    )


class _PaymentRefused(Exception):
    pass


def _take_payment() -> None:
    raise _PaymentRefused


class _OvertakenUnitOfWork(SqlAccountsUnitOfWork):
    """Lets somebody else commit just before its own first commit, and takes note of what it is told then."""

    def __init__(
        self,
        sessions: async_sessionmaker[AsyncSession],
        rival: Callable[[], Awaitable[None]],
        lost: list[str],
    ) -> None:
        super().__init__(sessions)
        self._rivals = [rival]
        self._lost = lost

    async def commit(self) -> None:
        while self._rivals:
            await self._rivals.pop()()
        try:
            await super().commit()
        except ConcurrencyError as error:
            self._lost.append(str(error))
            raise


async def the_relay_delivers(stage: Stage) -> None:
    """The relay delivers what was committed, and each account gets a profile."""
    before = await stage.show_counts("committed, and nobody told")
    relay = OutboxRelay(stage.container[AsyncEngine], stage.container, schema=_schema(stage))
    delivered = await relay.run_until_idle()
    after = await stage.show_counts("after the relay has run")
    stage.say(f"It made {delivered.delivered} deliveries, those of the new profiles among them.")
    stage.check("no profile before", holds=before["profiles"] == 0)
    stage.check("as many profiles as accounts", holds=after["profiles"] == after["accounts"] > 0)
    stage.check("every event is delivered", holds=await _undelivered(stage) == 0)


async def a_handler_recovers(stage: Stage) -> None:
    """A handler fails twice and is tried again; the others of its event are not."""
    welcome = _Welcome(failures=2)
    with _carrying(welcome) as handlers:
        relay = OutboxRelay(
            stage.container[AsyncEngine], stage.container, schema=_schema(stage), handlers=handlers
        )
        serving = asyncio.create_task(relay.run())
        await relay.subscribed.wait()  # what commits from now on is due for the new handler
        await stage.container[SignUpHandler].handle(SignUp("frank@example.org"))
        await welcome.sent.wait()
        await _until(lambda: _is_zero(_undelivered(stage)))
        relay.stop()
        await serving
    # As an operator does with `outbox retire`: no other relay carries it, so it would be waited for.
    async with desk(stage.container[Settings]) as operator:
        await retire(operator, "demo.Welcome")
    for attempt, said in enumerate(welcome.log, start=1):
        stage.say(f"Attempt {attempt}: {said}.")
    counts = await stage.show_counts("in the end")
    stage.check("it was tried three times", holds=len(welcome.log) == 3)  # noqa: PLR2004 - as the scene says
    stage.check("the profile was made once", holds=counts["profiles"] == counts["accounts"])
    stage.check("every event is delivered", holds=await _undelivered(stage) == 0)


async def a_relay_is_killed(stage: Stage) -> None:
    """A relay is killed in the middle of its work, and another takes over."""
    first = await _start_relay(stage)
    addresses = [f"guest{number}@example.org" for number in range(_GUESTS)]
    await asyncio.gather(*(stage.container[SignUpHandler].handle(SignUp(address)) for address in addresses))
    await _until(lambda: _some_profiles(stage))
    first.send_signal(signal.SIGKILL)
    await first.wait()
    counts = await stage.show_counts("when the first relay was killed")
    stage.say(f"It had given {counts['profiles']} of {counts['accounts']} accounts their profile.")
    second = await _start_relay(stage)
    try:
        await _until(lambda: _is_zero(_undelivered(stage)))
    finally:
        second.terminate()
        code = await second.wait()
    after = await stage.show_counts("when the second has done the rest")
    stage.check(
        "nothing is lost: every account has its profile", holds=after["profiles"] == after["accounts"]
    )
    stage.check("nothing is repeated: no account has two", holds=await _accounts_with_two(stage) == 0)
    stage.check("every event is delivered", holds=await _undelivered(stage) == 0)
    stage.check("told to stop, the second relay stopped in order", holds=code == 0)


_GUESTS = 200
# Short, so that the scene is: a relay that ships says within 15 s that it is alive.
_LEASE_SECONDS = 1


class _Welcome:
    """A handler whose mail server is down for a while."""

    def __init__(self, failures: int) -> None:
        self.log: list[str] = []
        self.sent = asyncio.Event()
        self._failures = failures

    async def handle(self, _event: AccountCreated) -> None:
        if len(self.log) < self._failures:
            self.log.append("the mail server does not answer")
            raise ConnectionError(self.log[-1])
        self.log.append("sent")
        self.sent.set()


@contextmanager
def _carrying(welcome: _Welcome) -> Iterator[list[HandlerRegistration]]:
    """Give the application's handlers and this one, which is no part of it."""

    class Welcome:
        async def handle(self, event: AccountCreated) -> None:
            await welcome.handle(event)

    schedule = RetrySchedule((0.2, 0.4), dead_at=10)
    yield [
        *registered_handlers(),
        HandlerRegistration("demo.Welcome", Welcome, (AccountCreated,), retry=schedule),
    ]


def _schema(stage: Stage) -> str | None:
    return stage.container[Settings].outbox_schema


async def _start_relay(stage: Stage) -> Process:
    settings = stage.container[Settings]
    environment = {
        **os.environ,
        "DATABASE_URL": settings.required_database_url,
        "OUTBOX_LEASE_SECONDS": str(_LEASE_SECONDS),
        "OUTBOX_POLL_INTERVAL": "0.5",
        "OUTBOX_CONCURRENCY": "4",
    }
    return await create_subprocess_exec(
        *(sys.executable, "-m", "outbox_kernel", "relay"), env=environment, stdout=DEVNULL, stderr=DEVNULL
    )


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - another process decides, and tells only the database
            await asyncio.sleep(0.02)


async def _is_zero(number: Awaitable[int]) -> bool:
    return await number == 0


async def _some_profiles(stage: Stage) -> bool:
    return await _scalar(stage, "SELECT count(*) FROM profiles") > 10  # noqa: PLR2004 - it has begun


async def _undelivered(stage: Stage) -> int:
    view = f'"{_schema(stage)}".outbox_status' if _schema(stage) else "outbox_status"
    return await _scalar(stage, f"SELECT count(*) FROM {view} WHERE status <> 'delivered'")  # noqa: S608 - a checked name


async def _accounts_with_two(stage: Stage) -> int:
    doubled = "SELECT account_id FROM profiles GROUP BY account_id HAVING count(*) > 1"
    return await _scalar(stage, f"SELECT count(*) FROM ({doubled}) AS doubled")  # noqa: S608 - as above


async def _scalar(stage: Stage, statement: str) -> int:
    async with stage.container[AsyncEngine].connect() as connection:
        return int(await connection.scalar(text(statement)) or 0)


SCENES: tuple[Scene, ...] = (
    three_sign_ups,
    a_rollback,
    two_writers,
    the_relay_delivers,
    a_handler_recovers,
    a_relay_is_killed,
)
