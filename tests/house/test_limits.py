"""The limits of a package stand in its one module of limits, each with its unit last in its name (H1)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNITS = {
    *("MAX", "MIN", "MILLISECONDS", "SECONDS", "HOURS", "DAYS", "BITS", "BYTES", "CHARACTERS", "DIGITS"),
    *("CONNECTIONS", "DESCRIPTORS", "EVENTS", "MESSAGES", "ORDERS", "PLACES", "POSITIONS", "ROWS", "STEPS"),
    *("ATTEMPTS", "COUNT", "RENEWALS", "TAKEOVERS", "TIMES", "TURNS"),
}
NO_LIMITS = {
    "kernel/identity.py: _CANONICAL_CHARACTERS": "so long is any UUID as it is written",
    "infrastructure/brokers/rabbitmq/decoding.py: _MOMENT_BYTES": "AMQP's own",
    "infrastructure/brokers/rabbitmq/decoding.py: _SIZE_BYTES": "AMQP's own",
    "infrastructure/dashboard/charts.py: _PLACES": "how a number of a drawing is written",
    "infrastructure/http/connection.py: _IPV6_HOME_BITS": "what one home is given of addresses",
    "infrastructure/http/token_keys.py: _POINT_BYTES": "so long is any point of that curve",
}


def is_number(value: ast.expr) -> bool:
    """Whether it is a number, arithmetic with one, or a tuple of them."""
    match value:
        case ast.Constant():
            return isinstance(value.value, int | float) and not isinstance(value.value, bool)
        case ast.UnaryOp():
            return is_number(value.operand)
        case ast.BinOp():
            return is_number(value.left) or is_number(value.right)
        case ast.Tuple():
            return all(is_number(each) for each in value.elts)
        case ast.Starred():
            return is_number(value.value)
        case _:
            return False


def numbers(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module gives to numbers."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and is_number(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target)]
            yield from (name.id for name in names if isinstance(name, ast.Name))


def ends_in_a_unit(name: str) -> bool:
    return name.rpartition("_")[2] in UNITS


def modules(*, of_limits: bool) -> Iterator[tuple[str, ast.Module]]:
    for folder in ("kernel", "infrastructure"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if (path.name == "limits.py") is of_limits:
                yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def test_a_limit_stands_with_the_limits_of_its_package() -> None:
    elsewhere = {
        f"{path}: {name}"
        for path, tree in modules(of_limits=False)
        for name in numbers(tree)
        if ends_in_a_unit(name)
    }
    assert elsewhere == set(NO_LIMITS)


def test_the_name_of_a_limit_ends_in_its_unit() -> None:
    found = [(path, name) for path, tree in modules(of_limits=True) for name in numbers(tree)]
    assert found
    assert [each for each in found if not ends_in_a_unit(each[1]) or each[1].startswith("_")] == []


def test_a_module_of_limits_holds_numbers_and_nothing_else() -> None:
    for path, tree in modules(of_limits=True):
        assert ast.get_docstring(tree), path
        others = [ast.unparse(node) for node in tree.body[1:] if not list(numbers(ast.Module([node], [])))]
        assert others == [], path


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("A_MAX = 1", ["A_MAX"]),
        ("A_SECONDS: float = 60 * 2.5", ["A_SECONDS"]),
        ("A_BYTES, B_BYTES = -1, 2", ["A_BYTES", "B_BYTES"]),
        ("A_SECONDS = B_SECONDS + 1", ["A_SECONDS"]),
        ("A_SECONDS = (0.1, 0.2)", ["A_SECONDS"]),
        ("A_SECONDS = (0, *(1, 2))", ["A_SECONDS"]),
        ("A_STEPS = (('day', 86_400), ('hour', 3_600))", []),
        ("A_MAX = B_MAX", []),
        ("A_MAX = 'one'", []),
        ("A_MAX = True", []),
        ("def f():\n    A_MAX = 1", []),
    ],
)
def test_a_number_is_found_however_it_is_written(code: str, names: list[str]) -> None:
    assert list(numbers(ast.parse(code))) == names
