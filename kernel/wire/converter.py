"""The cattrs converter behind the wire format, one per layout, and the two ways of an event (K8)."""

from __future__ import annotations

import inspect
from datetime import timedelta
from enum import Enum
from functools import cache
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from outbox_kernel.kernel.wire.containers import enum_out, register_containers
from outbox_kernel.kernel.wire.durations import duration_in, duration_out
from outbox_kernel.kernel.wire.free import free_in, free_out, is_free
from outbox_kernel.kernel.wire.models import is_model, is_url, url_in, url_out
from outbox_kernel.kernel.wire.names import EVENT_VERSION, event_names, names_of
from outbox_kernel.kernel.wire.records import (
    argument_fields,
    check_restores,
    is_record,
    is_value_object,
    maker_of,
    restored_record,
    runs_code,
    value_field,
)
from outbox_kernel.kernel.wire.scalars import refusal, register_scalars
from outbox_kernel.kernel.wire.types import is_renamed, is_subclass, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from outbox_kernel.kernel.catalogue import EventType

Hook = TypeVar("Hook", bound="Callable[..., Any]")


class _WireConverter(Converter):
    def get_unstructure_hook(self, type: Any, cache_result: bool = True) -> Callable[[Any], Any]:  # noqa: A002, FBT001, FBT002 - cattrs names them
        # cattrs takes an Enum that is a str for a mere str, and would write any text in its place.
        if is_subclass(type, Enum):
            return enum_out(type)
        return super().get_unstructure_hook(type, cache_result)


@cache
def converter_for(layout: str) -> Converter:
    """Return the one converter of a layout."""
    converter = _WireConverter(detailed_validation=False)
    register_scalars(converter)
    converter.register_unstructure_hook(timedelta, duration_out)
    converter.register_structure_hook(timedelta, duration_in)
    build_out = _once_per_class(lambda cls: _record_out(cls, converter, layout))
    build_in = _once_per_class(lambda cls: _record_in(cls, converter, layout))
    converter.register_unstructure_hook_factory(is_record, build_out)
    converter.register_structure_hook_factory(is_record, build_in)
    register_containers(converter)
    converter.register_unstructure_hook_func(is_free, free_out)
    converter.register_structure_hook_func(is_free, free_in)
    converter.register_unstructure_hook_factory(is_url, url_out)
    converter.register_structure_hook_func(is_url, url_in)
    converter.register_unstructure_hook_factory(
        is_renamed, lambda declared: converter.get_unstructure_hook(unwrapped(declared))
    )
    converter.register_structure_hook_func(
        is_renamed, lambda value, declared: converter.structure(value, unwrapped(declared))
    )
    return converter


def event_out(event_type: EventType) -> Callable[[Any], dict[str, Any]]:
    """Build the function that turns an event of this type into its JSON object."""
    names = _overrides(event_names(event_type.cls, event_type.layout))
    inner = make_dict_unstructure_fn(event_type.cls, converter_for(event_type.layout), **names)
    return inner if event_type.layout == "snake" else _with_version(inner, event_type.version)


def event_in(event_type: EventType) -> Callable[[dict[str, Any], Any], Any]:
    """Build the function that restores an event of this type from its JSON object."""
    names = event_names(event_type.cls, event_type.layout)
    return _fields_in(event_type.cls, converter_for(event_type.layout), names)


def _once_per_class(build: Callable[[type[Any]], Hook]) -> Callable[[type[Any]], Hook]:
    """Let a class that contains itself meet a stand-in for its hook while that hook is being built."""
    hooks: dict[type[Any], Any] = {}
    turn = RLock()

    def hook_for(cls: type[Any]) -> Any:
        with turn:
            if cls not in hooks:
                hooks[cls] = lambda *arguments: hooks[cls](*arguments)  # noqa: PLW0108 - looked up when called
                try:
                    hooks[cls] = build(cls)
                except BaseException:
                    del hooks[cls]
                    raise
            return hooks[cls]

    return hook_for


def _with_version(inner: Callable[[Any], dict[str, Any]], version: int) -> Callable[[Any], dict[str, Any]]:
    def unstructure(event: Any) -> dict[str, Any]:
        body = inner(event)
        head = {"eventId": body.pop("eventId"), "occurredOn": body.pop("occurredOn")}
        return {**head, EVENT_VERSION: version, **body}

    return unstructure


