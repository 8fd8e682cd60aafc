"""Values of the contexts that not every text makes: a value object that refuses some has its strategy here."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from contexts.families.events import FAMILY_NAME_CHARACTERS_MAX, Email, FamilyName, InvitationToken

# Letters with a case, which normalisation changes, and marks that compose with some of them.
letters = st.characters(categories=["Lu", "Ll", "Mn", "Nd"])
names = st.text(letters, min_size=1, max_size=20)
url_safe = st.characters(codec="ascii", categories=["Lu", "Ll", "Nd"], include_characters="-_")

OF_CONTEXTS: dict[type[Any], SearchStrategy[Any]] = {
    Email: st.builds(lambda name, host: Email(f"{name}@{host}.example"), names, names),
    FamilyName: st.text(letters, min_size=1, max_size=FAMILY_NAME_CHARACTERS_MAX).map(FamilyName),
    InvitationToken: st.text(url_safe, min_size=43, max_size=43).map(InvitationToken),
}
