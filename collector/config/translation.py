"""Pydantic's errors as `Problem`s: the path as written, what came, the nearest known word."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from collector.config.document import Document, Tree
from collector.config.problems import Place, nearest

_EXPECTED: Mapping[str, str] = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "mapping_type": "a mapping",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "path_type": "a path",
    "finite_number": "a finite number",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge:g}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le:g}",
    "too_short": "at least {min_length} entry",
    "too_long": "at most {max_length} entries",
}
_LISTS_OF_MAPPINGS = frozenset({"detectors", "files"})
_YES_NO = frozenset({"yes", "no", "on", "off", "y", "n"})


def report(document: Document, model: type[BaseModel], error: ValidationError) -> None:
    """Add every error that pydantic found to the document's problems."""
    for detail in error.errors(include_url=False, include_input=False):
        place, shape = _walk(document.data, model, detail["loc"])
        if not _follows_from_another(detail, _at(document.data, place)):
            _one(document, place, shape, detail)


def _follows_from_another(detail: ErrorDetails, value: Tree) -> bool:
    """Whether pydantic says this only because of another error that it reports as well."""
    kind = detail["type"]
    return kind == "default_factory_not_called" or (kind == "too_short" and bool(value))


def _one(document: Document, place: Place, shape: object, detail: ErrorDetails) -> None:
    kind = detail["type"]
    context: dict[str, Any] = detail.get("ctx", {})
    got = document.got(place, _at(document.data, place))
    if detail["loc"][-1] == "[key]":
        got = repr(str(place[-1]))
    if kind == "missing":
        document.report(place, f"the key {place[-1]!r} is missing", "add it")
    elif kind == "extra_forbidden":
        word = str(place[-1])
        document.report(place, "unknown key", nearest(word, _keys(shape)))
    elif kind == "literal_error":
        known = context["expected"].replace("'", "")
        remedy = _nearest_of(got, known)
        document.report(place, f"one of: {known.replace(' or ', ', ')}", remedy, got=got)
    elif kind == "union_tag_invalid":
        tags = context["expected_tags"].replace("'", "").split(", ")
        document.report(
            (*place, "kind"),
            "a known kind",
            nearest(context["tag"], tags),
            got=repr(context["tag"]),
        )
    elif kind == "union_tag_not_found":
        document.report((*place, "kind"), "the key 'kind' is missing", "add it")
    elif kind == "fusewire":
        document.report(place, context["expected"], context["remedy"], got=got)
    elif kind == "value_error":
        document.report(place, str(context["error"]), "")
    else:
        template = _EXPECTED.get(kind, detail["msg"])
        expected = template.format_map(context) if kind in _EXPECTED else template
        if expected == "a mapping" and len(place) > 1 and place[-2] == "targets":
            expected = "a URL or a mapping"
        document.report(place, expected, _remedy(document, place, kind, context), got=got)


def _remedy(document: Document, place: Place, kind: str, context: Mapping[str, Any]) -> str:
    raw = document.raw.get(place, "")
    if kind == "bool_type" and raw.lower() in _YES_NO:
        return "YAML 1.2 knows only true and false"
    if kind == "less_than_equal" and context["le"] == 1:
        return "it is a ratio, 0 to 1, not percent"
    if "${" in raw:
        return "an environment variable gives text, write the value itself"
    return _remedy_of_type(raw, kind, place) if raw else ""


def _remedy_of_type(raw: str, kind: str, place: Place) -> str:
    if kind in {"int_type", "float_type"}:
        return "write a decimal number without quotes"
    if kind in {"tuple_type", "list_type"} and place[-1] not in _LISTS_OF_MAPPINGS:
        return f"write [{raw}]"
    return f"put it in quotes: '{raw}'" if kind == "string_type" else ""


def _nearest_of(got: str, known: str) -> str:
    words = known.replace(" or ", ", ").split(", ")
    remedy = nearest(got.strip("'"), words)
    return remedy if remedy.startswith("did") else "write one of them"


def _at(data: Tree, place: Place) -> Tree:
    """Return the value at `place`, None if there is none."""
    for part in place:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            return None
    return data


def _walk(data: Tree, shape: object, location: tuple[int | str, ...]) -> tuple[Place, object]:
    """Follow an error's location through the types; drop parts that name a union's member.

    Returns the place as it is in the file and the type that holds its last part.
    """
    place: list[int | str] = []
    holder: object = shape
    for part in location:
        member = _member(shape, part, _at(data, tuple(place)))
        if member is not None:
            shape = member
            continue
        if part == "[key]":
            continue
        holder, shape = shape, _inner(shape, part)
        place.append(part)
    return tuple(place), holder


def _member(shape: object, part: int | str, value: Tree) -> object | None:
    """Return the member of a union that `part` names: a tag, or the type's own name."""
    for option in _options(shape):
        if isinstance(option, type) and issubclass(option, BaseModel):
            field = option.model_fields.get("kind")
            tags = get_args(field.annotation) if field is not None else ()
            if part in tags and isinstance(value, dict) and value.get("kind", part) == part:
                return option
    is_container = isinstance(value, dict | list)
    return shape if not is_container and isinstance(part, str) and value is not None else None


def _options(shape: object) -> tuple[object, ...]:
    """Return the members of a union (of one type: itself), aliases and annotations removed."""
    origin = get_origin(shape)
    if origin is Annotated:
        return _options(get_args(shape)[0])
    if origin in {Union, UnionType}:
        return tuple(option for one in get_args(shape) for option in _options(one))
    return (shape,)


def _inner(shape: object, part: int | str) -> object:
    """Return the type of the value under `part`."""
    for option in _options(shape):
        if isinstance(option, type) and issubclass(option, BaseModel):
            field = option.model_fields.get(str(part))
            if field is not None:
                return field.annotation
        elif get_origin(option) is not None and get_args(option):
            arguments = get_args(option)
            return arguments[0] if isinstance(part, int) else arguments[-1]
    return None


def _keys(shape: object) -> set[str]:
    found: set[str] = set()
    for option in _options(shape):
        if isinstance(option, type) and issubclass(option, BaseModel):
            found.update(option.model_fields)
    return found
