"""Nobody from outside changes anything, unless tokens are configured."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import Request

from collector.access import Access, read_access

TOKEN = "0123456789abcdef0123456789abcdef"


def a_request(host: str = "127.0.0.1:9731", **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request(
        {
            "type": "http",
            "scheme": "http",
            "method": "POST",
            "path": "/-/reload",
            "query_string": b"",
            "server": ("127.0.0.1", 9731),
            "headers": [(b"host", host.encode()), *raw],
        }
    )


@pytest.mark.parametrize("host", ["127.0.0.1:9731", "localhost:9731", "[::1]:9731"])
def test_a_loopback_listener_takes_calls_from_this_machine(host: str) -> None:
    assert Access(loopback=True).refusal(a_request(host)) is None


@pytest.mark.parametrize(
    ("host", "headers"),
    [
        ("evil.example:9731", {}),  # a name that was made to point at loopback
        ("127.0.0.1:9731", {"origin": "https://evil.example"}),
        ("127.0.0.1:9731", {"origin": "null"}),
    ],
)
def test_a_web_page_cannot_change_anything_on_loopback(host: str, headers: dict[str, str]) -> None:
    refusal = Access(loopback=True).refusal(a_request(host, **headers))

    assert refusal is not None
    assert refusal.status_code == 403


def test_an_outside_listener_without_tokens_refuses_and_says_what_to_do() -> None:
    refusal = Access(loopback=False).refusal(a_request("10.0.0.1:9731"))

    assert refusal is not None
    assert refusal.status_code == 403
    assert "token_file" in refusal.detail


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", None),
        (f"bearer {TOKEN}", None),
        ("Bearer wrong", 403),
        ("Basic abc", 401),
        ("", 401),
    ],
)
def test_with_a_token_file_only_its_tokens_are_taken(
    tmp_path: Path, authorization: str, status: int | None
) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"# operators\n\n{TOKEN}\n")
    access = read_access(file, host="0.0.0.0")

    refusal = access.refusal(a_request("10.0.0.1:9731", authorization=authorization))

    assert (refusal.status_code if refusal else None) == status


@pytest.mark.parametrize(
    ("content", "expected"),
    [("", "holds no token"), ("short\n", "shorter than 16"), (None, "cannot be read")],
)
def test_a_bad_token_file_is_refused(tmp_path: Path, content: str | None, expected: str) -> None:
    file = tmp_path / "tokens"
    if content is not None:
        file.write_text(content)

    with pytest.raises(ValueError, match=expected):
        read_access(file, host="127.0.0.1")
