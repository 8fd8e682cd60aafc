"""The log lines that the code can write, read off its calls: their action, level and fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from attrs import Factory, define

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("kernel", "infrastructure", "contexts")
LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")
# A key that says of what kind somebody is, and what it may be.
KEYS = {"carried.kind": ("handler", "publisher")}


@define
class Line:
    """All lines of one action."""

    levels: set[str] = Factory(set)
    fields: list[str] = Factory(list)

    @property
    def told(self) -> tuple[str, str]:
        """Level and fields as the reference has them."""
        return " or ".join(sorted(self.levels)), ", ".join(f"`{each}`" for each in self.fields) or "none"


class Untold(Exception):
    """A call that says no action, or fields that nobody can read off it."""


@define
class Call:
    """A call of a logger, and the function that it stands in."""

    place: str
    node: ast.Call
    within: ast.AST

    @property
    def level(self) -> set[str]:
        """The levels that it may have."""
        name = self.node.func.attr if isinstance(self.node.func, ast.Attribute) else ""
        if name != "log":
            return {{"exception": "error"}.get(name, name)}
        named = [each for each in ast.walk(self.node.args[0]) if isinstance(each, ast.Attribute)]
        return {each.attr.lower() for each in named if ast.unparse(each.value) == "logging"}

    @property
    def extra(self) -> dict[str, ast.expr | None]:
        """What it gives besides the sentence."""
        given = [each.value for each in self.node.keywords if each.arg == "extra"]
        if len(given) != 1 or not isinstance(given[0], ast.Dict):
            raise Untold(f'{self.place}: give `extra={{"action": …}}`, by which the line is known')
        return dict(self._fields(given[0]))

    def _fields(self, given: ast.expr) -> Iterator[tuple[str, ast.expr | None]]:
        if isinstance(given, ast.Dict):
            for key, value in zip(given.keys, given.values, strict=True):
                if key is None:
                    yield from self._fields(value)
                elif isinstance(key, ast.Constant):
                    yield str(key.value), value
                else:
                    yield from ((name, None) for name in KEYS[ast.unparse(key)])
        elif isinstance(given, ast.DictComp):
            yield "…", None  # which differ from line to line
        elif isinstance(given, ast.IfExp):
            yield from self._fields(given.body)
            yield from self._fields(given.orelse)
        elif isinstance(given, ast.Name):
            yield from self._fields(self._assigned(given.id))
        elif isinstance(given, ast.Call):
            yield from self._fields(self._returned(ast.unparse(given.func).rpartition(".")[2]))
        else:
            raise Untold(f"{self.place}: nobody can read off it what {ast.unparse(given)} gives")

    def _assigned(self, name: str) -> ast.expr:
        for node in ast.walk(self.within):
            if isinstance(node, ast.Assign) and [ast.unparse(each) for each in node.targets] == [name]:
                return node.value
        raise Untold(f"{self.place}: nobody can read off it what {name} holds")

    def _returned(self, name: str) -> ast.expr:
        here = self.place.partition(":")[0]
        # One of the same file goes before one of the same name elsewhere.
        for file, tree in sorted(trees().items(), key=lambda each: each[0] != here):
            for node in ast.walk(tree):
                if (
                    isinstance(node, ast.FunctionDef)
                    and node.name == name
                    and (file == here or name[0] != "_")
                ):
                    last = node.body[-1]
                    if isinstance(last, ast.Return) and last.value is not None:
                        return last.value
        raise Untold(f"{self.place}: nobody can read off it what {name}() returns")


@cache
def trees() -> dict[str, ast.Module]:
    """The code that logs, by file."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text()) for path in paths}


def calls(file: str, tree: ast.AST) -> Iterator[Call]:
    """Yield each call of the file's logger."""
    for within in ast.walk(tree):
        if isinstance(within, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(within):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr in LEVELS
                    and ast.unparse(node.func.value) in ("_log", "logging")
                ):
                    yield Call(f"{file}:{node.lineno}", node, within)


def lines() -> dict[str, Line]:
    """Every line that there can be, by its action."""
    found: dict[str, Line] = {}
    for file, tree in trees().items():
        for call in calls(file, tree):
            extra = call.extra
            action = extra.pop("action", None)
            if not isinstance(action, ast.Constant):
                raise Untold(f"{call.place}: its action is no word that stays the same")
            line = found.setdefault(str(action.value), Line())
            line.levels |= call.level
            line.fields += [name for name in extra if name not in line.fields]
    return found
