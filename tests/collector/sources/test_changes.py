"""What has changed between two sights of a server is told once, and only where both are known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collector.sources.names import short_name, shortened
from collector.sources.server.changes import (
    Facts,
    adapters,
    another_server,
    changes,
)
from detectors.records import Identity
from detectors.remarks import Noticed

KNOWN = Facts(
    engine="vllm", version="0.31.0", model="tiny", dtype="bfloat16", context_tokens=512.0, loras=()
)


@pytest.mark.parametrize(
    ("name", "value", "before", "after"),
    [
        ("version", "0.32.0", "0.31.0", "0.32.0"),
        ("model", "big", "tiny", "big"),
        ("dtype", "float16", "bfloat16", "float16"),
        ("context_tokens", 1024.0, "512", "1024"),
        ("loras", ("sql",), "0", "1: sql"),
    ],
)
def test_one_difference_is_one_change(name: str, value: object, before: str, after: str) -> None:
    found = changes(KNOWN, replace(KNOWN, **{name: value}))  # type: ignore[arg-type]  # one of each

    assert found == (Noticed(name, before, after),)


def test_what_is_not_told_any_more_has_not_changed() -> None:
    assert changes(KNOWN, Facts()) == ()
    assert Facts(version="0.32.0").filled_from(KNOWN) == replace(KNOWN, version="0.32.0")


def test_what_is_known_for_the_first_time_is_marked_as_such() -> None:
    found = changes(Facts(), KNOWN)

    assert {it.what for it in found} == {
        *("engine", "version", "model", "dtype", "context_tokens", "loras")
    }
    assert all(it.first and not it.before for it in found)


@pytest.mark.parametrize(
    ("before", "now", "another"),
    [
        (("vllm", "0.32.0", "tiny"), ("vllm", "0.32.0", "tiny"), False),
        (("vllm", ">=0.31.0", "tiny"), ("vllm", "0.32.0", "tiny"), False),
        (("vllm", "0.9.2-0.11.2", "tiny"), ("vllm", "<=0.10.0", "tiny"), False),
        (("vllm", "0.9.2-0.11.2", "tiny"), ("vllm", ">=0.12.0", "tiny"), True),
        (("vllm", ">=0.12.0", "tiny"), ("vllm", "0.9.2-0.11.2", "tiny"), True),
        (("vllm", "0.32.0", "tiny"), ("vllm", "0.33.0", "tiny"), True),
        (("vllm", "0.32.0", "tiny"), ("tgi", "0.32.0", "tiny"), True),
        (("vllm", "0.32.0", "tiny"), ("vllm", "0.32.0", "big"), True),
        (("vllm", "0.32.0", "/a/tiny"), ("vllm", "0.32.0", short_name("/a/tiny")), False),
        (("", "", ""), ("vllm", "0.32.0", "tiny"), False),
        (("vllm", "0.32.0", "tiny"), ("", "", ""), False),
    ],
)
def test_identities_that_cannot_be_of_one_server_are_of_another(
    before: tuple[str, str, str], now: tuple[str, str, str], another: bool
) -> None:
    assert another_server(Identity(*before), Identity(*now)) is another
    assert another_server(Identity(*now), Identity(*before)) is another


def test_a_path_gives_away_its_last_part_only() -> None:
    shown = short_name("/home/somebody/secret-project/model-7b")

    assert shown.startswith("model-7b#")
    assert "secret" not in shown
    assert shown != short_name("/home/another/model-7b")
    assert short_name("s3://bucket/model-7b").startswith("model-7b#")
    assert short_name("a/b/model-7b").startswith("model-7b#")
    assert short_name("owner/model-7b") == "owner/model-7b"


@pytest.mark.parametrize("text", ["x" * 5000, "/" + "y" * 5000, "a\nb\x00c", "/", "", "..."])
def test_what_is_shown_is_short_and_printable(text: str) -> None:
    for shown in (short_name(text), shortened(text)):
        assert len(shown) <= 80
        assert shown.isprintable()


def test_long_values_that_differ_late_stay_different() -> None:
    assert shortened("x" * 100 + "a") != shortened("x" * 100 + "b")


def test_many_adapters_are_bounded_and_their_order_does_not_matter() -> None:
    names = [f"adapter-{number}" for number in range(3000)]

    assert adapters(names) == adapters(reversed(names))
    assert len(adapters(names)) == 1024
