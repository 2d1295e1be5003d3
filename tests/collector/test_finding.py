"""Targets that are found come and go in a running service, over restarts and failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from alerts.breaker.records import Key
from collector.config import ConfigError, load
from collector.finding import look
from collector.reloading import rediscover, reload
from collector.service import Service
from collector.sources.other_pages import PageConfig
from collector.wiring import Outside, make_service

pytestmark = pytest.mark.anyio

FILE = """
store: sqlite:///{folder}/fusewire.db
tiers:
  chat:
    targets: [{{id: fixed, url: "http://127.0.0.1:11"}}]
    discovery: [{{kind: file_sd, files: ["targets.yaml"], vanish_after: 1ms}}]
    template:
      engine: vllm
      sources: [{{kind: page, url: "http://{{host}}:9400/gpu", signals: {{memory_rss_bytes: rss}}}}]
"""


@asynccontextmanager
async def a_service(folder: Path) -> AsyncIterator[Service]:
    service = await make_service(load(folder / "fusewire.yaml", {}), Outside(lambda: None))
    service.reconfigure = partial(rediscover, service)
    await service.parts.controller.start()
    service.started = True
    try:
        yield service
    finally:
        await service.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fusewire.yaml").write_text(FILE.format(folder=tmp_path))
    return tmp_path


async def look_once(service: Service) -> None:
    (finder,) = service.finding.values()
    await asyncio.sleep(0.002)  # longer than `vanish_after`
    await look(finder, service.reconfigure, health=service.health, monotonic=service.monotonic)


def keys(service: Service) -> set[str]:
    return {key.target for key in service.readers}


async def test_a_target_that_is_found_is_read_and_has_a_breaker_until_it_vanishes(
    folder: Path,
) -> None:
    file = folder / "targets.yaml"
    async with a_service(folder) as service:
        file.write_text("- targets: [127.0.0.1:12]\n  labels: {id: b, region: eu-1}\n")
        await look_once(service)
        came = keys(service), set(service.parts.controller.breakers)
        (target,) = [it for it in service.config.tiers["chat"].targets if it.id == "b"]
        companions = service.readers[Key("chat", "b")].companions
        file.write_text("[]")
        await look_once(service)
        gone = keys(service), set(service.parts.controller.breakers)

    assert came == (
        {"fixed", "b"},
        {Key("chat"), Key("chat", "fixed"), Key("chat", "b")},
    )
    assert (target.engine, target.region, str(target.url)) == (
        "vllm",
        "eu-1",
        "http://127.0.0.1:12",
    )
    (beside,) = target.sources
    assert isinstance(beside, PageConfig)
    assert str(beside.url) == "http://127.0.0.1:9400/gpu"
    assert [it.source.name for it in companions] == ["page:chat/b", "facts:chat/b"]
    assert gone == ({"fixed"}, {Key("chat"), Key("chat", "fixed")})


async def test_a_list_that_cannot_be_had_removes_nobody_and_is_told_in_a_line(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = folder / "targets.yaml"
    file.write_text("- targets: [127.0.0.1:12]")
    async with a_service(folder) as service:
        await look_once(service)
        file.write_text("- targets: {")
        await look_once(service)

        assert [it.exc_info for it in caplog.records if it.message == "part broke"] == [None]
        assert keys(service) == {"fixed", "127.0.0.1:12"}
        assert "targets.yaml" in service.health.conditions["file_sd:chat"].problem


async def test_found_targets_are_known_at_once_after_a_restart(folder: Path) -> None:
    file = folder / "targets.yaml"
    file.write_text("- targets: [127.0.0.1:12]")
    async with a_service(folder) as service:
        await look_once(service)
    file.unlink()

    async with a_service(folder) as restarted:
        assert keys(restarted) == {"fixed", "127.0.0.1:12"}
        assert Key("chat", "127.0.0.1:12") in restarted.parts.controller.breakers


async def test_a_reload_keeps_found_targets_and_one_without_discovery_drops_them(
    folder: Path,
) -> None:
    (folder / "targets.yaml").write_text("- targets: [127.0.0.1:12]")
    config = folder / "fusewire.yaml"
    async with a_service(folder) as service:
        await look_once(service)
        kept_reader = service.readers[Key("chat", "127.0.0.1:12")]
        config.write_text(FILE.format(folder=folder) + "mode: enforce\n")
        same = await reload(service, config, {})
        kept = service.readers[Key("chat", "127.0.0.1:12")] is kept_reader
        lines = FILE.format(folder=folder).splitlines()
        config.write_text("\n".join(line for line in lines if "discovery" not in line))
        without = await reload(service, config, {})

        assert same.ok, same.problems
        assert kept
        assert without.ok, without.problems
        assert keys(service) == {"fixed"}
        assert "file_sd:chat" not in service.health.conditions


async def test_a_found_target_of_a_name_that_the_file_has_is_the_files(folder: Path) -> None:
    (folder / "targets.yaml").write_text("- targets: [127.0.0.1:12]\n  labels: {id: fixed}")
    async with a_service(folder) as service:
        await look_once(service)

        (target,) = service.config.tiers["chat"].targets
        assert str(target.url) == "http://127.0.0.1:11"


async def test_targets_that_come_and_go_leave_nothing_behind(folder: Path) -> None:
    async with a_service(folder) as service:
        for port in (12, 13, 14):
            (folder / "targets.yaml").write_text(f"- targets: [127.0.0.1:{port}]")
            await look_once(service)

        assert set(service.health.conditions) == {"file_sd:chat", "file_sd:chat:apply"}
        assert "127.0.0.1:12" not in service.parts.page.render()[0].decode()


async def test_a_found_target_is_made_once_and_anew_for_another_template(folder: Path) -> None:
    file, config = folder / "targets.yaml", folder / "fusewire.yaml"
    file.write_text("- targets: [127.0.0.1:12]")
    async with a_service(folder) as service:
        await look_once(service)
        first = service.config.tiers["chat"].targets[1]
        file.write_text("- targets: [127.0.0.1:12, 127.0.0.1:13]")
        await look_once(service)
        again = service.config.tiers["chat"].targets[1]
        config.write_text(config.read_text().replace("engine: vllm", "engine: tgi"))
        await reload(service, config, {})

        assert again is first
        assert service.config.tiers["chat"].targets[1].engine == "tgi"


async def test_a_found_target_that_the_template_makes_none_of_is_logged_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = folder / "targets.yaml"
    file.write_text("- targets: [127.0.0.1:12]\n  labels: {__scheme__: ftp}")
    async with a_service(folder) as service:
        for more in ("", "\n- targets: [127.0.0.1:13]"):
            file.write_text(file.read_text() + more)
            await look_once(service)

        assert keys(service) == {"fixed", "127.0.0.1:13"}
    assert [it.message for it in caplog.records].count(
        "discovered target left out, correct 'template'"
    ) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:11", "http://127.0.0.1:11/metrics"])
async def test_a_server_that_is_there_already_is_not_read_twice(folder: Path, url: str) -> None:
    config = folder / "fusewire.yaml"
    config.write_text(config.read_text().replace("http://127.0.0.1:11", url))
    (folder / "targets.yaml").write_text("- targets: [127.0.0.1:11, 127.0.0.1:12]")
    async with a_service(folder) as service:
        await look_once(service)

        assert keys(service) == {"fixed", "127.0.0.1:12"}


async def test_what_could_not_be_applied_is_applied_at_the_next_look(folder: Path) -> None:
    (folder / "targets.yaml").write_text("- targets: [127.0.0.1:12]")
    async with a_service(folder) as service:
        apply, turns = service.reconfigure, [OSError("the journal is full")]

        async def reconfigure() -> None:
            if turns:
                raise turns.pop()
            await apply()

        service.reconfigure = reconfigure
        await look_once(service)
        broken = keys(service), service.health.conditions["file_sd:chat:apply"].problem
        await look_once(service)

        assert broken == ({"fixed"}, "OSError: the journal is full")
        assert keys(service) == {"fixed", "127.0.0.1:12"}
        assert not service.health.conditions["file_sd:chat:apply"].problem


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("vanish_after: 1ms", "vanish_after: 1s"),
        ("[{kind: file_sd", "[{kind: dns, names: [h], port: 1}, {kind: file_sd"),
    ],
)
async def test_a_discovery_that_is_changed_or_moved_keeps_its_targets(
    folder: Path, before: str, after: str
) -> None:
    (folder / "targets.yaml").write_text("- targets: [127.0.0.1:12]")
    config = folder / "fusewire.yaml"
    async with a_service(folder) as service:
        await look_once(service)
        reader = service.readers[Key("chat", "127.0.0.1:12")]
        config.write_text(config.read_text().replace(before, after))
        reloaded = await reload(service, config, {})

        assert reloaded.ok, reloaded.problems
        assert service.readers.get(Key("chat", "127.0.0.1:12")) is reader


async def test_targets_beyond_the_bound_are_told(folder: Path) -> None:
    (folder / "targets.yaml").write_text("- targets: [127.0.0.1:12, 127.0.0.1:13]")
    async with a_service(folder) as service:
        (finder,) = service.finding.values()
        finder.roster.most = 1
        await look_once(service)

        assert keys(service) == {"fixed", "127.0.0.1:12"}
        assert "1 targets beyond the first 1" in service.health.conditions["file_sd:chat"].problem


def test_a_template_that_makes_no_target_is_told_at_the_start(folder: Path) -> None:
    file = folder / "fusewire.yaml"
    file.write_text(file.read_text().replace("engine: vllm", "engine: vlm"))

    with pytest.raises(ConfigError, match=r"tiers\.chat\.template.*engine"):
        load(file, {})


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://{label:pod_ip}:9400/gpu", ""),
        ("http://{hst}:9400/gpu", "unknown placeholder {hst}; known: {host}, {port}, {id}"),
    ],
    ids=["a label", "misspelt"],
)
def test_a_placeholder_of_a_template_is_known_or_told(folder: Path, url: str, words: str) -> None:
    file = folder / "fusewire.yaml"
    file.write_text(file.read_text().replace("http://{host}:9400/gpu", url))

    if not words:
        assert load(file, {}).tiers["chat"].template
        return
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert words in str(caught.value)


def test_a_tier_of_no_targets_needs_a_discovery(folder: Path) -> None:
    file = folder / "fusewire.yaml"
    file.write_text("tiers: {chat: {}}")

    with pytest.raises(ConfigError, match="at least one target, or 'discovery'"):
        load(file, {})
