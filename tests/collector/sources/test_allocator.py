"""The allocator source, on real probes in processes of their own and on servers that misbehave."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.config import load
from collector.sources.gpu.allocator import MAX_PROCESSES, AllocatorConfig
from collector.sources.gpu.probe_pages import FAMILIES
from detectors.records import Absence, Reading
from detectors.signals import SIGNALS
from tests.collector.sources.probes import GIB, a_source, page_text
from tests.collector.sources.servers import hanging_up, serving, text
from tests.exporters.embed.hosts import a_host, fake_torch, until
from tests.parts import need_module

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parents[3] / "docs" / "sources" / "allocator.md"


def codes(reading: Reading) -> list[str]:
    return [finding.code for finding in reading.findings]


async def test_probes_of_two_processes_are_read_from_their_folder(tmp_path: Path) -> None:
    torch = fake_torch(tmp_path / "t")
    with a_host(tmp_path / "d", torch) as one, a_host(tmp_path / "d", torch) as two:
        for host in (one, two):
            host.do("import torch; load()")
            host.page()
        async with a_source(directory=tmp_path / "d") as source:
            first = await source.read()
            two.do("torch.cuda.devices[1]['num_ooms'] += 3")
            second = await source.read()

    assert first.up
    assert first.parts["allocator_reserved_bytes"] == {"0": 32 * GIB, "1": 64 * GIB}
    assert first.values["allocator_reserved_bytes"] == 96 * GIB
    assert first.absent == {"allocator_largest_free_bytes": Absence.SWITCHED_OFF}
    assert first.known - {"up", "scrape_seconds"} == FAMILIES.keys() <= SIGNALS.keys()
    assert first.findings == ()
    assert (first.tier, first.target, first.source) == ("chat", "a", "allocator")
    assert [it.values["allocator_ooms_total"] for it in (first, second)] == [6.0, 9.0]
    assert source.stats().outcomes == {"read": 4}


async def test_a_probe_on_a_port_is_found_by_the_file_it_left(tmp_path: Path) -> None:
    torch = fake_torch(tmp_path / "t")
    with a_host(tmp_path, torch, FUSEWIRE_PROBE_ADDRESS="127.0.0.1:0") as host:
        host.do("import torch; load()")
        until((tmp_path / f"{host.process.pid}.port").exists)
        async with a_source(directory=tmp_path) as source:
            reading = await source.read()

    assert reading.values["allocator_ooms_total"] == 3.0


async def test_a_killed_process_leaves_a_finding_and_the_sums_of_the_others(
    tmp_path: Path,
) -> None:
    torch = fake_torch(tmp_path / "t")
    with a_host(tmp_path / "d", torch) as one, a_host(tmp_path / "d", torch) as two:
        for host in (one, two):
            host.do("import torch; load()")
            host.page()
        async with a_source(directory=tmp_path / "d") as source:
            await source.read()
            two.process.kill()
            two.process.wait()
            reading = await source.read()

    assert codes(reading) == ["dead_socket"]
    assert str(two.process.pid) in reading.findings[0].text
    assert reading.values["allocator_reserved_bytes"] == 48 * GIB
    assert reading.values["allocator_ooms_total"] == 6.0  # what it counted stays counted


async def test_a_process_that_does_not_answer_makes_the_sums_unusable(tmp_path: Path) -> None:
    released = asyncio.Event()

    async def silent(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await released.wait()
        writer.close()

    listener = await asyncio.start_unix_server(silent, tmp_path / "99.sock")
    with a_host(tmp_path, fake_torch(tmp_path / "t")) as host:
        host.do("import torch; load()")
        host.page()
        async with a_source(directory=tmp_path, timeout_seconds=0.2) as source:
            reading = await source.read()
    released.set()
    listener.close()

    assert reading.up
    assert codes(reading) == ["probe_silent"]
    assert "99" in reading.findings[0].text
    assert reading.absent["allocator_reserved_bytes"] is Absence.UNUSABLE
    assert reading.values["allocator_ooms_total"] == 3.0


async def test_more_probes_than_are_read_is_a_finding(tmp_path: Path) -> None:
    async with serving(text(page_text({"0": 1}).encode())) as server:
        for number in range(MAX_PROCESSES + 1):
            (tmp_path / f"{number}.port").write_text(server.url.removeprefix("http://"))
        async with a_source(directory=tmp_path) as source:
            reading = await source.read()

    assert codes(reading) == ["too_many_probes"]
    assert reading.absent["allocator_reserved_bytes"] is Absence.UNUSABLE
    assert len(server.requests) == MAX_PROCESSES


async def test_what_others_wrote_into_the_folder_leads_nowhere(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.port")  # to open it would wait for a writer
    async with serving(text(page_text().encode())) as server:
        port = server.url.rpartition(":")[2]
        for number, told in enumerate((f"10.0.0.1:{port}", f"localhost.example:{port}", "x"), 2):
            (tmp_path / f"{number}.port").write_text(told)
        async with a_source(directory=tmp_path) as source, asyncio.timeout(5):
            alone = await source.read()
            (tmp_path / "9.port").write_text(f"127.0.0.1:{port}\n")
            reading = await source.read()

    assert not alone.up
    assert alone.problem.count("10.0.0.1") == 0
    assert reading.up
    assert codes(reading) == ["dead_socket"]


async def test_one_probe_is_read_by_its_address(tmp_path: Path) -> None:
    with a_host(tmp_path, fake_torch(tmp_path / "t")) as host:
        host.do("import torch; load()")
        host.page()
        async with (
            serving(text(page_text({"3": 2}).encode())) as server,
            a_source(url=server.url) as tcp,
            a_source(url=f"unix://{host.socket}") as unix,
        ):
            readings = [await tcp.read(), await unix.read()]

    assert [set(it.parts["allocator_reserved_bytes"]) for it in readings] == [{"3"}, {"0", "1"}]
    assert server.requests[0].startswith(b"GET /metrics HTTP/1.1\r\n")


async def test_other_settings_after_a_restart_are_noticed_once() -> None:
    pages = [
        page_text({"0": 1}, run=run, conf={"PYTORCH_ALLOC_CONF": conf})
        for run, conf in (("a", "x:1"), ("b", "x:1"), ("c", "x:2"), ("c", "x:2"))
    ]
    left = iter(pages)

    async def next_page(writer: asyncio.StreamWriter) -> None:
        await text(next(left).encode())(writer)

    async with serving(next_page) as server, a_source(url=server.url) as source:
        noticed = [(await source.read()).noticed for _ in pages]

    changes = [[(it.what, it.before, it.after) for it in some] for some in noticed]
    assert changes == [[], [], [("allocator_settings", "x:1", "x:2")], []]


@pytest.mark.parametrize("kind", ["gone", "hang up", "other page", "no folder", "empty folder"])
async def test_nothing_to_read_is_down_with_words(tmp_path: Path, kind: str) -> None:
    answers = {"hang up": hanging_up, "other page": text(b"vllm:num_requests_running 1\n")}
    async with serving(answers.get(kind, hanging_up)) as server:
        place = {
            "gone": a_source(url=f"unix://{tmp_path}/none.sock"),
            "no folder": a_source(directory=tmp_path / "none"),
            "empty folder": a_source(directory=tmp_path),
        }.get(kind, a_source(url=server.url))
        async with place as source:
            reading = await source.read()

    assert not reading.up
    assert reading.values["up"] == 0.0
    assert len(reading.problem.split()) > 3
    assert "probe" in reading.problem
    assert reading.absent == dict.fromkeys(FAMILIES, Absence.SCRAPE_FAILED)


@pytest.mark.slow
async def test_a_real_torch_without_cuda_says_so(tmp_path: Path) -> None:
    found = need_module("torch", install="pip install 'fusewire[torch]'")
    assert found.origin is not None
    place = Path(found.origin).parents[1]
    with a_host(tmp_path, place) as host:
        host.do("import torch; load()")
        host.page()
        built = host.do("print(torch.version.cuda, torch.version.hip)")
        async with a_source(directory=tmp_path) as source:
            reading = await source.read()
        initialised = host.do("print(torch.cuda.is_initialized())")

    assert reading.up
    assert codes(reading) == ["no_cuda" if built == "None None\n" else "cuda_not_initialized"]
    assert set(reading.absent.values()) == {Absence.NO_SAMPLE}
    assert initialised == "False\n"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"url": "http://127.0.0.1:1", "directory": "/x"},
        {"url": "unix:relative"},
        {"url": f"unix:///{'x' * 108}"},
        {"url": "unix:///"},
        {"url": "ftp://127.0.0.1"},
    ],
)
def test_a_place_that_cannot_be_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        AllocatorConfig.model_validate({"kind": "allocator", **settings})


def test_the_configuration_of_its_page_loads(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    file = tmp_path / "fusewire.yaml"
    file.write_text(snippet)

    config = load(file, {})

    sources = [it for target in config.tiers["chat"].targets for it in target.sources]
    assert [it.kind for it in sources] == ["allocator", "allocator"]
