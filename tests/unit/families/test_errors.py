"""What each refusal of families means to whoever asked, by names that stay (X3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from contexts.families import domain
from contexts.families.events import FamiliesError, InvalidValue
from outbox_kernel import Conflict, DomainError, Forbidden, NotFound

MEANING: dict[type[DomainError], set[str]] = {
    NotFound: {"family_not_found", "invitation_not_found", "token_unknown"},
    Conflict: {
        "already_member",
        "invitation_lapsed",
        "invitation_not_lapsed",
        "invitation_not_open",
        "invited_meanwhile",
        "too_many_mails",
    },
    Forbidden: {"not_allowed"},
    InvalidValue: {"invalid_id", "invalid_email", "invalid_name", "invalid_role", "invalid_token"},
}
RULES_BROKEN = {"owner_not_invitable"}


def derived(cls: type[FamiliesError]) -> Iterator[type[FamiliesError]]:
    for found in cls.__subclasses__():
        yield found
        yield from derived(found)


REFUSALS = [each for each in derived(FamiliesError) if each is not InvalidValue]


@pytest.mark.parametrize("meaning", MEANING, ids=lambda meaning: meaning.__name__)
def test_a_refusal_means_what_its_kind_has_always_meant(meaning: type[DomainError]) -> None:
    assert {each.kind for each in REFUSALS if issubclass(each, meaning)} == MEANING[meaning]


def test_every_other_is_a_rule_that_was_broken() -> None:
    rest = {each.kind for each in REFUSALS if not issubclass(each, tuple(MEANING))}
    assert rest == RULES_BROKEN
    assert len({each.kind for each in REFUSALS}) == len(REFUSALS)


def test_every_refusal_of_the_domain_is_of_its_one_kind() -> None:
    raised = [getattr(domain, name) for name in domain.__all__]
    errors = [each for each in raised if isinstance(each, type) and issubclass(each, Exception)]
    assert all(issubclass(each, FamiliesError) for each in errors)
