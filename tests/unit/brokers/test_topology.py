"""Topology as data: what is declared, who selects what, and how keys are routed (T1, T2)."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from outbox_kernel.infrastructure.brokers import Publisher, Queue, Topology, discovery
from outbox_kernel.infrastructure.brokers import rabbitmq as rabbit
from outbox_kernel.infrastructure.brokers.carrying import publishers_of
from outbox_kernel.infrastructure.brokers.discovery import discover_topology
from outbox_kernel.infrastructure.brokers.topology import routes
from outbox_kernel.infrastructure.errors import BadContext, MissingExtra, TopologyInvalid
from outbox_kernel.infrastructure.settings import Settings

ORDERS = Publisher("shop", ("order.*", "Stock*"))


def test_a_publisher_selects_by_event_type() -> None:
    """T1."""
    found = {
        each: ORDERS.selects(each) for each in ("order.placed", "order.line.added", "StockMoved", "orders")
    }
    assert found == {"order.placed": True, "order.line.added": True, "StockMoved": True, "orders": False}


def test_who_names_no_exchange_meets_at_that_of_the_settings() -> None:
    """T2."""
    topology = Topology.of(
        [ORDERS, Publisher("hub", "Family*", exchange="hub.events")],
        [Queue("orders", "order.*"), Queue("family", "#", exchange="hub.events")],
        exchange="main",
    )
    assert [each.exchange for each in topology.publishers] == ["main", "hub.events"]
    assert topology.exchanges == ("main", "hub.events")
    assert [each.name for each in topology.part_of(topology.publishers[1]).queues] == ["family"]


def test_asked_for_by_name_an_optional_queue_is_optional_no_more() -> None:
    """T2."""
    topology = Topology.of(
        [], [Queue("audit", "#", optional=True), Queue("orders", "order.*")], exchange="main"
    )
    assert [each.optional for each in topology.with_optional(["audit"]).queues] == [False, False]
    assert [each.name for each in topology.reading(["audit"]).queues] == ["audit"]
    assert topology.reading(["audit"]).queues[0].optional is False
    with pytest.raises(TopologyInvalid, match="no context declares a queue 'adit': there is audit, orders"):
        topology.with_optional(["adit"])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Publisher("a b", "x"), "publisher 'a b' cannot be named so"),
        (lambda: Publisher("a", ()), "event-type pattern .* matches nothing"),
        (lambda: Publisher("a", ("order.#",)), "event-type pattern 'order.#' matches nothing"),
        (
            lambda: Publisher("a", ("order.*", "order.placed?")),
            r"event-type pattern 'order.placed\?' matches nothing: write event types, with \* for any part",
        ),
        (lambda: Publisher("a", "x", mandatory="no"), "has mandatory='no': give True or False"),  # type: ignore[arg-type]
        (lambda: Publisher("a", "x", sensitive="no"), "has sensitive='no': give 'clear', 'mask' or 'omit'"),  # type: ignore[arg-type]
        (lambda: Publisher("a", "x", exchange="e" * 300), "exchange .* cannot be named so"),
        (lambda: Queue("q", "order.**"), "binding key 'order.\\*\\*' matches nothing"),
        (lambda: Queue("", "#"), "queue '' cannot be named so"),
        (
            lambda: Topology.of([], [Queue("q", "#"), Queue("q", "a")], exchange="e"),
            "queue 'q' is declared twice",
        ),
        (lambda: Topology.of([ORDERS, ORDERS], [], exchange="e"), "publisher 'shop' is declared twice"),
        (
            lambda: Publisher("a", "x", exchange="amq.topic"),
            "exchange 'amq.topic' cannot be named so: the broker",
        ),
        (
            lambda: Queue("q", "#", exchange="amq.topic"),
            "exchange 'amq.topic' cannot be named so: the broker",
        ),
        (lambda: Queue("amq.gen", "#"), "queue 'amq.gen' cannot be named so: the broker keeps names"),
        (
            lambda: Topology.of([], [], exchange="messaging.dlx"),
            "exchange 'messaging.dlx' is that of the dead letters: name another one in RABBITMQ_EXCHANGE, or",
        ),
        (
            lambda: Topology.of([Publisher("a", "x", exchange="messaging.dlx")], [], exchange="e"),
            "exchange 'messaging.dlx' is that of the dead letters",
        ),
        (
            lambda: Topology.of(
                [], [Queue("q", "#", exchange="graves")], exchange="e", dead_letter_exchange="graves"
            ),
            "exchange 'graves' is that of the dead letters",
        ),
        (
            lambda: Topology.of([], [Queue("messaging.dlq", "#")], exchange="e"),
            "queue 'messaging.dlq' is that of the dead letters: give the declared one another name",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(make: object, sentence: str) -> None:
    assert callable(make)
    with pytest.raises(TopologyInvalid, match=sentence):
        make()


@pytest.mark.parametrize(
    ("binding", "key", "routed"),
    [
        ("order.*", "order.placed", True),
        ("order.*", "order.line.added", False),
        ("order.*", "order", False),
        ("#", "anything.at.all", True),
        ("order.#", "order", True),
        ("#.added", "order.line.added", True),
        ("*.line.*", "order.line.added", True),
        ("order.placed", "order.placed.twice", False),
    ],
)
def test_keys_are_routed_as_a_topic_exchange_does(binding: str, key: str, *, routed: bool) -> None:
    """T1."""
    assert routes(binding, key) is routed


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The room `topology` of a context that is there in a test only."""
    package, found = ModuleType("shop_context"), ModuleType("shop_context.topology")
    package.__path__ = []
    package.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec(
        "shop_context", None, is_package=True
    )
    package.__spec__.submodule_search_locations = [__file__]
    found.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec("shop_context.topology", None)
    monkeypatch.setitem(sys.modules, "shop_context", package)
    monkeypatch.setitem(sys.modules, "shop_context.topology", found)
    return found