def _overrides(names: dict[str, str]) -> dict[str, Any]:
    return {name: override(rename=key) for name, key in names.items()}


def _record_out(cls: type[Any], converter: Converter, layout: str) -> Callable[[Any], Any]:
    build = _value_object_out if is_value_object(cls) else _fields_out
    write = build(cls, converter, layout)
    if not runs_code(cls):
        return write

    def unstructure(value: Any) -> Any:
        # In this order, since a field says best why it refuses what it holds.
        body = write(value)
        check_restores(value)
        return body

    return unstructure


def _fields_out(cls: type[Any], converter: Converter, layout: str) -> Callable[[Any], Any]:
    names = names_of(cls, layout)
    inner = (
        _model_out(cls, converter, names)
        if is_model(cls)
        else make_dict_unstructure_fn(cls, converter, **_overrides(names))
    )

    def unstructure(value: Any) -> Any:
        if type(value) is not cls:
            raise refusal(value, cls.__name__)
        return inner(value)

    return unstructure


def _model_out(cls: type[Any], converter: Converter, names: dict[str, str]) -> Callable[[Any], Any]:
    written = [
        (field.name, names[field.name], converter.get_unstructure_hook(field.type, cache_result=False))
        for field in argument_fields(cls)
    ]
    return lambda value: {key: hook(getattr(value, name)) for name, key, hook in written}


def _value_object_out(cls: type[Any], converter: Converter, layout: str) -> Callable[[Any], Any]:
    field = value_field(cls)
    bare = converter.get_unstructure_hook(unwrapped(field.type), cache_result=False)
    name, wrap = field.name, layout == "camel"

    def unstructure(value: Any) -> Any:
        if type(value) is not cls:
            raise refusal(value, cls.__name__)
        inner = bare(getattr(value, name))
        return {"value": inner} if wrap else inner

    return unstructure


def _record_in(cls: type[Any], converter: Converter, layout: str) -> Callable[[Any, Any], Any]:
    if is_value_object(cls):
        return _value_object_in(cls, converter, layout)
    if is_model(cls):
        return _model_in(cls, converter, layout)
    return _fields_in(cls, converter, names_of(cls, layout))


def _fields_in(cls: type[Any], converter: Converter, names: dict[str, str]) -> Callable[[Any, Any], Any]:
    if _mixes_places(cls):
        return _by_keyword_in(cls, converter, names)
    return make_dict_structure_fn(cls, converter, _cattrs_detailed_validation=False, **_overrides(names))


def _mixes_places(cls: type[Any]) -> bool:
    """Tell whether an argument that has a place comes after one that has none: cattrs would write no Python for it."""
    required = [field.keyword for field in argument_fields(cls) if field.is_required]
    found = inspect.signature(cls.__init__).parameters
    named = [
        keyword in found and found[keyword].kind is inspect.Parameter.KEYWORD_ONLY for keyword in required
    ]
    return named != sorted(named)


def _by_keyword_in(cls: type[Any], converter: Converter, names: dict[str, str]) -> Callable[[Any, Any], Any]:
    read = [
        (field, names[field.name], converter.get_structure_hook(field.type, cache_result=False))
        for field in argument_fields(cls)
    ]

    def structure(body: Any, _: Any) -> Any:
        return cls(
            **{
                field.keyword: hook(body[key], field.type)
                for field, key, hook in read
                if field.is_required or key in body
            }
        )

    return structure


def _value_object_in(cls: type[Any], converter: Converter, layout: str) -> Callable[[Any, Any], Any]:
    field = value_field(cls)
    declared = unwrapped(field.type)
    bare = converter.get_structure_hook(declared, cache_result=False)
    make, wrapped = maker_of(cls), layout == "camel"

    def structure(value: Any, _: Any) -> Any:
        return make(bare(value["value"] if wrapped else value, declared))

    return structure


def _model_in(cls: type[Any], converter: Converter, layout: str) -> Callable[[Any, Any], Any]:
    names = names_of(cls, layout)
    read = [
        (
            field.name,
            names[field.name],
            field.type,
            converter.get_structure_hook(field.type, cache_result=False),
        )
        for field in argument_fields(cls)
    ]

    def structure(body: Any, _: Any) -> Any:
        if not isinstance(body, dict):
            raise refusal(body, "dict")
        held = {name: hook(body[key], declared) for name, key, declared, hook in read if key in body}
        return restored_record(cls, held)

    return structure
