"""The configuration of servers that targets are read from, and of credentials."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest

from alerts.breaker.records import Key
from collector.config import Config, ConfigError, load
from collector.readers import Reader, readers_of
from collector.sources.protocols import Tools
from collector.sources.stored.source import PromQLSource
from tests.collector.sources.servers import NOW

DOCS = Path(__file__).parents[3] / "docs" / "sources" / "prometheus.md"
FILE = """
prometheus:
  main:
    url: https://prometheus.example/prometheus
    bearer_token_file: token
    tenant: team-a
    stale_after: 90s
tiers:
  chat:
    targets:
      - url: http://10.0.0.7:8000
        from_prometheus: {server: main, match: {instance: "10.0.0.7:8000"}}
      - url: http://10.0.0.8:8000
        from_prometheus: {server: main, match: {instance: "10.0.0.8:8000"}}
      - url: http://127.0.0.1:8000
        headers_file: headers
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("a-token\n")
    (tmp_path / "headers").write_text("X-Api-Key: a-key\n")
    (tmp_path / "basic").write_text("me:word\n")
    for name in ("token", "headers", "basic"):
        (tmp_path / name).chmod(0o600)
    return tmp_path


def loaded(folder: Path, text: str = FILE) -> Config:
    path = folder / "fusewire.yaml"
    path.write_text(text)
    return load(path, {})


def some_tools(client: httpx2.AsyncClient) -> Tools:
    return Tools(client, lambda: NOW, lambda: 0.0)


def main_of(reader: Reader) -> object:
    assert reader.joined is not None
    return reader.joined._main


@pytest.mark.anyio
async def test_targets_of_one_server_share_it_and_keep_it_over_reloads(folder: Path) -> None:
    async with httpx2.AsyncClient(trust_env=False) as client:
        tools = some_tools(client)
        before = readers_of(loaded(folder), {}, tools)
        first, second = (before[Key("chat", f"10.0.0.{n}:8000")] for n in (7, 8))

        same = readers_of(loaded(folder, FILE.replace("0.8", "0.9")), before, tools)
        other = readers_of(loaded(folder, FILE.replace("90s", "91s")), before, tools)

    assert isinstance(main_of(first), PromQLSource)
    assert first.server is second.server is not None
    assert not isinstance(main_of(before[Key("chat", "127.0.0.1:8000")]), PromQLSource)
    assert same[Key("chat", "10.0.0.7:8000")] is first
    assert same[Key("chat", "10.0.0.9:8000")].server is first.server
    assert other[Key("chat", "10.0.0.7:8000")].server is not first.server


BAD = {
    ('server: main, match: {instance: "10.0.0.7:8000"}', "server: mian, match: {job: x}"): (
        "targets[0].from_prometheus.server: got 'mian', expected the name of a server",
        "did you mean 'main'?",
    ),
    ('match: {instance: "10.0.0.8:8000"}', 'match: {instance: "10.0.0.7:8000"}'): (
        "targets[1].from_prometheus.match: the target on line 12 matches the same series",
    ),
    ('match: {instance: "10.0.0.8:8000"}', "match: {}"): ("at least 1 entry",),
    ('match: {instance: "10.0.0.8:8000"}', "match: {__name__: up}"): ("names of labels",),
    ('match: {instance: "10.0.0.8:8000"}', 'match: {instance: ""}'): ("a value for instance",),
    ("https://prometheus.example", "http://prometheus.example"): ("prometheus.main.url", "https"),
    ("/prometheus\n", "/prometheus/api/v1/query\n"): ("the address before /api/v1",),
    ("tenant: team-a", "tenant: 'team a'"): ("prometheus.main.tenant", "a tenant of letters"),
    ("bearer_token_file: token", "bearer_token_file: tokn"): ("cannot be read",),
    ("tenant: team-a", "basic_auth_file: basic"): ("not both",),
    ("tenant: team-a", "ca_file: none.pem"): ("a file of certificates",),
    ("tenant: team-a", "replica_labels: [a-b]"): ("names of labels",),
    ("http://127.0.0.1:8000", "http://10.0.0.9:8000"): ("targets[2].url", "insecure_http: true"),
    ("headers_file: headers", "headers_file: token"): ("targets[2].headers_file", "Name: value"),
}


@pytest.mark.parametrize("change", BAD, ids=lambda change: change[1].strip())
def test_what_is_wrong_is_said_where_it_stands(change: tuple[str, str], folder: Path) -> None:
    assert change[0] in FILE

    with pytest.raises(ConfigError) as caught:
        loaded(folder, FILE.replace(*change))

    for words in BAD[change]:
        assert words in str(caught.value)
    assert "a-token" not in str(caught.value)


def test_a_server_that_only_a_template_names_must_exist_too(folder: Path) -> None:
    text = FILE + (
        "    template:\n"
        "      from_prometheus: {server: nobody, match: {instance: '{host}:{port}'}}\n"
    )

    with pytest.raises(ConfigError, match=r"template\.from_prometheus\.server"):
        loaded(folder, text)


def test_plain_http_is_taken_when_it_is_said_to_be_meant(folder: Path) -> None:
    text = FILE.replace("https://prometheus", "http://prometheus").replace(
        "tenant: team-a", "insecure_http: true"
    )

    assert loaded(folder, text).prometheus["main"].insecure_http


def test_the_snippets_of_the_docs_page_load(folder: Path) -> None:
    snippets = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)

    assert snippets
    for snippet in snippets:
        assert loaded(folder, snippet).tiers
