"""Rows of the log as nobody of ours writes them: each column with what its type allows, one at a time."""

from __future__ import annotations

import attrs

NAME = "'a' || repeat('b', 200000)"
DEEP = "(repeat('[', 900) || repeat(']', 900))"
MEGABYTES = "repeat('abcdefghij', 1000000)"
# A terminal would obey it, a browser would run it, a log would break the line over it.
EVIL = r"E'\x1b[2J\x1b]0;x\x07\r\n\u202e<script>alert(1)</script>''\"\\%s{0}'"
# What PostgreSQL does not make smaller, and an index has just about room for.
RANDOM = "(SELECT left(string_agg(md5(number::text), ''), 2640) FROM generate_series(1, 90) AS number)"

ORDINARY: dict[str, str] = {
    "event_id": "gen_random_uuid()",
    "event_type": "'bank.noted'",
    "event_version": "1",
    "aggregate_type": "'bank.wallet'",
    "aggregate_id": "gen_random_uuid()",
    "aggregate_version": "1",
    "payload": """'{"what": "bad"}'""",
    "headers": "'{}'",
    "occurred_at": "clock_timestamp()",
}

_MOMENTS = {
    "before the year 1": "'0001-01-01 00:00:00+00'::timestamptz - interval '1 microsecond'",
    "in the stone age": "'4713-01-01 00:00:00+00 BC'",
    "after 9999": "'10000-01-01 00:00:00+00'",
    "at the end of what is counted": "'294276-12-31 23:59:59.999999+00'",
    "never": "'infinity'",
    "before ever": "'-infinity'",
}
_JSON = {
    "null": "'null'",
    "a list": "'[1]'",
    "a number": "'1'",
    "a word": "'\"what\"'",
    "nothing": "'{}'",
    "deep": f"jsonb_build_object('what', {DEEP}::jsonb)",
    "a number that is no float": "'{\"what\": 1e400}'",
    "a number of many digits": "('{\"what\": ' || repeat('9', 100000) || '}')::jsonb",
    "of ten megabytes": f"jsonb_build_object('what', {MEGABYTES})",
    "of many keys": "(SELECT jsonb_object_agg(number, number) FROM generate_series(1, 100000) AS number)",
    "of odd keys": f"jsonb_build_object('', 1, {EVIL}, 2, '__class__', 3, repeat('k', 100000), 4, '*', 5)",
    "of another type": '\'{"what": {"a": [null]}}\'',
    "with half a seal": '\'{"what": "bad", "$sealed": {"what": 1}}\'',
    "with a seal that is none": '\'{"what": "bad", "$sealed": [7]}\'',
    "with a seal by no key": ('\'{"$sealed": {"what": {"key": "no uuid", "text": "!", "forgotten": 7}}}\''),
    "with a seal of nobody's key": (
        '\'{"$sealed": {"what": {"key": "01890000-0000-7000-8000-000000000001", "text": "AAAA"}}}\''
    ),
}
_HEADERS = {
    "with contexts of other types": (
        '\'{"traceparent": {"a": 1}, "tracestate": [], "correlation_id": [1], "causation_id": {}, '
        '"user_id": 1e400}\''
    ),
    "with a trace that is none": f"jsonb_build_object('traceparent', {EVIL}, 'tracestate', {MEGABYTES})",
    "caused by what is no id": '\'{"causation_id": "no uuid", "correlation_id": ""}\'',
    "caused by itself": ('\'{"causation_id": "01890000-0000-7000-8000-0000000000ff"}\''),
    "with names of the envelope": (
        '\'{"event_type": 7, "message_id": null, "event_id": [], "x-death": [{}], "x-outbox-queue": 1}\''
    ),
}
_NAMES = {
    "empty": "''",
    "a blank": "' '",
    "long": NAME,
    "as long as an index has room": RANDOM,
    "evil": EVIL,
    "a pattern": "'*'",
    "a LIKE": "'%_\\'",
}


@attrs.frozen
class Bad:
    """A row, by the columns in which it is unlike others."""

    columns: dict[str, str]

    def insert(self, *, returning: bool = True) -> str:
        """The statement that writes it, and tells its id to who may read that."""
        found = {**ORDINARY, **self.columns}
        return (
            f"INSERT INTO outbox_events ({', '.join(found)}) OVERRIDING SYSTEM VALUE "
            f"VALUES ({', '.join(found.values())})" + " ON CONFLICT DO NOTHING RETURNING event_id" * returning
        )


def _each(column: str, values: dict[str, str], **more: str) -> dict[str, dict[str, str]]:
    return {f"{column} {name}": {column: value, **more} for name, value in values.items()}


# What whoever may write the columns that capture writes can write into each.
WRITABLE: dict[str, dict[str, str]] = {
    **_each("occurred_at", _MOMENTS),
    **_each("not_before", _MOMENTS),
    **_each("payload", _JSON),
    **_each("headers", {**_JSON, **_HEADERS}),
    **_each("event_type", _NAMES),
    **_each("event_type", {"a known one's later": "'bank.noted.of.old'"}),
    **_each("event_version", {"0": "0", "negative": "-2147483648", "the last": "2147483647"}),
    **_each("aggregate_type", {**_NAMES, "missing": "NULL"}),
    "a delivery's key that an index has no room for": {"aggregate_type": RANDOM, "payload": "'null'"},
    **_each("aggregate_id", {"missing": "NULL", "nil": "'00000000-0000-0000-0000-000000000000'"}),
    **_each(
        "aggregate_version", {"0": "0", "negative": f"{-(2**63)}", "the last": f"{2**63 - 1}", "no": "NULL"}
    ),
    **_each("aggregate_key", {**_NAMES, "megabytes": MEGABYTES}),
    **_each("event_id", {"nil": "'00000000-0000-0000-0000-000000000000'"}),
    **_each(
        "sensitive",
        {
            "null": "'null'",
            "an object": "'{\"what\": 1}'",
            "a word": "'\"what\"'",
            "a number": "'7'",
            "of other types": "'[1, null, {}, [\"what\"]]'",
            "deep": f"{DEEP}::jsonb",
            "everything": "'[\"*\"]'",
            "large": f"jsonb_build_array({MEGABYTES})",
        },
    ),
}
# What only the server writes, the owner of the table, and whoever was granted to insert without a list of columns.
# These no table takes, whoever writes.
REFUSED: dict[str, dict[str, str]] = {
    **_each("position", {"negative": "-7", "the first": f"{-(2**63)}", "0": "0", "the last": f"{2**63 - 1}"}),
    **_each("created_at", _MOMENTS),
}
WITHHELD: dict[str, dict[str, str]] = {
    **_each("position", {"far ahead": f"{2**62}"}),
    **_each("xid", {"0": "'0'", "3": "'3'", "far ahead": "'9223372036854775807'"}),
    **_each("created_at", {"long ago": "'0001-01-01 00:00:00+00'", "far ahead": "'9999-12-31 00:00:00+00'"}),
    **_each("source", {"a queue": "'notes'", "empty": "''", "evil": EVIL}),
}


# Some at a time.
TOGETHER: tuple[tuple[str, ...], ...] = (
    ("occurred_at", "not_before"),
    ("payload",),
    ("headers",),
    ("event_type", "event_version", "event_id"),
    ("aggregate_type", "aggregate_id", "aggregate_version"),
    ("aggregate_key", "sensitive"),
)


def of_columns(columns: tuple[str, ...]) -> list[Bad]:
    """Those rows that are odd in one of these columns."""
    return [Bad(row) for row in WRITABLE.values() if not row.keys().isdisjoint(columns)]
