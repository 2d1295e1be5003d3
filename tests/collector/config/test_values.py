"""Durations, addresses, and what messages show of a value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from collector.config.problems import dotted, nearest, shown
from collector.values import (
    Listen,
    base_url,
    duration_seconds,
    duration_text,
    host_port,
    parse_listen,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("250ms", 0.25), ("2m", 120.0), ("24h", 86_400.0), ("35d", 3_024_000.0)],
)
def test_a_duration_is_read_and_written_the_same(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds
    assert duration_text(seconds) == text


@given(st.text(max_size=12))
def test_other_text_is_never_a_duration_and_never_crashes(text: str) -> None:
    try:
        seconds = duration_seconds(text)
    except PydanticCustomError:
        return
    assert seconds >= 0


@pytest.mark.parametrize(
    ("text", "listen", "loopback"),
    [
        ("127.0.0.1:9731", Listen("127.0.0.1", 9731), True),
        ("[::1]:0", Listen("::1", 0), True),
        ("localhost:80", Listen("localhost", 80), True),
        ("0.0.0.0:9731", Listen("0.0.0.0", 9731), False),
        ("fusewire.example:9731", Listen("fusewire.example", 9731), False),
    ],
)
def test_a_listener_knows_whether_it_is_loopback(text: str, listen: Listen, loopback: bool) -> None:
    assert parse_listen(text) == listen
    assert str(listen) == text
    assert listen.loopback is loopback


@pytest.mark.parametrize(
    "text", ["", ":1", "a", "a:", "a:-1", "a:65536", "[::1]", "a b:1", "[a]:1"]
)
def test_other_listeners_are_refused(text: str) -> None:
    with pytest.raises(PydanticCustomError):
        parse_listen(text)


@pytest.mark.parametrize(
    "url",
    [
        "a:1",
        "http://",
        "http:///x",
        "http://a b",
        "http://a#x",
        "http://a?x=1",
        "ws://a",
        "http://a:0",
    ],
)
def test_other_addresses_of_engines_are_refused(url: str) -> None:
    with pytest.raises(PydanticCustomError):
        base_url(url)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        url = base_url(text)
    except PydanticCustomError:
        return
    assert host_port(url)


def test_the_default_id_has_the_port_of_the_scheme() -> None:
    assert [host_port(url) for url in ("http://a", "https://a/x", "http://[::1]:8000")] == [
        "a:80",
        "a:443",
        "[::1]:8000",
    ]


def test_what_is_known_is_listed_when_nothing_is_near() -> None:
    assert nearest("xyz", ["vllm", "tgi"]) == "known: tgi, vllm"
    assert nearest("vlm", ["vllm", "tgi"]) == "did you mean 'vllm'?"


def test_long_values_are_cut_and_passwords_hidden_in_messages() -> None:
    assert len(shown(("url",), "x" * 1000)) == 82
    assert shown(("store",), "postgresql://u:p@h/d") == "'postgresql://…@h/d'"
    assert shown(("webhooks", "g", "secret"), "whsec_x") == "a value (hidden)"
    assert dotted(("a", 0, "b")) == "a[0].b"
