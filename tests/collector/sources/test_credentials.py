"""Credentials of targets: read from files, fresh, sent only where they cannot be overheard."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import httpx2
import pytest

from collector.sources.credentials import CredentialFiles, FileHeaders, header_lines, headers_for
from collector.sources.fetch import FetchError
from collector.sources.scrape import ScrapeSource, ScrapeTarget
from tests.collector.sources.servers import NOW, PAGE, serving, text

SECRET = "s3cr3t-word"


def wrote(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    path.chmod(0o600)
    return path


def test_lines_of_headers_may_be_written_as_yaml() -> None:
    found = header_lines('# ours\n---\nX-Api-Key: "a:b"\nAuthorization: Bearer t\n\n', "file")

    assert found == {"X-Api-Key": "a:b", "Authorization": "Bearer t"}


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (f"X-Key {SECRET}", "line 1 is no header"),
        (f"X-Key: a\nX Y: {SECRET}", "line 2 is no header"),
        (f"X-Key: {SECRET}\x07", "line 1 is no header"),
        (f"Host: {SECRET}", "not for a file to set"),
        ("", "holds 0 headers"),
        ("".join(f"X-{n}: {SECRET}\n" for n in range(40)), "holds 40 headers"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_not_shown(lines: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        header_lines(lines, "file")

    assert SECRET not in str(caught.value)


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = wrote(tmp_path, "token", "first-token\n")
    headers = FileHeaders(CredentialFiles(bearer_token=path))
    before = dict(headers)
    replacement = wrote(tmp_path, "new", "other-token\n")
    replacement.replace(path)

    after = dict(headers)

    assert before == {"Authorization": "Bearer first-token"}
    assert after == {"Authorization": "Bearer other-token"}


def test_user_and_password_are_encoded(tmp_path: Path) -> None:
    path = wrote(tmp_path, "basic", "me:pass word\n")

    assert dict(FileHeaders(CredentialFiles(basic_auth=path))) == {
        "Authorization": "Basic bWU6cGFzcyB3b3Jk"
    }


def everyones(path: Path) -> None:
    path.chmod(0o666)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def two_lines(path: Path) -> None:
    path.write_text(f"{SECRET}\n{SECRET}\n")


def too_long(path: Path) -> None:
    path.write_text(SECRET * 10_000)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (Path.unlink, "cannot be read"),
        (everyones, "everyone can write it"),
        (a_folder, "not a regular file"),
        (two_lines, "on one line"),
        (too_long, "larger than"),
    ],
)
def test_a_file_that_cannot_be_used_fails_the_read_with_its_name(
    spoil: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    path = wrote(tmp_path, "token", SECRET)
    headers = FileHeaders(CredentialFiles(bearer_token=path))
    assert headers["Authorization"] == f"Bearer {SECRET}"
    spoil(path)
    if path.is_file():
        os.utime(path, ns=(1, 1))

    with pytest.raises(FetchError, match=words) as caught:
        dict(headers)

    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(headers)


@pytest.mark.parametrize(
    ("url", "insecure", "sent"),
    [
        ("https://engine.test:8000", False, True),
        ("http://127.0.0.1:8000", False, True),
        ("http://[::1]:8000", False, True),
        ("http://localhost:8000", False, True),
        ("http://engine.test:8000", False, False),
        ("http://10.0.0.7:8000", False, False),
        ("http://10.0.0.7:8000", True, True),
    ],
)
def test_credentials_go_only_where_nobody_listens(
    url: str, insecure: bool, sent: bool, tmp_path: Path
) -> None:
    files = CredentialFiles(bearer_token=wrote(tmp_path, "token", SECRET))
    headers = headers_for(url, files, insecure_http=insecure)

    if sent:
        assert dict(headers) == {"Authorization": f"Bearer {SECRET}"}
    else:
        with pytest.raises(FetchError, match="insecure_http"):
            dict(headers)


@pytest.mark.anyio
async def test_a_scrape_sends_what_the_file_holds_by_then(tmp_path: Path) -> None:
    path = wrote(tmp_path, "headers", f"X-Api-Key: {SECRET}\n")
    async with serving(text(PAGE)) as server, httpx2.AsyncClient(trust_env=False) as client:
        headers = headers_for(server.url, CredentialFiles(headers=path), insecure_http=False)
        source = ScrapeSource(
            ScrapeTarget(tier="chat", id="a", url=server.url, headers=headers),
            client=client,
            now=lambda: NOW,
            monotonic=monotonic,
        )

        good = await source.read()
        path.unlink()
        bad = await source.read()

    assert not good.problem
    assert f"x-api-key: {SECRET}".encode() in server.requests[0].lower()
    assert "no credentials" in bad.problem
    assert str(path) in bad.problem
    assert len(server.requests) == 1
    assert source.stats().outcomes["credentials"] == 1
