"""How much a GraphQL operation asks for when its fragments are written out, and a limit to it.

Twenty fragments that each spread the next one twice are a few lines, and a million fields: whoever walks them, as every
other limit does, is busy for minutes, and so is the whole process. So this is counted first, each fragment once.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from graphql import DocumentNode, FragmentDefinitionNode, FragmentSpreadNode, GraphQLError
from graphql import OperationDefinitionNode as Operation
from strawberry.extensions import SchemaExtension

from outbox_kernel.infrastructure.http.limits import GRAPHQL_LEVELS_MAX, SELECTIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphql import SelectionNode, SelectionSetNode


class SizeLimiter(SchemaExtension):
    """Refuses an operation that is too large before anything else looks at it."""

    def on_validate(self) -> Iterator[None]:
        """Count, and have nothing else validated if it is too much."""
        document = self.execution_context.graphql_document
        if document is not None and written_out(document) > SELECTIONS_MAX:
            self.execution_context.pre_execution_errors = [
                GraphQLError(
                    f"the operation asks for more than {SELECTIONS_MAX:,} fields, or nests them more than "
                    f"{GRAPHQL_LEVELS_MAX} deep, when its fragments are written out: ask for less at once"
                )
            ]
        yield


def written_out(document: DocumentNode) -> float:
    """Count all selections of all operations; infinitely many if a fragment leads back to itself."""
    operations = [each for each in document.definitions if isinstance(each, Operation)]
    count = _Count(document)
    return sum(count.of(each.selection_set, 1) for each in operations)


class _Count:
    def __init__(self, document: DocumentNode) -> None:
        self._fragments = {
            each.name.value: each for each in document.definitions if isinstance(each, FragmentDefinitionNode)
        }
        self._known: dict[str, float] = {}

    def of(self, selections: SelectionSetNode, level: int) -> float:
        if level > GRAPHQL_LEVELS_MAX:
            return inf
        return sum(1 + self._below(each, level + 1) for each in selections.selections)

    def _below(self, selection: SelectionNode, level: int) -> float:
        if isinstance(selection, FragmentSpreadNode):
            return self._of_fragment(selection.name.value, level)
        inner: SelectionSetNode | None = getattr(selection, "selection_set", None)
        return 0 if inner is None else self.of(inner, level)

    def _of_fragment(self, name: str, level: int) -> float:
        if name not in self._known:
            # Until it is counted; whoever meets it before has come full circle.
            self._known[name] = inf
            fragment = self._fragments.get(name)
            self._known[name] = 0 if fragment is None else self.of(fragment.selection_set, level)
        return self._known[name]
