"""Accounts over HTTP. Each is its holder's, whose id is its own, and there for nobody else."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from contexts.accounts.domain import EMAIL_CHARACTERS_MAX, AccountNotFound
from contexts.accounts.events import AccountRole
from contexts.accounts.use_cases import (
    ChangeEmail,
    ChangeEmailHandler,
    FindAccount,
    FindAccountHandler,
    SignUp,
    SignUpHandler,
)
from outbox_kernel.infrastructure.http import CurrentPrincipal, JsonBody, Provided, refusals

router = APIRouter(prefix="/accounts", tags=["accounts"])

# What an address is, the domain says; the format is for those who read the documentation.
EmailText = Annotated[
    str,
    Field(
        max_length=EMAIL_CHARACTERS_MAX, examples=["ada@example.org"], json_schema_extra={"format": "email"}
    ),
]
AccountId = Annotated[UUID, Field(examples=["0192f0c1-2d3e-7a4b-8c5d-6e7f8091a2b3"])]


async def _own(account_id: AccountId, me: CurrentPrincipal) -> UUID:
    if me.uuid != account_id:
        raise AccountNotFound(account_id)
    return account_id


OwnAccountId = Annotated[UUID, Depends(_own)]


class SignUpBody(JsonBody):
    """Who signs up: as a member, since nobody makes an admin of themselves."""

    email: EmailText


class ChangeEmailBody(JsonBody):
    """The address to use from now on."""

    email: Annotated[EmailText, Field(examples=["ada@home.example"])]


class AccountCreatedBody(BaseModel):
    """The new account."""

    id: AccountId


class AccountBody(BaseModel):
    """An account."""

    id: AccountId
    email: EmailText
    role: AccountRole


@router.post("", status_code=201, summary="Sign up", responses=refusals(409))
async def sign_up(
    body: SignUpBody, use_case: Annotated[SignUpHandler, Provided(SignUpHandler)], response: Response
) -> AccountCreatedBody:
    """Open an account; its address must be free."""
    account_id = await use_case.handle(SignUp(body.email))
    response.headers["location"] = f"{router.prefix}/{account_id}"
    return AccountCreatedBody(id=account_id)


@router.get("/{account_id}", summary="Look at an account", responses=refusals(403, 404))
async def find(
    account_id: OwnAccountId, use_case: Annotated[FindAccountHandler, Provided(FindAccountHandler)]
) -> AccountBody:
    """Return the account."""
    account = await use_case.handle(FindAccount(account_id))
    return AccountBody(id=account.id, email=account.email.value, role=account.role)


@router.patch(
    "/{account_id}", status_code=204, summary="Change the address", responses=refusals(403, 404, 409)
)
async def change_email(
    account_id: OwnAccountId,
    body: ChangeEmailBody,
    use_case: Annotated[ChangeEmailHandler, Provided(ChangeEmailHandler)],
) -> None:
    """Use another address from now on; it must be free."""
    await use_case.handle(ChangeEmail(account_id, body.email))
