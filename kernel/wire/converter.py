"""The cattrs converter behind the wire format, one per layout, and the two ways of an event (K8)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import attrs
from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from kernel.wire.containers import register_containers
from kernel.wire.scalars import refusal, register_scalars
from kernel.wire.types import is_value_object, unwrapped, value_field

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.catalogue import EventType

_ENVELOPE_NAMES = {"event_id": "eventId", "occurred_at": "occurredOn"}


@cache
def converter_for(layout: str) -> Converter:
    """Return the one converter of a layout."""
    converter = Converter(detailed_validation=False)
    register_scalars(converter)
    converter.register_unstructure_hook_factory(_is_attrs_class)(
        lambda cls, inner: _attrs_out(cls, inner, layout)
    )
    converter.register_structure_hook_factory(_is_attrs_class)(
        lambda cls, inner: _attrs_in(cls, inner, layout)
    )
    register_containers(converter)
    return converter


@cache
def event_out(event_type: EventType) -> Callable[[Any], dict[str, Any]]:
    """Build the function that turns an event of this type into its JSON object."""
    names = _overrides(wire_names(event_type))
    inner = make_dict_unstructure_fn(event_type.cls, converter_for(event_type.layout), **names)
    return inner if event_type.layout == "snake" else _with_version(inner, event_type.version)


@cache
def event_in(event_type: EventType) -> Callable[[dict[str, Any], Any], Any]:
    """Build the function that restores an event of this type from its JSON object."""
    return make_dict_structure_fn(
        event_type.cls,
        converter_for(event_type.layout),
        _cattrs_detailed_validation=False,
        **_overrides(wire_names(event_type)),
    )


def wire_names(event_type: EventType) -> dict[str, str]:
    """Map each field of an event to its key in the payload."""
    names = [field.name for field in attrs.fields(event_type.cls)]
    if event_type.layout == "snake":
        return {name: name for name in names}
    return {name: _ENVELOPE_NAMES.get(name, _camel(name)) for name in names}


def _with_version(inner: Callable[[Any], dict[str, Any]], version: int) -> Callable[[Any], dict[str, Any]]:
    def unstructure(event: Any) -> dict[str, Any]:
        body = inner(event)
        head = {"eventId": body.pop("eventId"), "occurredOn": body.pop("occurredOn")}
        return {**head, "eventVersion": version, **body}

    return unstructure


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _overrides(names: dict[str, str]) -> dict[str, Any]:
    return {name: override(rename=key) for name, key in names.items()}


def _layout_overrides(cls: type[Any], layout: str) -> dict[str, Any]:
    return (
        _overrides({field.name: _camel(field.name) for field in attrs.fields(cls)})
        if layout == "camel"
        else {}
    )


def _is_attrs_class(declared: Any) -> bool:
    return isinstance(declared, type) and attrs.has(declared)


def _attrs_out(cls: type[Any], converter: Converter, layout: str) -> Callable[[Any], Any]:
    if is_value_object(cls):
        return _value_object_out(cls, converter, layout)
    inner = make_dict_unstructure_fn(cls, converter, **_layout_overrides(cls, layout))

    def unstructure(value: Any) -> Any:
        if type(value) is not cls:
            raise refusal(value, cls.__name__)
        return inner(value)

    return unstructure


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


def _attrs_in(cls: type[Any], converter: Converter, layout: str) -> Callable[[Any, Any], Any]:
    if is_value_object(cls):
        return _value_object_in(cls, converter, layout)
    return make_dict_structure_fn(
        cls, converter, _cattrs_detailed_validation=False, **_layout_overrides(cls, layout)
    )


def _value_object_in(cls: type[Any], converter: Converter, layout: str) -> Callable[[Any, Any], Any]:
    field = value_field(cls)
    declared = unwrapped(field.type)
    bare = converter.get_structure_hook(declared, cache_result=False)
    alias, wrapped = field.alias, layout == "camel"

    def structure(value: Any, _: Any) -> Any:
        return cls(**{alias: bare(value["value"] if wrapped else value, declared)})

    return structure
