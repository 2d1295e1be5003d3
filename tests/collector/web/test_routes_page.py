"""The page of the routes: every route, and nothing that a browser would run or fetch elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from fastapi import FastAPI

from collector.api import all_routes
from collector.web.page import STYLE_PATH
from collector.web.routes_page import OPENAPI_PATH, render_routes
from tests.collector.web.reader import read, words

HOSTILE = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"


@pytest.fixture(scope="module")
def openapi() -> Mapping[str, object]:
    """The document of all routes that the service has."""
    app = FastAPI(title="Fusewire")
    app.include_router(all_routes())
    return app.openapi()


def test_every_route_of_the_service_is_listed(openapi: Mapping[str, object]) -> None:
    text = words(render_routes(openapi))

    paths = openapi["paths"]
    assert isinstance(paths, dict)
    listed = [f"{method.upper()} {path} " for path, found in paths.items() for method in found]
    assert len(listed) > 10
    assert [route for route in listed if route not in text] == []


def test_routes_stand_under_their_tag_with_parameters_and_schemas(
    openapi: Mapping[str, object],
) -> None:
    text = words(render_routes(openapi))

    assert text.index(" tiers ") < text.index("GET /v1/verdicts")
    assert "limit query integer 100 Most rows to return." in text
    assert "tier path string required" in text
    assert "Takes: OverrideIn Answers: 200 BreakerOut, 422 HTTPValidationError" in text
    assert "200 list of VerdictOut" in text


def test_the_page_needs_no_script_and_loads_its_style_sheet_only(
    openapi: Mapping[str, object],
) -> None:
    reader = read(render_routes(openapi))

    assert not {"script", "style", "iframe", "img"} & {tag for tag, _ in reader.tags}
    links = [found["href"] for tag, found in reader.tags if tag in {"a", "link"}]
    assert links == [STYLE_PATH, OPENAPI_PATH, "/"]
    assert reader.misplaced == []
    assert reader.open == []


def test_what_a_document_says_stays_text() -> None:
    answer = {"description": HOSTILE, "content": {HOSTILE: {"schema": {}}}}
    operation = {
        "tags": [HOSTILE],
        "description": HOSTILE,
        "parameters": [
            {
                "name": HOSTILE,
                "in": HOSTILE,
                "description": HOSTILE,
                "schema": {"type": HOSTILE, "default": HOSTILE},
            }
        ],
        "requestBody": answer,
        "responses": {HOSTILE: answer},
    }

    reader = read(
        render_routes({"info": {"title": HOSTILE}, "paths": {HOSTILE: {"get": operation}}})
    )

    assert "script" not in {tag for tag, _ in reader.tags}
    assert "".join(reader.text).count(HOSTILE) >= 9


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"$ref": "#/components/schemas/Level", "default": "ok"}, "Level ok"),
        ({"anyOf": [{"type": "number"}, {"type": "null"}], "default": None}, "number or null -"),
        ({"type": "array", "items": {"$ref": "#/x/Row"}}, "list of Row -"),
        ({"type": ["string", "null"]}, "string or null -"),
        ({"type": "boolean", "default": False}, "boolean false"),
        ({}, "any -"),
    ],
)
def test_a_type_is_told_in_words(schema: object, shown: str) -> None:
    operation = {"parameters": [{"name": "p", "in": "query", "schema": schema}], "responses": {}}

    text = words(render_routes({"paths": {"/x": {"get": operation}}}))

    assert f"p query {shown} -" in text
    assert " other GET /x" in text


def test_a_document_without_routes_says_so() -> None:
    assert "No route is listed." in words(render_routes({"paths": {}}))


def test_a_document_of_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="not of the expected form"):
        render_routes({"paths": {"/x": {"get": {"parameters": 3}}}})
