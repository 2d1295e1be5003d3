"""The status page: one page of HTML, readable without JavaScript and in the dark."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from collector.web import words
from collector.web.view import StatusView

STYLE_PATH = "/status.css"  # where the page expects its style sheet
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def render(view: StatusView) -> str:
    """Return the page as HTML. Whatever is in `view` is escaped."""
    return template("status.html").render(view=view, style_path=STYLE_PATH)


def template(name: str) -> Template:
    """Return a template of this package; whatever it is given is escaped."""
    return _environment().get_template(name)


def style_sheet() -> str:
    """Return the style sheet that is served at `STYLE_PATH`."""
    return files("collector.web").joinpath("static", "status.css").read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("collector.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        age=words.age,
        value=words.value,
        bucket=words.bucket,
        absence=words.absence,
        number=words.number_of,
        ratio=words.ratio,
        clock=words.clock,
        stamp=words.stamp,
        state=words.state,
        symbol=words.symbol,
        by_level=words.by_level,
        mood=words.mood,
        several_variants=words.several_variants,
        scope=words.scope,
    )
    return environment
