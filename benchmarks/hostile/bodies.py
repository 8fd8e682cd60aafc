"""Bodies of a megabyte, each made to keep whoever reads it as busy as it can."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

BYTES = 1024 * 1024
ACCOUNTS, GROUP_MESSAGES, SCHEDULED_MESSAGES, GRAPHQL = (
    "/accounts",
    "/group-messages",
    "/scheduled-messages",
    "/graphql",
)
_ID = "0192f0c1-2d3e-7a4b-8c5d-000000000001"
# Two marks whose order Unicode's normal form turns round, so that a long row of them is sorted.
_MARKS = "\N{COMBINING ACUTE ACCENT}\N{COMBINING DOT BELOW}"
# One letter that becomes eighteen.
_GROWING = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}"
_CREATE = "mutation ($input: CreateFamilyInput!) { createFamily(input: $input) { id } }"


def filled(before: str, piece: str, after: str, most: int = BYTES) -> bytes:
    """Write the piece again and again between two texts, up to so many bytes."""
    frame = len(before.encode()) + len(after.encode())
    return (before + piece * ((most - frame) // len(piece.encode())) + after).encode()


def _listed(before: str, piece: str, after: str) -> bytes:
    return filled(before + piece, "," + piece, after)


def _operation(query: str, variables: str = "{}") -> bytes:
    return f'{{"query": {json.dumps(query)}, "variables": {variables}}}'.encode()


def _deep_variables() -> bytes:
    levels, name = 900, "n" * 1_100
    inner = '"\\u0000"' + "}" * levels
    return _operation("{ __typename }", f'{{"{name}":' * levels + inner)


def _with_variables(number: int, characters: int) -> str:
    names = [f"${'v' * characters}{each}: Int" for each in range(number)]
    return f"query ({', '.join(names)}) {{ __typename }}"


def _unknown_fields() -> bytes:
    return _operation("{ " + " ".join("f" * 9_900 + str(number) for number in range(105)) + " }")


def _unknown_input_members() -> bytes:
    pieces = ",".join(f'"{"m" * 100}{number}": 1' for number in range(9_000))
    return _operation(_CREATE, f'{{"input": {{{pieces}}}}}')


def _message(groups: str, **more: Any) -> bytes:
    rest = json.dumps({"channel_id": _ID, "total_recipients": 1, "body": "x", **more})[1:]
    return f'{{"contact_group_ids": {groups}, {rest}'.encode()


def _schedule(**more: Any) -> bytes:
    told = {"send_type": "group", "scheduled_at": "2030-01-01T09:00", "timezone": "UTC", "body": "x"}
    return json.dumps({"channel_id": _ID, **told, **more}, ensure_ascii=False).encode()


def _many_members() -> bytes:
    return ("{" + ",".join(f'"{number:x}":0' for number in range(95_000)) + "}").encode()


def _long_path() -> bytes:
    return _listed(f'{{"{"n" * (BYTES // 2)}": [', '"x"', ', "\\u0000"]}')


def _small_values(piece: str) -> bytes:
    return ("[" + ",".join([piece] * 4_900) + "]").encode()


def _names(number: int, characters: int) -> str:
    return ",".join(f'"{"n" * characters}{each}": 0' for each in range(number))


def _object(members: str) -> bytes:
    return f"{{{members}}}".encode()


def _levels_of_long_names() -> bytes:
    levels, name = 60, "n" * 17_000
    return (f'{{"{name}":' * levels + '"\\u0000"' + "}" * levels).encode()


def _family(email: str) -> bytes:
    return _operation(_CREATE, json.dumps({"input": {"name": "Us", "ownerEmail": email}}, ensure_ascii=False))


BODIES: dict[str, tuple[str, Callable[[], bytes]]] = {
    # What most requests are like, for comparison.
    "ordinary": (ACCOUNTS, lambda: b'{"email": "no address"}'),
    "spaces": (ACCOUNTS, lambda: filled('{"email": "no address"', " ", "}")),
    "one_text": (ACCOUNTS, lambda: filled('{"email": "', "x", '"}')),
    "one_text_of_four_bytes": (ACCOUNTS, lambda: filled('{"email": "x', "\N{OWL}", '"}')),
    "escapes": (ACCOUNTS, lambda: filled('{"email": "', "\\u0041", '"}')),
    "surrogates": (ACCOUNTS, lambda: filled('{"email": "', "\\ud83e\\udd89", '\\ud800"}')),
    "marks": (ACCOUNTS, lambda: filled('{"email": "x', _MARKS, '@example.org"}')),
    "growing_letters": (ACCOUNTS, lambda: filled('{"email": "', _GROWING, '@example.org"}')),
    "brackets": (ACCOUNTS, lambda: b"[" * BYTES),
    "empty_lists": (ACCOUNTS, lambda: _listed("[", "[]", "]")),
    "empty_objects": (ACCOUNTS, lambda: _listed("[", "{}", "]")),
    "small_objects": (ACCOUNTS, lambda: _listed("[", '{"a":[0]}', "]")),
    "many_members": (ACCOUNTS, _many_members),
    "one_member_often": (ACCOUNTS, lambda: _listed("{", '"email":"x"', "}")),
    "many_texts": (ACCOUNTS, lambda: _listed('{"email": [', '"xy"', "]}")),
    "long_numbers": (ACCOUNTS, lambda: _listed('{"email": [', "9" * 4_299, "]}")),
    "one_number": (ACCOUNTS, lambda: filled('{"email": ', "9", "}")),
    "one_fraction": (ACCOUNTS, lambda: filled('{"email": 0.', "9", "e-300}")),
    "long_path": (ACCOUNTS, _long_path),
    "no_utf_8": (ACCOUNTS, lambda: b'{"email": "' + b"x" * (BYTES - 14) + b'\xff"}'),
    "zeros": (GROUP_MESSAGES, lambda: _message("[" + "0," * 520_000 + "0]")),
    "no_groups": (GROUP_MESSAGES, lambda: _message("[" + '"no group",' * 90_000 + "0]")),
    "long_body": (GROUP_MESSAGES, lambda: _message(f'["{_ID}"]', body="x" * (BYTES - 200))),
    "long_timezone": (SCHEDULED_MESSAGES, lambda: _schedule(timezone="UTC" * 340_000)),
    "long_rule": (SCHEDULED_MESSAGES, lambda: _schedule(recurrence_rule="FREQ=DAILY;" * 95_000)),
    "long_moment": (SCHEDULED_MESSAGES, lambda: _schedule(scheduled_at="2030-01-01T09:00" + "0" * 1_000_000)),
    "deep_variables": (GRAPHQL, _deep_variables),
    "unused_variables": (GRAPHQL, lambda: _operation(_with_variables(400, 2_500))),
    "unknown_fields": (GRAPHQL, _unknown_fields),
    "unknown_input_members": (GRAPHQL, _unknown_input_members),
    "operation_of_spaces": (GRAPHQL, lambda: _operation("{ __typename" + " " * (BYTES - 100) + "}")),
    "operation_of_tokens": (GRAPHQL, lambda: _operation("{" + " a" * 500_000 + "}")),
    "operation_of_brackets": (GRAPHQL, lambda: _operation("{" * (BYTES - 100))),
    "operation_of_comments": (GRAPHQL, lambda: _operation("#\n" * 260_000 + "{ __typename }")),
    "operation_of_text": (GRAPHQL, lambda: _operation('{ f(a: "' + "x" * (BYTES - 100) + '") }')),
    "operation_of_block_text": (GRAPHQL, lambda: _operation('{ f(a: """' + "\n x" * 200_000 + '""") }')),
    # As much as the limits let through.
    "few_empty_lists": (ACCOUNTS, lambda: _small_values("[]")),
    "few_small_objects": (ACCOUNTS, lambda: _small_values('{"a":0}')),
    "few_members": (ACCOUNTS, lambda: _object(_names(9_900, 95))),
    "few_levels_of_long_names": (ACCOUNTS, _levels_of_long_names),
    "long_path_of_few": (
        ACCOUNTS,
        lambda: _object(f'"{"n" * (BYTES // 2)}": [' + '"x",' * 9_900 + '"\\u0000"]'),
    ),
    "few_groups": (GROUP_MESSAGES, lambda: _message("[" + f'"{"g" * 100}",' * 9_900 + "0]")),
    "groups_of_members": (
        GROUP_MESSAGES,
        lambda: _message("[" + ",".join([f"{{{_names(95, 90)}}}"] * 100) + "]"),
    ),
    "groups_twice": (GROUP_MESSAGES, lambda: _message("[" + f'"{_ID}",' * 9_900 + f'"{_ID}"]')),
    "few_unused_variables": (
        GRAPHQL,
        lambda: _operation(_with_variables(390, 40)),
    ),
    "few_unknown_fields": (
        GRAPHQL,
        lambda: _operation(
            "{ " + " ".join("familyMemberInvitatio" + str(each) for each in range(800)) + " }"
        ),
    ),
    "few_unknown_input_members": (
        GRAPHQL,
        lambda: _operation(_CREATE, f'{{"input": {{{_names(1_200, 95)}}}}}'),
    ),
    "many_small_values_by_graphql": (
        GRAPHQL,
        lambda: _operation("{ __typename }", f'{{"v": [{",".join(["[0]"] * 4_900)}]}}'),
    ),
    "short_marks_by_graphql": (GRAPHQL, lambda: _family("x" + _MARKS * 31_000)),
    "short_growing_letters_by_graphql": (GRAPHQL, lambda: _family(_GROWING * 42_000 + "@example.org")),
    "long_operation_name": (
        GRAPHQL,
        lambda: filled('{"query": "{ __typename }", "operationName": "', "x", '"}'),
    ),
    "marks_by_graphql": (GRAPHQL, lambda: _family("x" + _MARKS * 255_000)),
    "growing_letters_by_graphql": (GRAPHQL, lambda: _family(_GROWING * 345_000 + "@example.org")),
    "long_name_by_graphql": (
        GRAPHQL,
        lambda: _operation(
            _CREATE, json.dumps({"input": {"name": "x" * 1_000_000, "ownerEmail": "a@b.org"}})
        ),
    ),
    "long_enum_by_graphql": (
        GRAPHQL,
        lambda: _operation(
            "mutation ($r: FamilyRole!) { inviteFamilyMemberByEmail("
            f'input: {{familyId: "{_ID}", email: "a@b.org", role: $r}}) {{ isResend }} }}',
            json.dumps({"r": "x" * 1_000_000}),
        ),
    ),
}
"""Each by its name: where it is sent, and what makes it."""
