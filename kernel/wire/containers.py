"""Strict conversion of what is made of scalars: enums, literals, lists, tuples, sets and dicts (K8)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from outbox_kernel.kernel.wire.records import is_value_object, maker_of, value_field
from outbox_kernel.kernel.wire.scalars import Misfit, refusal
from outbox_kernel.kernel.wire.types import is_subclass, unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable

    from cattrs import Converter


def register_containers(converter: Converter) -> None:
    """Teach a converter the enums, literals and containers of the wire."""
    converter.register_structure_hook_factory(_is_enum)(_enum_in)
    converter.register_unstructure_hook_factory(_is_literal)(_literal_out)
    converter.register_structure_hook_factory(_is_literal)(_literal_in)
    converter.register_unstructure_hook_factory(_is_container)(_container_out)
    converter.register_structure_hook_factory(_is_container)(_container_in)
    converter.register_unstructure_hook_factory(_is_dict)(_dict_out)
    converter.register_structure_hook_factory(_is_dict)(_dict_in)


def _is_enum(declared: Any) -> bool:
    return is_subclass(declared, Enum)


def enum_out(declared: type[Enum]) -> Callable[[Any], Any]:
    """Build the function that writes a member of this Enum, and refuses anything else."""

    def unstructure(value: Any) -> Any:
        if not isinstance(value, declared):
            raise refusal(value, declared.__name__)
        return value.value

    return unstructure


def _enum_in(declared: type[Enum]) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        # Else True would be 1, of which it is an equal.
        if type(value) not in (str, int):
            raise refusal(value, declared.__name__)
        return declared(value)

    return structure


def _is_literal(declared: Any) -> bool:
    return get_origin(declared) is Literal


def _literal_out(declared: Any) -> Callable[[Any], Any]:
    admitted = {(type(value), value) for value in get_args(declared)}

    def unstructure(value: Any) -> Any:
        if (type(value), value) not in admitted:
            raise ValueError(f"holds {value!r}, which its Literal does not list")
        return value

    return unstructure


def _literal_in(declared: Any) -> Callable[[Any, Any], Any]:
    check = _literal_out(declared)
    return lambda value, _: check(value)


def _is_container(declared: Any) -> bool:
    return get_origin(declared) in (list, set, frozenset, tuple)


def _container_out(declared: Any, converter: Converter) -> Callable[[Any], list[Any]]:
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _fixed_tuple_out(arguments, converter)
    member_out = converter.get_unstructure_hook(arguments[0], cache_result=False)

    def unstructure(value: Any) -> list[Any]:
        if not isinstance(value, origin):
            raise refusal(value, origin.__name__)
        return [member_out(member) for member in value]

    return unstructure


def _fixed_tuple_out(arguments: tuple[Any, ...], converter: Converter) -> Callable[[Any], list[Any]]:
    hooks = [converter.get_unstructure_hook(argument, cache_result=False) for argument in arguments]

    def unstructure(value: Any) -> list[Any]:
        _check_length(value, tuple, len(hooks))
        return [hook(member) for hook, member in zip(hooks, value, strict=True)]

    return unstructure


def _container_in(declared: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _fixed_tuple_in(arguments, converter)
    member_type = arguments[0]
    member_in = converter.get_structure_hook(member_type, cache_result=False)

    def structure(value: Any, _: Any) -> Any:
        if not isinstance(value, list):
            raise refusal(value, "list")
        return origin([member_in(member, member_type) for member in value])

    return structure


def _fixed_tuple_in(arguments: tuple[Any, ...], converter: Converter) -> Callable[[Any, Any], Any]:
    hooks = [converter.get_structure_hook(argument, cache_result=False) for argument in arguments]

    def structure(value: Any, _: Any) -> Any:
        _check_length(value, list, len(hooks))
        members = zip(hooks, value, arguments, strict=True)
        return tuple([hook(member, declared) for hook, member, declared in members])

    return structure


def _check_length(value: Any, expected: type[list[Any] | tuple[Any, ...]], length: int) -> None:
    if not isinstance(value, expected):
        raise refusal(value, expected.__name__)
    if len(value) != length:
        raise Misfit(f"holds {len(value)} members where {length} are declared")


def _is_dict(declared: Any) -> bool:
    return get_origin(declared) is dict


def _dict_out(declared: Any, converter: Converter) -> Callable[[Any], dict[str, Any]]:
    key_type, value_type = get_args(declared)
    key_out = converter.get_unstructure_hook(key_type, cache_result=False)
    value_out = converter.get_unstructure_hook(value_type, cache_result=False)

    def unstructure(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refusal(value, "dict")
        return {_key_out(key_out(key)): value_out(member) for key, member in value.items()}

    return unstructure


def _dict_in(declared: Any, converter: Converter) -> Callable[[Any, Any], dict[Any, Any]]:
    key_type, value_type = get_args(declared)
    value_in = converter.get_structure_hook(value_type, cache_result=False)

    def structure(value: Any, _: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise refusal(value, "dict")
        return {_key_in(key_type, key): value_in(member, value_type) for key, member in value.items()}

    return structure


def _key_out(key: Any) -> str:
    # In the camel layout a value object is {"value": …}; as a key only its bare value can stand.
    while isinstance(key, dict):
        key = next(iter(key.values()))
    # An Enum that is a str or an int has its own idea of its text.
    return str(key.value if isinstance(key, Enum) else key)


def _key_in(declared: Any, key: str) -> Any:
    declared = unwrapped(declared)
    if is_value_object(declared):
        return maker_of(declared)(_key_in(value_field(declared).type, key))
    if _is_enum(declared):
        # All values of an Enum of keys are of one type, which registration has checked.
        return declared(_key_in(type(next(iter(declared)).value), key))
    return declared(key)
