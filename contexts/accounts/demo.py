"""The scenes of this context for `outbox demo`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker

from contexts.accounts.domain import Account, EmailAddress
from contexts.accounts.events import AccountRole
from contexts.accounts.persistence import SqlAccountsUnitOfWork
from contexts.accounts.use_cases import ChangeEmail, ChangeEmailHandler, SignUp, SignUpHandler
from infrastructure.demo import Scene, Stage
from kernel import ConcurrencyError

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


SCENES: tuple[Scene, ...] = (three_sign_ups, a_rollback, two_writers)
