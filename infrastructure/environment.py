"""The names of the environment that are ours: one that is misspelt would leave its default in force (R14)."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from outbox_kernel.infrastructure.errors import BadSetting

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "OUTBOX_"
_NAMES = (
    *("SCHEMA", "CONTEXTS", "CHANNEL", "LISTEN_URL", "LOG_LEVEL", "CODE_VERSION", "METRICS", "TRACES"),
    *("MASTER_KEYS", "MASTER_KEYS_FILE"),
    *(
        "POLL_INTERVAL",
        "BATCH_SIZE",
        "CONCURRENCY",
        "MAX_RETRIES",
        "PUBLISH_RETRIES",
        "CLEANUP_DAYS",
        "LEASE_SECONDS",
        "GRACE_SECONDS",
    ),
    *(
        "API_HOST",
        "API_PORT",
        "API_RELAY",
        "API_DOCS",
        "API_TOKEN_KEY",
        "API_TOKEN_ISSUER",
        "API_TOKEN_AUDIENCE",
    ),
    "DASHBOARD_KEY",
    *("API_BODY_BYTES_MAX", "API_BODY_VALUES_MAX", "API_GRAPHQL_BYTES_MAX"),
    *("API_CONNECTIONS_MAX", "API_HEAD_SECONDS"),
    *("API_REQUEST_SECONDS", "API_GRACE_SECONDS", "API_POOL_SIZE"),
)
KNOWN = frozenset(f"{PREFIX}{name}" for name in _NAMES)
# What the tests of this repository read, whose processes are started with it.
_OF_TESTS = re.compile(r"OUTBOX_(TEST_\w+|SEED|REQUIRE_SERVICES)")
# What Kubernetes tells each container of a service that is called outbox, or outbox-…
_OF_SERVICE = re.compile(
    r"OUTBOX_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_PORT = re.compile(r"(tcp|udp|sctp)://.+")


def refuse_unknown_names(environ: Mapping[str, str] = os.environ) -> None:
    """Raise BadSetting for a variable called `OUTBOX_…` that nothing reads, with the name that may be meant."""
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in KNOWN and not _is_anothers(name, environ[name].strip()):
            near = get_close_matches(name.removeprefix(PREFIX), _NAMES, n=1)
            remedy = (
                f"write {PREFIX}{near[0]}, or take it out" if near else "correct its name, or take it out"
            )
            raise BadSetting(name, f"is no setting, and nothing would come of it: {remedy}")


def _is_anothers(name: str, value: str) -> bool:
    return (
        not value
        or _OF_TESTS.fullmatch(name) is not None
        or _OF_SERVICE.fullmatch(name) is not None
        or (name.endswith("_PORT") and _SERVICE_PORT.fullmatch(value) is not None)
    )