SETTINGS = Settings(contexts=("shop_context",), rabbitmq_exchange="main")


def test_contexts_declare_in_a_room_of_their_own(room: ModuleType) -> None:
    """T2."""
    room.PUBLISHERS = (ORDERS,)  # type: ignore[attr-defined]
    assert discover_topology(SETTINGS).publishers[0].exchange == "main"
    assert discover_topology(SETTINGS).queues == ()


def test_a_room_with_something_else_in_it_is_told_of(room: ModuleType) -> None:
    room.QUEUES = [ORDERS]  # type: ignore[attr-defined]
    with pytest.raises(BadContext, match=r"QUEUES is no tuple of Queues: write QUEUES = \(Queue\(…\),\)"):
        discover_topology(SETTINGS)


def test_contexts_that_declare_nothing_publish_nothing() -> None:
    assert discover_topology(Settings(contexts=("contexts.accounts",))) == Topology()


def test_a_queue_is_found_by_its_name() -> None:
    """T3: optional ones too."""
    audit = Queue("audit", "#", optional=True)
    topology = Topology.of([], [audit], exchange="main")
    found = topology.queue("audit")
    assert found is not None
    assert found.bindings == ("#",)
    assert topology.queue("adit") is None


def test_a_room_that_cannot_be_imported_is_told_of(room: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    del room

    def broken(_: str) -> None:
        raise SyntaxError("a comma is missing")

    monkeypatch.setattr(discovery, "import_module", broken)
    with pytest.raises(BadContext, match=r"cannot be imported \(SyntaxError: a comma is missing\): mend it"):
        discover_topology(SETTINGS)


def test_without_a_broker_nothing_is_published() -> None:
    """R14: contexts may declare what they like."""
    assert publishers_of(Settings(contexts=("contexts.messaging",))) == {}


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbit, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"run `pip install 'outbox-kernel\[rabbitmq\]'`"):
        rabbit.rabbitmq("amqp://localhost/")
