"""Settings and the database's URL: what is read, and the sentence for what cannot be used (R15)."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from outbox_kernel.infrastructure.errors import BadSetting
from outbox_kernel.infrastructure.postgres.engine import create_engine
from outbox_kernel.infrastructure.settings import Settings, masked


def test_a_bare_environment_gives_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings(database_url=None, outbox_schema=None, contexts=None)


def test_an_empty_variable_counts_as_not_set() -> None:
    empty = {"DATABASE_URL": " ", "OUTBOX_SCHEMA": "", "OUTBOX_CONTEXTS": " , "}
    assert Settings.from_environment(empty) == Settings()


def test_the_environment_is_read() -> None:
    settings = Settings.from_environment(
        {
            "DATABASE_URL": "postgresql://localhost/shop",
            "OUTBOX_SCHEMA": "events",
            "OUTBOX_CONTEXTS": "contexts.accounts, shop.contexts.orders",
        }
    )
    assert settings.required_database_url == "postgresql://localhost/shop"
    assert settings.outbox_schema == "events"
    assert settings.contexts == ("contexts.accounts", "shop.contexts.orders")


@pytest.mark.parametrize(
    "schema", ["Events", "1st", "out-box", "pg_outbox", "a b", 'x"; DROP', "e" * 64, "é"]
)
def test_a_schema_that_needs_quotes_is_refused_by_name(schema: str) -> None:
    with pytest.raises(BadSetting, match=r"^OUTBOX_SCHEMA is .* write lower-case letters") as refused:
        Settings.from_environment({"OUTBOX_SCHEMA": schema})
    assert refused.value.name == "OUTBOX_SCHEMA"


def test_a_context_that_is_no_package_is_refused_by_name() -> None:
    with pytest.raises(
        BadSetting, match="OUTBOX_CONTEXTS names 'contexts/accounts', which is no Python package"
    ):
        Settings.from_environment({"OUTBOX_CONTEXTS": "contexts.messaging,contexts/accounts"})


def test_an_exchange_of_the_brokers_own_is_refused_by_name() -> None:
    """T2."""
    with pytest.raises(
        BadSetting, match=r"^RABBITMQ_EXCHANGE is 'amq\.topic', and the broker keeps names"
    ) as refused:
        Settings.from_environment({"RABBITMQ_EXCHANGE": "amq.topic"})
    assert refused.value.name == "RABBITMQ_EXCHANGE"


def test_a_missing_url_is_asked_for_with_its_form() -> None:
    with pytest.raises(
        BadSetting, match="DATABASE_URL is not set: write postgresql://user:password@host:5432/"
    ):
        Settings().required_database_url  # noqa: B018 - a property that raises


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bob:s3cret@host/db",
        "postgresql://bob:s3cret/with@and:more@host/db",
        "postgresql://host/db?user=bob&password=s3cret&sslmode=require",
        "postgresql://:s3cret@host/db",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    assert "s3cret" not in repr(Settings(database_url=url))
    assert "s3cret" not in (masked(url) or "")
    assert "host/db" in (masked(url) or "")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgres://u:p@h:1/d", "postgresql+asyncpg://u:***@h:1/d"),
        ("postgresql://u:p@h/d?sslmode=require", "postgresql+asyncpg://u:***@h/d"),
        ("postgresql+asyncpg://h/d", "postgresql+asyncpg://h/d"),
        ("postgresql:///d?host=/run/pg", "postgresql+asyncpg:///d?host=%2Frun%2Fpg"),
        ("postgresql://h/d?pgbouncer=true", "postgresql+asyncpg://h/d"),
    ],
)
def test_the_forms_of_libpq_are_accepted(url: str, shown: str) -> None:
    assert str(create_engine(url).url) == shown


SEVERAL = "postgresql+asyncpg://u@/d?host=a%2Cb&port=1%2C2"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u@a:1,b:2/d", SEVERAL),
        ("postgres://u@a:1,b:2/d?target_session_attrs=primary", SEVERAL),
        ("postgresql://u@/d?host=a:1,b:2", SEVERAL),
        ("postgresql://u@/d?host=a:1&host=b:2", SEVERAL),
        ("postgresql://u@/d?host=a,b&port=1,2", SEVERAL),
        ("postgresql://u@a,b:2/d", SEVERAL.replace("=1", "=5432")),
        ("postgresql://u@[::1]:1,b:2/d", SEVERAL.replace("=a", "=%3A%3A1")),
        ("postgresql://u@/d?host=/run/pg,b&port=1,2", SEVERAL.replace("=a", "=%2Frun%2Fpg")),
        ("postgresql://u@/d?host=a,b&port=7", SEVERAL.replace("1%2C2", "7%2C7")),
        ("postgresql://u:se,cret@h/d", "postgresql+asyncpg://u:***@h/d"),
        ("postgresql://u:1234,cret@h:5432/d", "postgresql+asyncpg://u:***@h:5432/d"),
    ],
)
def test_several_servers_are_named_in_each_form_of_libpq(url: str, shown: str) -> None:
    """R12: of which one is the primary."""
    assert create_engine(url).url.render_as_string() == shown


@pytest.mark.parametrize("url", ["postgresql://u@/d?host=a,b,c&port=1,2", "postgresql://u@/d?host=a:x:y,b"])
def test_several_servers_without_a_port_for_each_are_refused(url: str) -> None:
    with pytest.raises(
        BadSetting, match=r"^DATABASE_URL names several hosts, .*: write host1:5432,host2:5432"
    ):
        create_engine(url)


@pytest.mark.parametrize("scheme", ["mysql", "sqlite", "postgresql+psycopg", "postgresql+psycopg2"])
def test_another_driver_is_refused_with_what_to_write(scheme: str) -> None:
    with pytest.raises(
        BadSetting, match=r"^DATABASE_URL begins with \S+://, but .*: write postgresql://"
    ) as refused:
        create_engine(f"{scheme}://bob:s3cret@host/db")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["", "localhost", "host=localhost dbname=x", "postgresql://bob:s3cret:5432@h:p/db"]
)
def test_what_is_no_url_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(
        BadSetting, match=r"^DATABASE_URL is no URL of a PostgreSQL database: write"
    ) as refused:
        create_engine(url)
    assert "s3cret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_password_with_a_bare_at_is_refused_without_showing_it() -> None:
    with pytest.raises(BadSetting, match=r"more than one @.*write %40") as refused:
        create_engine("postgresql://bob:top@s3cret@127.0.0.1:5432/db")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bob:s3cret@db..internal/x",
        "postgresql://bob:s3cret@.db/x",
        f"postgresql://bob:s3cret@{'a' * 64}.internal/x",
        "postgresql://bob:s3cret@good,db..internal/x",
        "postgresql://bob:s3cret@/x?host=db..internal:5433",
        "postgresql://bob:s3cret@/x?host=good&host=.db",
    ],
)
def test_a_host_that_no_host_can_be_called_is_refused(url: str) -> None:
    """O1: looked up, it would end in a traceback."""
    with pytest.raises(
        BadSetting, match=r"^DATABASE_URL names a host '\S+', which is no host's name: write postgresql://"
    ) as refused:
        create_engine(url)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bob:s3cret@h:99999/x",
        "postgresql://bob:s3cret@h:0/x",
        "postgresql:///x?host=h&port=5432,65536",
        "postgresql:///x?host=h&port=five",
    ],
)
def test_a_port_that_no_server_can_have_is_refused(url: str) -> None:
    """O1: connected to, it would end in a traceback, or 0 in another port without a word."""
    with pytest.raises(
        BadSetting, match=r"^DATABASE_URL names a port \w+, which is none of 1 to 65535: write"
    ):
        create_engine(url)


def test_a_sockets_folder_is_no_host_to_be_checked() -> None:
    """O1: however long its name is."""
    folder = "/" + "a" * 80
    assert create_engine(f"postgresql:///x?host={folder}").url.query["host"] == folder
    assert create_engine(f"postgresql://{quote(folder, safe='')}/x").url.database == "x"
