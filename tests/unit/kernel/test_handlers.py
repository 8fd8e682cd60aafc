"""K5: who reacts to which event, under which stable name and by which rules."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Annotated, Any, TypeVar

import pytest

from outbox_kernel.errors import DefinitionError, DuplicateName
from outbox_kernel.kernel import (
    EXPONENTIAL,
    DomainEvent,
    Reject,
    RetryAfter,
    StoredEvent,
    event,
    get_handlers_for,
    handles,
)
from outbox_kernel.kernel.handlers import registered_handlers


@event("handlers.opened")
class Opened(DomainEvent):
    pass


@event("handlers.closed")
class Closed(DomainEvent):
    pass


def handler(name: str = "Log", module: str = "shop.accounts.handlers") -> type[Any]:
    async def handle(self: object, event: DomainEvent) -> None:
        pass

    return type(name, (), {"handle": handle, "__module__": module})


def test_a_handler_is_found_by_its_event_with_the_defaults() -> None:
    log = handles(Opened)(handler())
    (found,) = get_handlers_for(Opened)
    assert (found.name, found.handler, found.events) == ("accounts.Log", log, (Opened,))
    assert (found.retry, found.timeout_seconds, found.ordered) == (None, 30, True)
    assert (found.on_dead, found.queue, found.renamed_from) == ("park", None, None)
    assert get_handlers_for(Closed) == ()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("contexts.accounts.handlers", "accounts.Log"),
        ("contexts.accounts.handlers.mail.sending", "accounts.Log"),
        ("accounts.handlers", "accounts.Log"),
        ("accounts.reactions", "reactions.Log"),
        ("handlers", "handlers.Log"),
        ("handlers.accounts.handlers", "accounts.Log"),
    ],
)
def test_the_default_name_is_of_the_context_and_the_class(module: str, name: str) -> None:
    handles(Opened)(handler(module=module))
    assert [found.name for found in get_handlers_for(Opened)] == [name]


def test_every_option_is_kept() -> None:
    handles(
        Opened,
        Closed,
        name="mail",
        renamed_from="post",
        retry=EXPONENTIAL,
        timeout=5,
        ordered=False,
        on_dead="continue",
        queue="letters",
        atomic=True,
        start="beginning",
        concurrency=4,
        rate="100/s",
    )(handler())
    (found,) = get_handlers_for(Closed)
    assert (found.name, found.renamed_from, found.retry) == ("mail", "post", EXPONENTIAL)
    assert (found.timeout_seconds, found.ordered, found.on_dead) == (5, False, "continue")
    assert (found.queue, found.events, found.atomic) == ("letters", (Opened, Closed), True)
    assert (found.start, found.concurrency, found.rate) == ("beginning", 4, "100/s")


def test_whether_it_is_atomic_is_true_or_false() -> None:
    """R6."""
    with pytest.raises(DefinitionError, match="has atomic='yes'; give True or False"):
        handles(Opened, atomic="yes")(handler())  # type: ignore[arg-type]


def test_a_function_in_a_thread_cannot_be_atomic() -> None:
    """R6: what it commits there shares no transaction with anything."""

    def log(event: Opened) -> None: ...

    with pytest.raises(DefinitionError, match="has atomic=True and is not async"):
        handles(Opened, name="accounts.log", atomic=True)(log)
    assert registered_handlers() == ()


def test_stacked_with_the_same_options_it_is_one_handler_of_both() -> None:
    handles(Opened)(handles(Closed)(handler()))
    (found,) = registered_handlers()
    assert set(found.events) == {Opened, Closed}


def test_stacked_under_another_name_it_is_two_with_rules_of_their_own() -> None:
    handles(Opened)(handles(Closed, name="accounts.Slow", timeout=90)(handler()))
    assert [found.name for found in registered_handlers()] == ["accounts.Log", "accounts.Slow"]
    assert [found.timeout_seconds for found in get_handlers_for(Closed)] == [90]


def test_stacked_with_other_options_under_one_name_is_refused() -> None:
    stacked = handles(Closed, timeout=90)(handler())
    with pytest.raises(DefinitionError, match="registered twice with different options"):
        handles(Opened)(stacked)


def test_one_name_for_two_classes_is_refused_and_both_are_named() -> None:
    handles(Opened, name="log")(handler("First"))
    with pytest.raises(DuplicateName, match=r"First and by shop\.accounts\.handlers\.Second"):
        handles(Opened, name="log")(handler("Second"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"name": "old"}, {"name": "new", "renamed_from": "old"}),
        ({"name": "new", "renamed_from": "old"}, {"name": "old"}),
        ({"name": "new", "renamed_from": "old"}, {"name": "newer", "renamed_from": "old"}),
    ],
)
def test_a_name_that_was_given_up_is_nobody_elses(first: dict[str, str], second: dict[str, str]) -> None:
    handles(Opened, **first)(handler("First"))  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="both claim the name 'old'"):
        handles(Opened, **second)(handler("Second"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"timeout": 0}, "timeout=0; give seconds above zero"),
        ({"timeout": float("inf")}, "give seconds above zero"),
        ({"on_dead": "explode"}, "choose 'park' or 'continue'"),
        ({"name": "with space"}, "handler name 'with space' cannot be used"),
        ({"name": "a", "renamed_from": "a"}, "renamed from itself"),
        ({"retry": 3}, "retry=3; give a RetrySchedule"),
        ({"name": ""}, "handler name '' cannot be used"),
        ({"name": 5}, "handler name 5 cannot be used"),
        ({"renamed_from": "bad name!\n"}, "cannot be used; take letters"),
        ({"timeout": "30"}, "timeout='30'; give seconds above zero"),
        ({"timeout": True}, "timeout=True; give seconds above zero"),
        ({"queue": ""}, "queue=''; give the name of a queue, or leave it out"),
        ({"queue": 5}, "queue=5; give the name of a queue"),
        ({"ordered": "no"}, "ordered='no'; give True or False"),
        ({"start": "yesterday"}, "start='yesterday'; choose 'now' or 'beginning'"),
        ({"start": True}, "start=True; choose 'now' or 'beginning'"),
        ({"concurrency": 0}, "concurrency=0; give a whole number, one or more"),
        ({"concurrency": True}, "concurrency=True; give a whole number, one or more"),
        ({"concurrency": 2.0}, "concurrency=2.0; give a whole number, one or more"),
        ({"rate": "fast"}, "rate='fast'; say how many in how long, as '100/s', '30/min' or '500/h'"),
        ({"rate": 100}, "rate=100; say how many in how long"),
        ({"rate": "0/s"}, "rate='0/s'; say how many in how long"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        handles(Opened, **options)(handler())
    assert registered_handlers() == ()


def test_what_is_no_handler_is_refused() -> None:
    class Silent:
        pass

    class Synchronous:
        def handle(self, event: Opened) -> None:
            pass

    class Greedy:
        async def handle(self, event: Opened, session: object) -> None:
            pass

    for cls in (Silent, Synchronous):
        with pytest.raises(DefinitionError, match=f"{cls.__name__} is no EventHandler; give it `async def"):
            handles(Opened)(cls)
    with pytest.raises(DefinitionError, match="dependencies belong in the constructor"):
        handles(Opened)(Greedy)
    with pytest.raises(DefinitionError, match="stands on a class"):
        handles(Opened)(Greedy())  # type: ignore[type-var]  # what is refused


def test_a_handler_names_registered_events() -> None:
    class Forgotten(DomainEvent):
        pass

    with pytest.raises(DefinitionError, match="names no event"):
        handles()(handler())
    with pytest.raises(DefinitionError, match="Forgotten'> is no event; put @event on it"):
        handles(Forgotten)(handler())


def test_a_handler_may_say_what_it_knows() -> None:
    assert str(Reject("the address is blocked")) == "the address is blocked"
    assert (RetryAfter(2.5).seconds, str(RetryAfter(2.5))) == (2.5, "retry after 2.5 s")
    assert str(RetryAfter(1, "busy")) == "busy"


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan")])
def test_retry_after_takes_a_time_that_passes(seconds: float) -> None:
    with pytest.raises(ValueError, match="finite number of seconds"):
        RetryAfter(seconds)


def test_a_decorator_without_its_event_is_refused_at_once() -> None:
    """K5: `@handles` alone would otherwise swallow the class."""
    with pytest.raises(DefinitionError, match=r"@handles takes event classes and patterns .* is none"):

        @handles  # type: ignore[arg-type]  # what is refused
        class Forgetful:
            async def handle(self, event: DomainEvent) -> None: ...


def taking(annotation: Any) -> type[Any]:
    cls = handler()
    cls.handle.__annotations__["event"] = annotation
    return cls


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (Closed, "Closed"),
        ("Closed", "Closed"),
        (Closed | None, r"Closed \| None"),
        (int, "int"),
        (Annotated[Closed, 1], ""),
        (list[Opened], "list"),
        ("tuple[Opened, ...] | None", "tuple"),
        (type[Opened], "type"),
        (StoredEvent, "StoredEvent"),
    ],
    ids=str,
)
def test_an_event_that_the_handler_plainly_does_not_take_is_refused(annotation: Any, shown: str) -> None:
    with pytest.raises(
        DefinitionError,
        match=rf"@handles on Log names Opened, but its handle takes .*{shown}.*; make these the same",
    ):
        handles(Opened)(taking(annotation))
    assert registered_handlers() == ()


@pytest.mark.parametrize(
    "annotation",
    [
        Opened,
        "Opened",
        Opened | Closed,
        "Closed | Opened | None",
        DomainEvent,
        object,
        Any,
        "Missing",
        TypeVar("T"),
    ],
    ids=str,
)
def test_an_event_that_the_handler_may_take_is_accepted(annotation: Any) -> None:
    handles(Opened)(taking(annotation))
    assert [found.events for found in registered_handlers()] == [(Opened,)]


def test_every_event_that_is_named_has_to_be_taken() -> None:
    with pytest.raises(DefinitionError, match="names Opened"):
        handles(Closed, Opened)(taking(Closed))


def test_a_handler_without_an_annotation_takes_any_event() -> None:
    class Log:
        async def handle(self, event):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - the point
            pass

    class Catch:
        async def handle(*everything):  # type: ignore[no-untyped-def]  # noqa: ANN002, ANN202 - the point
            pass

    handles(Opened)(Log)
    handles(Opened)(Catch)
    assert [found.handler for found in get_handlers_for(Opened)] == [Catch, Log]


def test_a_stacked_handler_takes_the_union_of_its_events() -> None:
    @handles(Opened)
    @handles(Closed)
    class Both:
        async def handle(self, event: Opened | Closed) -> None: ...

    assert [found.handler for found in get_handlers_for(Closed)] == [Both]


# --- functions ------------------------------------------------------------------------------------------


class Mailer:
    pass


@pytest.mark.parametrize("is_async", [True, False])
def test_a_function_is_a_handler_and_stays_what_it_is(is_async: bool) -> None:
    async def greet(event: Opened, mailer: Mailer, *, greeting: str = "hello") -> None: ...
    def greet_at_once(event: Opened, mailer: Mailer) -> None: ...

    function: Any = greet if is_async else greet_at_once
    assert handles(Opened)(function) is function
    (found,) = get_handlers_for(Opened)
    assert (found.name, found.handler) == (f"test_handlers.{function.__name__}", function)


def test_a_function_stacks_and_takes_options_as_a_class_does() -> None:
    @handles(Opened, timeout=5)
    @handles(Closed, timeout=5)
    async def log(event: Opened | Closed) -> None: ...

    (found,) = registered_handlers()
    assert (set(found.events), found.timeout_seconds) == ({Opened, Closed}, 5)


def eager() -> None: ...
def named_only(*, event: Opened) -> None: ...
def untyped(event: Opened, mailer) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - what is refused
def unnamed(event: Opened, mailer: Mailer, /) -> None: ...
def mistaken(event: Closed) -> None: ...
def several(events: list[Opened]) -> None: ...
def lazily(event: Opened) -> Iterator[None]:
    yield


async def lazily_too(event: Opened) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (eager, "eager takes no event; give it one as its first parameter"),
        (named_only, "named_only takes no event"),
        (
            untyped,
            "untyped asks for 'mailer', and the container fills what is named and has a type; annotate",
        ),
        (unnamed, "unnamed asks for 'mailer'"),
        (mistaken, "@handles on mistaken names Opened, but its handle takes .*Closed; make these the same"),
        (several, r"@handles on several names Opened, but its handle takes list\[.*Opened\]"),
        (lazily, "lazily yields, so calling it does nothing; let it return"),
        (lazily_too, "lazily_too yields"),
        (lambda event: None, "handler name '.*<lambda>' cannot be used"),
    ],
    ids=lambda given: getattr(given, "__name__", ""),
)
def test_a_function_that_cannot_be_called_with_its_event_is_refused(function: Any, sentence: str) -> None:
    with pytest.raises(DefinitionError, match=sentence):
        handles(Opened)(function)
    assert registered_handlers() == ()


def test_a_method_is_refused_since_nobody_would_make_its_object() -> None:
    with pytest.raises(DefinitionError, match=r"stands on .*Mistaken\.handle, a method; put it on the class"):

        class Mistaken:
            @handles(Opened)
            async def handle(self, event: Opened) -> None: ...


# --- patterns -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["handlers.*", "*", "*.opened", "handlers.opened", "handlers.*ed"])
def test_a_handler_of_a_pattern_is_found_by_each_event_it_means(pattern: str) -> None:
    @handles(pattern)
    async def audit(event: StoredEvent) -> None: ...

    (found,) = get_handlers_for(Opened)
    assert (found.handler, found.events, found.patterns) == (audit, (), (pattern,))


def test_a_pattern_means_no_event_of_another_name() -> None:
    @handles("handlers.o*", "order.*")
    async def audit(event: StoredEvent) -> None: ...

    assert get_handlers_for(Closed) == ()


def test_patterns_stand_beside_classes_and_stack() -> None:
    @handles("order.*")
    @handles("handlers.cl*", Opened)
    async def audit(event: StoredEvent | Opened) -> None: ...

    (found,) = registered_handlers()
    assert (found.events, found.patterns) == ((Opened,), ("handlers.cl*", "order.*"))
    assert get_handlers_for(Opened) == get_handlers_for(Closed) == (found,)


@pytest.mark.parametrize(
    "pattern", ["", "order placed", "order.#", "order.?", "[a-z]*", "queue/*", "x" * 201]
)
def test_a_pattern_that_matches_no_name_is_refused(pattern: str) -> None:
    with pytest.raises(DefinitionError, match="which no event's name can match; take letters"):
        handles(pattern)(handler())
    assert registered_handlers() == ()


@pytest.mark.parametrize("annotation", [Opened, DomainEvent, list[StoredEvent]], ids=str)
def test_a_handler_of_a_pattern_that_takes_no_stored_event_is_refused(annotation: Any) -> None:
    sentence = (
        r"@handles on Log names the pattern 'order\.\*', but its handle takes .*; let it take a StoredEvent"
    )
    with pytest.raises(DefinitionError, match=sentence):
        handles("order.*")(taking(annotation))


@pytest.mark.parametrize(
    "annotation", [StoredEvent, StoredEvent | Opened, "StoredEvent", object, Any], ids=str
)
def test_a_handler_of_a_pattern_takes_a_stored_event(annotation: Any) -> None:
    handles("order.*")(taking(annotation))
    assert [found.patterns for found in registered_handlers()] == [("order.*",)]


# --- batches ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation",
    [
        Sequence[Opened],
        "Sequence[Opened]",
        "list[Opened | Closed]",
        Iterable[Opened],
        Sequence[DomainEvent],
        Sequence[Any],
        "Sequence[Missing]",
        list,
        Sequence,
        Annotated[Sequence[Opened], 1],
        Sequence[Opened] | None,
        object,
        Any,
        TypeVar("T"),
    ],
    ids=str,
)
def test_with_batch_it_takes_a_sequence_of_its_events(annotation: Any) -> None:
    """R16."""
    handles(Opened, batch=200)(taking(annotation))
    assert [found.batch for found in registered_handlers()] == [200]


@pytest.mark.parametrize(
    "annotation", [Opened, "Opened", Opened | None, tuple[Opened, ...], set[Opened]], ids=str
)
def test_with_batch_one_event_is_no_sequence(annotation: Any) -> None:
    """R16: it would be called with a list."""
    sentence = (
        r"@handles on Log has batch=, but its handle takes .*; annotate Sequence\[Opened\], since it gets"
    )
    with pytest.raises(DefinitionError, match=sentence):
        handles(Opened, batch=200)(taking(annotation))
    assert registered_handlers() == ()


@pytest.mark.parametrize("batch", [0, -1, True, "200", 1.5])
def test_how_many_at_once_is_a_whole_number(batch: Any) -> None:
    with pytest.raises(DefinitionError, match=f"batch={batch!r}; give a whole number, one or more"):
        handles(Opened, batch=batch)(taking(Sequence[Opened]))
    assert registered_handlers() == ()


def test_with_batch_another_event_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"names Opened, but its handle takes .*Closed.*; make these the same"
    ):
        handles(Opened, batch=200)(taking(Sequence[Closed]))


def test_with_batch_a_pattern_is_for_stored_events() -> None:
    handles("handlers.*", batch=200)(taking(Sequence[StoredEvent]))
    with pytest.raises(DefinitionError, match="let it take a StoredEvent"):
        handles("handlers.*", name="other", batch=200)(taking(Sequence[Opened]))


def test_a_function_may_take_batches() -> None:
    @handles(Opened, name="log", batch=200)
    def log(events: Sequence[Opened]) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"alone has batch=, but its handle takes .*Opened; annotate Sequence"
    ):

        @handles(Opened, name="alone", batch=200)
        async def alone(event: Opened) -> None: ...


def test_without_batch_a_sequence_is_refused_with_the_remedy() -> None:
    with pytest.raises(DefinitionError, match="or give it batch= to get several at once"):
        handles(Opened)(taking(Sequence[Opened]))
