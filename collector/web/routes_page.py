"""The page of the HTTP routes, made from the OpenAPI document: no script, nothing foreign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from collector.web.page import STYLE_PATH, template

OPENAPI_PATH = "/openapi.json"
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_NO_TAG = "other"


class _Schema(msgspec.Struct):
    type: str | list[str] = ""
    ref: str = msgspec.field(name="$ref", default="")
    items: _Schema | None = None
    either: list[_Schema] = msgspec.field(name="anyOf", default=[])
    default: object = msgspec.UNSET


class _Media(msgspec.Struct):
    schema: _Schema = msgspec.field(default_factory=_Schema)


class _Parameter(msgspec.Struct):
    name: str
    place: str = msgspec.field(name="in")
    required: bool = False
    description: str = ""
    schema: _Schema = msgspec.field(default_factory=_Schema)


class _Answer(msgspec.Struct):
    description: str = ""
    content: dict[str, _Media] = {}


class _Operation(msgspec.Struct):
    tags: list[str] = []
    summary: str = ""
    description: str = ""
    parameters: list[_Parameter] = []
    body: _Answer | None = msgspec.field(name="requestBody", default=None)
    responses: dict[str, _Answer] = {}


class _Info(msgspec.Struct):
    title: str = ""
    version: str = ""


class _Document(msgspec.Struct):
    info: _Info = msgspec.field(default_factory=_Info)
    paths: dict[str, dict[str, object]] = {}  # other members than methods are not read


@dataclass(frozen=True, slots=True)
class ParameterView:
    """One parameter of a route; `default` is empty where there is none."""

    name: str
    place: str
    type: str
    default: str
    required: bool
    description: str


@dataclass(frozen=True, slots=True)
class AnswerView:
    """One answer of a route, or what it takes (`status` is then empty)."""

    status: str
    description: str
    type: str


@dataclass(frozen=True, slots=True)
class RouteView:
    """One method of one path."""

    method: str
    path: str
    summary: str
    parameters: tuple[ParameterView, ...]
    body: AnswerView | None
    answers: tuple[AnswerView, ...]


def render_routes(openapi: Mapping[str, object]) -> str:
    """Return the page of an OpenAPI document as HTML. Whatever is in it is escaped.

    Args:
        openapi: The document as FastAPI makes it (`app.openapi()`).

    Raises:
        ValueError: If it is not of the form of OpenAPI 3.1.
    """
    try:
        document = msgspec.convert(openapi, _Document)
        groups = _groups(document)
    except msgspec.ValidationError as error:
        msg = f"the OpenAPI document is not of the expected form: {error}"
        raise ValueError(msg) from error
    return template("routes.html").render(
        title=document.info.title,
        groups=groups,
        style_path=STYLE_PATH,
        openapi_path=OPENAPI_PATH,
    )


def _groups(document: _Document) -> dict[str, list[RouteView]]:
    """Return the routes by their first tag, both in the order of the document."""
    groups: dict[str, list[RouteView]] = {}
    for path, methods in document.paths.items():
        for method in _METHODS:
            if method in methods:
                operation = msgspec.convert(methods[method], _Operation)
                tag = operation.tags[0] if operation.tags else _NO_TAG
                groups.setdefault(tag, []).append(_route(method, path, operation))
    return groups


def _route(method: str, path: str, operation: _Operation) -> RouteView:
    return RouteView(
        method=method.upper(),
        path=path,
        summary=operation.description or operation.summary,
        parameters=tuple(map(_parameter, operation.parameters)),
        body=None if operation.body is None else _answer("", operation.body),
        answers=tuple(_answer(status, found) for status, found in operation.responses.items()),
    )


def _parameter(parameter: _Parameter) -> ParameterView:
    return ParameterView(
        name=parameter.name,
        place=parameter.place,
        type=_type(parameter.schema),
        default=_value(parameter.schema.default),
        required=parameter.required,
        description=parameter.description,
    )


def _value(default: object) -> str:
    """Return a default as it would be written in JSON or a query; empty if there is none."""
    if default is None or default is msgspec.UNSET:
        return ""
    return default if isinstance(default, str) else msgspec.json.encode(default).decode()


def _answer(status: str, answer: _Answer) -> AnswerView:
    types = {_type(media.schema) or kind for kind, media in answer.content.items()}
    return AnswerView(status, answer.description, " or ".join(sorted(types)))


def _type(schema: _Schema) -> str:
    """Return what a schema is called; empty if it says nothing."""
    if schema.ref:
        return schema.ref.rpartition("/")[2]
    if schema.either:
        return " or ".join(filter(None, map(_type, schema.either)))
    if schema.type == "array" and schema.items is not None:
        return f"list of {_type(schema.items) or 'anything'}"
    return schema.type if isinstance(schema.type, str) else " or ".join(schema.type)
