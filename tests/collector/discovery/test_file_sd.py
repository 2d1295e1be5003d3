"""Targets from files as Prometheus reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.discovery.file_sd import FileSd, FileSdConfig
from collector.discovery.found import DiscoveryError, Found

pytestmark = pytest.mark.anyio

GROUPS = [
    {"targets": ["10.0.0.1:8000", "10.0.0.2:8000"], "labels": {"job": "vllm", "region": "eu-1"}},
    {"targets": ["h:443"], "labels": {"__scheme__": "https", "__metrics_path__": "/m", "id": "x"}},
]


def found_in(*patterns: Path) -> FileSd:
    return FileSd("file_sd:chat", tuple(map(str, patterns)))


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
async def test_groups_become_targets_with_scheme_path_id_and_region(
    tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"targets{suffix}"
    file.write_text(json.dumps(GROUPS))  # JSON is YAML, too

    found = await found_in(file).find()

    assert found == (
        Found("10.0.0.1:8000", "http://10.0.0.1:8000", "eu-1"),
        Found("10.0.0.2:8000", "http://10.0.0.2:8000", "eu-1"),
        Found("x", "https://h:443/m"),
    )
    assert found[0].labels == {"job": "vllm", "region": "eu-1"}


async def test_a_file_is_read_again_when_it_changed_and_a_pattern_finds_new_ones(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text("- targets: [a:1]")
    discovery = found_in(tmp_path / "*.yaml")
    one = await discovery.find()

    second.write_text("- targets: [b:1]\n")
    first.write_text("- targets: [a:1, a:2]\n")
    three = await discovery.find()
    first.unlink()
    left = await discovery.find()

    assert [it.id for it in one] == ["a:1"]
    assert [it.id for it in three] == ["a:1", "a:2", "b:1"]
    assert [it.id for it in left] == ["b:1"]


async def test_a_label_that_yaml_reads_as_a_number_is_text(tmp_path: Path) -> None:
    file = tmp_path / "targets.yaml"
    file.write_text("- targets: [a:1]\n  labels: {shard: 7}")

    (found,) = await found_in(file).find()

    assert found.labels == {"shard": "7"}


async def test_an_empty_file_is_an_empty_list(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")

    assert await found_in(tmp_path / "a.yaml").find() == ()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "neither JSON nor YAML"),
        ('{"targets": []}', "top"),
        ('[{"targets": "a:1"}]', "0.targets"),
        ('[{"labels": {}}]', "0.targets: Field required"),
        ('[{"targets": [], "lables": {}}]', "0.lables"),
        ('[{"targets": ["a:1"], "labels": {"n": {}}}]', "0.labels.n"),
        ("[" * 100_000, "neither JSON nor YAML"),
        ('[{"targets": ["http://a:1/m"]}]', "is no host:port"),
        ('[{"targets": ["a:1", "b:1"], "labels": {"id": "x"}}]', "is given to 2 targets"),
    ],
    ids=[
        *("torn", "no list", "no list of targets", "no targets", "unknown", "label", "deep"),
        *("url", "one id for two"),
    ],
)
async def test_a_bad_file_is_told_with_its_place(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "targets.json"
    file.write_text(content)

    with pytest.raises(DiscoveryError) as caught:
        await found_in(file).find()

    assert "targets.json" in str(caught.value)
    assert words in str(caught.value)
    assert "expected a list of" in str(caught.value)


async def test_a_file_that_was_torn_and_is_whole_again_is_read(tmp_path: Path) -> None:
    file = tmp_path / "targets.json"
    file.write_text("[")
    discovery = found_in(file)
    with pytest.raises(DiscoveryError):
        await discovery.find()

    file.write_text(json.dumps(GROUPS))

    assert len(await discovery.find()) == 3


async def test_no_file_at_all_is_a_failure_and_not_an_empty_tier(tmp_path: Path) -> None:
    with pytest.raises(DiscoveryError, match="no file matches"):
        await found_in(tmp_path / "*.yaml").find()


def test_a_list_of_no_files_is_refused() -> None:
    with pytest.raises(ValidationError):
        FileSdConfig(files=())
