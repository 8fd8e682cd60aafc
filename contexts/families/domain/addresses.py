"""Which addresses may be invited: those that a mail server would take."""

from __future__ import annotations

from email_validator import EmailNotValidError, validate_email

from contexts.families.events import Email, InvalidEmail


def email_given(text: str) -> Email:
    """Read an address that somebody gives, or raise InvalidEmail where no mail server would take it.

    A host of other letters is written in ASCII, as mail servers know it. Nobody is asked whether there is such a host.
    """
    address = Email(text)
    try:
        found = validate_email(address.value, strict=True, check_deliverability=False)
    except EmailNotValidError:
        raise InvalidEmail("this is no e-mail address: write it like name@example.org") from None
    return Email(f"{found.local_part}@{found.ascii_domain}")
