"""GraphQL: one schema of what all contexts bring, at one address, with limits and the same refusals as everywhere.

The endpoint is ours and not Strawberry's router: that one also answers by web socket, GET, multipart and in parts.
"""

from __future__ import annotations

import inspect
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import strawberry
from attrs import frozen
from fastapi import APIRouter, Request
from graphql import GraphQLError, StringValueNode, ValidationContext, ValidationRule
from graphql.validation.validate import ValidationAbortedError
from pydantic import Field
from strawberry.extensions import (
    AddValidationRules,
    MaxAliasesLimiter,
    MaxTokensLimiter,
    QueryDepthLimiter,
    SchemaExtension,
)
from strawberry.schema.exceptions import CannotGetOperationTypeError
from strawberry.tools import merge_types
from strawberry.types import get_object_definition

from outbox_kernel.infrastructure.http.bodies import UNSTORABLE, JsonBody, is_storable, too_large
from outbox_kernel.infrastructure.http.graphql_size import SizeLimiter
from outbox_kernel.infrastructure.http.limits import (
    ALIASES_MAX,
    DEPTH_MAX,
    OPERATION_NAME_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    TOKENS_MAX,
)
from outbox_kernel.infrastructure.http.openapi import EVERYWHERE
from outbox_kernel.infrastructure.http.problems import (
    KIND_PREFIX,
    RETRY_AFTER,
    UNAVAILABLE,
    UNEXPECTED,
    Problem,
    Refused,
    problem_of,
)
from outbox_kernel.infrastructure.http.scope import container_of
from outbox_kernel.kernel.context import current_headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from graphql.language import VisitorAction
    from lagom import Container
    from strawberry.types import ExecutionContext, Info

    from outbox_kernel.infrastructure.http.discovery import Api

_log = logging.getLogger("outbox.http")

PATH = "/graphql"
_OUTAGE = KIND_PREFIX + UNAVAILABLE.kind
_WHICH = Problem(
    400,
    "which_operation",
    "the query has no operation of that name, or several and none is named: say which with operationName",
)
T = TypeVar("T")


@frozen
class GraphQLContext:
    """What resolvers have of their request."""

    container: Container


def provided(info: Info[GraphQLContext, None], kind: type[T]) -> T:
    """Give a resolver what the request's container makes."""
    return info.context.container[kind]


class GraphQLRequest(JsonBody):
    """An operation to run."""

    query: str = Field(min_length=1, max_length=TEXT_CHARACTERS_MAX, examples=["{ __typename }"])
    variables: dict[str, Any] | None = None
    operation_name: Annotated[
        str | None, Field(alias="operationName", max_length=OPERATION_NAME_CHARACTERS_MAX)
    ] = None
    extensions: dict[str, Any] | None = None


def router_of(apis: Sequence[Api], bytes_max: int) -> APIRouter | None:
    """Serve the types of all contexts as one schema, if any has some."""
    queries = tuple(api.query for api in apis if api.query)
    if not queries:
        return None
    schema = _schema(queries, tuple(api.mutation for api in apis if api.mutation))
    router = APIRouter(tags=["graphql"], responses=EVERYWHERE)

    @router.post(PATH, summary="Run a GraphQL operation")
    async def run(body: GraphQLRequest, request: Request) -> dict[str, Any]:
        """Answer with `data`, with `errors`, or with both; an error's `extensions` say what kind of problem it is."""
        if len(await request.body()) > bytes_max:
            raise Refused(too_large(bytes_max))
        try:
            result = await schema.execute(
                body.query,
                variable_values=body.variables,
                operation_name=body.operation_name or None,
                context_value=GraphQLContext(container_of(request.scope)),
            )
        except CannotGetOperationTypeError:
            raise Refused(_WHICH) from None
        told: dict[str, Any] = {"data": result.data}
        if result.errors:
            if any((error.extensions or {}).get("type") == _OUTAGE for error in result.errors):
                request.app.state.health.doubt()
            told["errors"] = [error.formatted for error in _worth_telling(result.errors)]
        return told

    return router


def _worth_telling(errors: list[GraphQLError]) -> list[GraphQLError]:
    """Leave it at the first of what is wrong with an operation's text; what has become of its fields is told whole."""
    return errors if errors[0].path else errors[:1]


class _Schema(strawberry.Schema):
    def process_errors(
        self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None
    ) -> None:
        """Log nothing here: a refusal is no error of ours, and the rest is logged where it is translated."""


def _schema(queries: tuple[type[Any], ...], mutations: tuple[type[Any], ...]) -> strawberry.Schema:
    for kind in (*queries, *mutations):
        _describe(kind)
    return _Schema(
        query=merge_types("Query", queries),
        mutation=merge_types("Mutation", mutations) if mutations else None,
        extensions=[
            SizeLimiter,
            lambda: QueryDepthLimiter(max_depth=DEPTH_MAX),
            lambda: MaxAliasesLimiter(max_alias_count=ALIASES_MAX),
            lambda: MaxTokensLimiter(max_token_count=TOKENS_MAX),
            lambda: AddValidationRules([_FirstErrorAlone, _StorableText]),
            _Refusals,
        ],
    )


def _describe(kind: type[Any]) -> None:
    """Let the schema say of each field what its docstring says."""
    for field in get_object_definition(kind, strict=True).fields:
        if field.description is None and field.base_resolver is not None:
            field.description = inspect.getdoc(field.base_resolver.wrapped_func)


class _FirstErrorAlone(ValidationRule):
    """Ends the validation at the first error: to find out what may have been meant takes longer than all the rest."""

    def __init__(self, context: ValidationContext) -> None:
        super().__init__(context)
        report = context.report_error

        def report_and_end(error: GraphQLError) -> None:
            report(error)
            raise ValidationAbortedError("the first error ends it")

        context.report_error = report_and_end  # type: ignore[method-assign]  # there is no other way to be told


class _StorableText(ValidationRule):
    """Refuses in the operation's text what the door refuses in the variables."""

    def enter_string_value(self, node: StringValueNode, *_: object) -> VisitorAction:
        """Look at one literal."""
        if not is_storable(node.value):
            self.report_error(GraphQLError(f"a text {UNSTORABLE}"))
        return None


class _Refusals(SchemaExtension):
    """Tells each error as the rest of the API would."""

    def on_operation(self) -> Iterator[None]:
        """Translate them when all is done."""
        yield
        result: Any = self.execution_context.result
        if result is not None and result.errors:
            result.errors = [_told(error) for error in result.errors]


def _told(error: GraphQLError) -> GraphQLError:
    original = error.original_error
    if original is None or isinstance(original, GraphQLError):
        return error  # of the operation's own text
    problem = problem_of(original)
    if problem is UNEXPECTED:
        _log.error(
            "a GraphQL operation failed unexpectedly",
            exc_info=original,
            extra={"action": "api.graphql.failed", "request_id": current_headers()["request_id"]},
        )
    elif problem.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        told = str(original).partition("\n")[0] or problem.detail
        _log.warning(
            "a GraphQL operation cannot be served now: %s",
            told,
            extra={"action": "api.graphql.refused", "request_id": current_headers()["request_id"]},
        )
    return GraphQLError(
        problem.detail,
        nodes=error.nodes,
        source=error.source,
        positions=error.positions,
        path=error.path,
        extensions={
            "type": KIND_PREFIX + problem.kind,
            "status": problem.status,
            "request_id": current_headers()["request_id"],
            # An answer of GraphQL has one head for all of its fields.
            **({"retry_after": int(problem.headers[RETRY_AFTER])} if RETRY_AFTER in problem.headers else {}),
        },
    )
