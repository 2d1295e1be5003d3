"""Pages of dcgm-exporter: every recorded one, and its odd ways one by one."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collector.sources.engine.engines import wanted_families
from collector.sources.engine.translate import translate
from collector.sources.gpu.dcgm import DCGM, DcgmConfig
from collector.sources.gpu.dcgm_tidy import Tidy
from collector.sources.page.keys import SeriesCache
from collector.sources.page.page import Skip, parse
from collector.sources.page.series import Ledger
from collector.sources.protocols import Place, Source, Tools
from detectors.records import Absence, Reading
from detectors.remarks import Noticed
from tests.collector.sources.servers import NOW, Server, serving, text

pytestmark = pytest.mark.anyio

PAGES = Path(__file__).parents[2] / "fixtures" / "gpu" / "pages"
MIB = 1_048_576.0
OFFERED = {row.signal for row in DCGM.rows}
EXPECTED: dict[str, dict[str, dict[str, float]]] = {
    "dcgm-2.x-titan-v-five-gpus.txt": {},  # clocks, which no signal reads
    "dcgm-3.3-driver-version-label.txt": {
        "gpu_memory_used_bytes": {"0": 21_383 * MIB},
        "gpu_utilization_ratio": {"0": 0.0},
    },
    "dcgm-fake-operator-alphabetical-labels.txt": {
        "gpu_memory_total_bytes": {},  # free memory alone is no total
    },
    "dcgm-mig-lowercase-names.txt": {
        "gpu_utilization_ratio": {"0/1": 0.0, "0/2": 0.0, "1/1": 0.0},
    },
    "dcgm-netdata-testdata.txt": {
        "gpu_memory_used_bytes": {"0": 1024 * MIB},
        "gpu_utilization_ratio": {"0/2": 0.6},  # the instance, not the board beside it
        "gpu_xid_errors_total": {"0": 0.0},  # 31 is a code, of a time unknown
    },
    "dcgm-readme-sentinel-and-space-after-comma.txt": {},
}


async def read_all(pages: Sequence[str | bytes], **keys: Any) -> tuple[list[Reading], Source]:
    """Serve one page after the other over HTTP, and read each."""
    readings = []
    async with httpx2.AsyncClient() as client:
        tools = Tools(client, lambda: NOW, time.monotonic, 5.0)
        source: Source | None = None
        body = b""

        async def answer(writer: Any) -> None:
            await text(body)(writer)

        async with serving(answer) as server:
            source = _source(server, tools, keys)
            for page in pages:
                body = page.encode() if isinstance(page, str) else page
                readings.append(await source.read())
            await source.close()
    return readings, source


def _source(server: Server, tools: Tools, keys: dict[str, Any]) -> Source:
    config = DcgmConfig(url=server.url + "/metrics", **keys)
    return config.build(Place("chat", "a", "http://127.0.0.1:8000"), tools)


async def read(page: str | bytes, **keys: Any) -> Reading:
    readings, _ = await read_all([page], **keys)
    return readings[0]


def series(name: str, value: object, **labels: str) -> str:
    inside = ",".join(f'{key}="{it}"' for key, it in labels.items())
    return f"{name}{{{inside}}} {value}\n"


def codes(reading: Reading) -> set[str]:
    return {finding.code for finding in reading.findings}


def test_every_recorded_page_is_in_the_table() -> None:
    assert {page.name for page in PAGES.iterdir()} == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
async def test_each_recorded_page_gives_the_expected_signals(name: str) -> None:
    reading = await read((PAGES / name).read_bytes())

    expected = {signal: parts for signal, parts in EXPECTED[name].items() if parts}
    found = {signal: dict(parts) for signal, parts in reading.parts.items()}
    assert found == expected
    assert reading.up
    assert reading.source == "dcgm"
    assert reading.known | {"up"} >= OFFERED
    assert not reading.values.keys() & reading.absent.keys()


async def test_numbers_agree_with_prometheus_client_where_it_can_read_the_page() -> None:
    body = (PAGES / "dcgm-3.3-driver-version-label.txt").read_text()

    reading = await read(body)

    samples = [it for family in text_string_to_metric_families(body) for it in family.samples]
    used = sum(it.value for it in samples if it.name == "DCGM_FI_DEV_FB_USED")
    assert reading.values["gpu_memory_used_bytes"] == used * 1024 * 1024


FULL = "".join(
    series(f"DCGM_FI_DEV_{name}", value, gpu=gpu, UUID=f"GPU-{gpu}", Hostname="n1", pod=f"p{gpu}")
    for gpu in ("0", "1")
    for name, value in (
        ("FB_USED", 1000),
        ("FB_FREE", 3000),
        ("FB_RESERVED", 96),
        ("GPU_UTIL", 50 + int(gpu)),
        ("GPU_TEMP", 60 + int(gpu)),
        ("POWER_USAGE", 300.5),
        ("XID_ERRORS", 0),
        ("ECC_DBE_VOL_TOTAL", 2),
        ("CLOCKS_EVENT_REASONS", 1 + 0x20 * int(gpu)),
    )
)


async def test_a_full_page_gives_every_signal_in_its_unit() -> None:
    reading = await read(FULL)

    assert reading.absent == {}
    assert reading.values["gpu_memory_used_bytes"] == 2000 * MIB
    assert reading.parts["gpu_memory_total_bytes"] == {"0": 4096 * MIB, "1": 4096 * MIB}
    assert reading.values["gpu_utilization_ratio"] == 0.51
    assert reading.values["gpu_temperature_celsius"] == 61.0
    assert reading.values["gpu_power_watts"] == 601.0
    assert reading.parts["gpu_throttled"] == {"0": 0.0, "1": 1.0}
    assert reading.values["gpu_throttled"] == 1.0
    assert reading.values["gpu_ecc_errors_total"] == 4.0
    assert reading.values["gpu_xid_errors_total"] == 0.0
    assert reading.findings == ()


@pytest.mark.parametrize(
    "keys",
    [
        {"devices": [1]},
        {"devices": ["GPU-1"]},
        {"pod": "p1"},
        {"pod": "p1", "hostname": "n1"},
        {"devices": "all", "pod": "p1"},
    ],
)
async def test_series_of_other_targets_are_left_out(keys: dict[str, Any]) -> None:
    reading = await read(FULL, **keys)

    assert reading.parts["gpu_memory_used_bytes"] == {"1": 1000 * MIB}
    assert reading.values["gpu_temperature_celsius"] == 61.0


@pytest.mark.parametrize(
    "labels",
    [
        {"exported_pod": "p", "pod": "dcgm-x", "exported_namespace": "ns", "namespace": "gpu"},
        {"pod": "p", "namespace": "ns"},
        {"pod_name": "p", "pod_namespace": "ns"},
    ],
)
async def test_each_spelling_of_the_pod_labels_is_understood(labels: dict[str, str]) -> None:
    page = series("DCGM_FI_DEV_GPU_TEMP", 50, gpu="3", uuid="GPU-3", **labels)

    reading = await read(page, pod="p", namespace="ns")

    assert reading.parts["gpu_temperature_celsius"] == {"3": 50.0}


@pytest.mark.parametrize("label", ["UUID", "uuid", "gpu_uuid"])
async def test_each_spelling_of_the_uuid_is_understood(label: str) -> None:
    page = series("DCGM_FI_DEV_GPU_TEMP", 50, gpu="3", **{label: "GPU-three"})

    reading = await read(page, devices=["GPU-three"])

    assert reading.values["gpu_temperature_celsius"] == 50.0


async def test_nothing_that_fits_is_a_finding_that_lists_what_there_is() -> None:
    wrong = await read(FULL, devices=[7])
    untold = await read(FULL.replace('pod="p', 'pod_was="p'), pod="p1")

    assert codes(wrong) == {"gpu_not_found"}
    assert "0 (GPU-0), 1 (GPU-1)" in wrong.findings[0].text
    assert "gpu_memory_used_bytes" in wrong.absent
    assert codes(untold) == {"gpu_pods_untold"}


async def test_gpus_of_several_hosts_on_one_page_are_a_finding() -> None:
    page = FULL + series("DCGM_FI_DEV_GPU_TEMP", 50, gpu="2", UUID="GPU-9", hostname="n2")

    mixed = await read(page)
    one = await read(page, hostname="n2")

    assert codes(mixed) == {"gpu_hosts_mixed"}
    assert one.parts["gpu_temperature_celsius"] == {"2": 50.0}
    assert codes(one) == set()


async def test_a_device_whose_total_is_unknown_is_left_out_of_used_too() -> None:
    page = FULL.replace(
        'DCGM_FI_DEV_FB_FREE{gpu="1",UUID="GPU-1",Hostname="n1",pod="p1"} 3000',
        'DCGM_FI_DEV_FB_FREE{gpu="1",UUID="GPU-1",Hostname="n1",pod="p1"} 9223372036854775794',
    )

    reading = await read(page)

    assert reading.parts["gpu_memory_used_bytes"] == {"0": 1000 * MIB}
    assert reading.parts["gpu_memory_total_bytes"] == {"0": 4096 * MIB}


async def test_a_total_of_the_page_is_taken_as_it_is() -> None:
    page = FULL + series("DCGM_FI_DEV_FB_TOTAL", 5000, gpu="0", UUID="GPU-0")

    reading = await read(page)

    assert reading.parts["gpu_memory_total_bytes"] == {"0": 5000 * MIB}
    assert reading.parts["gpu_memory_used_bytes"] == {"0": 1000 * MIB}


FAMILIES = [term.family for row in DCGM.rows for alias in row.aliases for term in alias.terms]
LABELS = st.fixed_dictionaries(
    {"gpu": st.sampled_from(["", "0", "1"])},
    optional={
        "UUID": st.sampled_from(["GPU-0", "GPU-1"]),
        "GPU_I_ID": st.sampled_from(["", "1", "2"]),
        "Hostname": st.sampled_from(["n1", "n2"]),
        "clock_event": st.sampled_from(["hw_thermal", "gpu_idle"]),
    },
)
SAMPLES = st.tuples(st.sampled_from(sorted(set(FAMILIES))), LABELS, st.floats())


@pytest.mark.slow
@given(st.lists(SAMPLES, max_size=12))
def test_no_page_of_numbers_breaks_the_source_or_yields_a_value_that_is_none(
    rows: list[tuple[str, dict[str, str], float]],
) -> None:
    tidy, wanted = Tidy((), {}), wanted_families((DCGM,))
    body = "".join(series(name, value, **labels) for name, labels, value in rows).encode()

    for _ in range(2):
        page = tidy.page(parse(body, wanted, SeriesCache()))
        found = translate(page, (DCGM,), Ledger(), configured={}, monotonic_seconds=1.0)

        assert all(math.isfinite(it) and it >= 0 for it in found.values.values())
        assert found.values.keys() <= OFFERED
        used, total = (found.parts.get(f"gpu_memory_{it}_bytes", {}) for it in ("used", "total"))
        assert not used or not total or used.keys() == total.keys()


@pytest.mark.parametrize(
    "family", ["XID_ERRORS", "CLOCKS_EVENT_REASONS", "ECC_DBE_VOL_TOTAL", "THERMAL_VIOLATION"]
)
async def test_a_sentinel_is_neither_a_code_nor_a_mask_nor_a_count(family: str) -> None:
    page = series(f"DCGM_FI_DEV_{family}", 2_147_483_633, gpu="0")

    (first, second), _ = await read_all([page, page])

    for reading in (first, second):
        assert reading.up
        assert not reading.values.keys() & OFFERED
        assert Absence.UNUSABLE in reading.absent.values()


@pytest.mark.parametrize(
    "sentinel", ["9223372036854775794", "2147483632", "140737488355328", "-1", "NaN"]
)
async def test_a_sentinel_is_absent_and_counted_and_spares_the_other_devices(
    sentinel: str,
) -> None:
    page = series("DCGM_FI_DEV_GPU_TEMP", sentinel, gpu="0") + series(
        "DCGM_FI_DEV_GPU_TEMP", 55, gpu="1"
    )
    alone = series("DCGM_FI_DEV_GPU_TEMP", sentinel, gpu="0")

    (both, only), source = await read_all([page, alone])

    assert both.parts["gpu_temperature_celsius"] == {"1": 55.0}
    assert only.absent["gpu_temperature_celsius"] is Absence.UNUSABLE
    assert source.stats().skipped[Skip.UNUSABLE] == 2


async def test_a_text_where_a_number_should_be_is_absent_and_counted() -> None:
    page = series("DCGM_FI_DEV_POWER_USAGE", "N/A", gpu="0") + series(
        "DCGM_FI_DEV_GPU_TEMP", 55, gpu="0"
    )

    (reading,), source = await read_all([page])

    assert reading.absent["gpu_power_watts"] is Absence.UNUSABLE
    assert reading.values["gpu_temperature_celsius"] == 55.0
    assert source.stats().skipped[Skip.VALUE] == 1


async def test_a_split_gpu_is_its_instances_for_memory_and_its_board_for_power() -> None:
    page = ""
    for instance in ("1", "2"):
        labels = {"gpu": "0", "UUID": "GPU-0", "GPU_I_ID": instance, "GPU_I_PROFILE": "3g.40gb"}
        page += series("DCGM_FI_DEV_FB_USED", 100, **labels)
        page += series("DCGM_FI_DEV_POWER_USAGE", 250, **labels)
    page += series("DCGM_FI_DEV_FB_USED", 200, gpu="0", UUID="GPU-0")
    page += series("DCGM_FI_DEV_POWER_USAGE", 250, gpu="0", UUID="GPU-0")

    whole = await read(page)
    half = await read(page, devices=["0/2"])

    assert whole.parts["gpu_memory_used_bytes"] == {"0/1": 100 * MIB, "0/2": 100 * MIB}
    assert whole.values["gpu_memory_used_bytes"] == 200 * MIB
    assert whole.parts["gpu_power_watts"] == {"0": 250.0}
    assert half.parts["gpu_memory_used_bytes"] == {"0/2": 100 * MIB}


async def test_a_gpu_that_several_pods_share_counts_once() -> None:
    page = "".join(
        series("DCGM_FI_DEV_FB_USED", 100, gpu="0", UUID="GPU-0", pod=pod) for pod in ("a", "b")
    )

    reading = await read(page)

    assert reading.values["gpu_memory_used_bytes"] == 100 * MIB


async def test_an_xid_is_a_code_whose_changes_are_counted() -> None:
    def page(code: int, pod: str = "p") -> str:
        return series("DCGM_FI_DEV_XID_ERRORS", code, gpu="0", UUID="GPU-0", pod=pod)

    readings, _ = await read_all([page(31), page(31), page(79), page(79, "q"), page(0), page(43)])

    counts = [it.values["gpu_xid_errors_total"] for it in readings]
    assert counts == [0.0, 0.0, 1.0, 1.0, 1.0, 2.0]
    assert readings[2].noticed == (Noticed("gpu_xid", after="79 on GPU 0"),)
    assert readings[1].noticed == ()
    assert codes(readings[0]) == {"gpu_xid"}
    assert codes(readings[4]) == set()


async def test_throttling_is_told_by_times_that_grow_where_there_is_no_mask() -> None:
    def page(heat: int, power: int) -> str:
        return (
            "# TYPE DCGM_FI_DEV_THERMAL_VIOLATION counter\n"
            + series("DCGM_FI_DEV_THERMAL_VIOLATION", heat, gpu="0")
            + series("DCGM_FI_DEV_POWER_VIOLATION", power, gpu="0")
        )

    readings, _ = await read_all([page(5, 9), page(5, 9), page(5, 12), page(5, 12)])

    assert readings[0].absent["gpu_throttled"] is Absence.NO_SAMPLE
    assert [it.values["gpu_throttled"] for it in readings[1:]] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(("event", "throttled"), [("hw_thermal", 1.0), ("gpu_idle", None)])
async def test_clock_events_in_the_window_tell_throttling_too(
    event: str, throttled: float | None
) -> None:
    page = series("DCGM_EXP_CLOCK_EVENTS_COUNT", 3, gpu="0", clock_event=event)

    reading = await read(page)

    assert reading.values.get("gpu_throttled") == throttled


async def test_lower_case_names_of_old_builds_are_the_same_signals() -> None:
    page = re.sub(r"^\w+", lambda name: name[0].lower(), FULL, flags=re.MULTILINE)

    old, new = await read(page), await read(FULL)

    assert old.parts == new.parts


async def test_a_page_that_cannot_be_had_is_down_without_old_findings() -> None:
    readings, _ = await read_all([series("DCGM_FI_DEV_XID_ERRORS", 31, gpu="0"), b"<html>"])

    assert codes(readings[0]) == {"gpu_xid"}
    assert not readings[1].up
    assert codes(readings[1]) == set()
    assert set(readings[1].absent.values()) == {Absence.SCRAPE_FAILED}
