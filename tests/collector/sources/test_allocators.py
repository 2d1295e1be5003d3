"""What the allocators of several processes are together, from their pages."""

from __future__ import annotations

import pytest

from collector.sources.gpu.allocators import Together, together
from collector.sources.gpu.probe_pages import FAMILIES, ProcessPage, read_page, wanted
from collector.sources.page.keys import SeriesCache
from collector.sources.page.series import Ledger
from detectors.records import Absence
from tests.collector.sources.probes import GIB, a_page, page_text

SNAPSHOT = """fusewire_probe_snapshot_enabled{pid="7"} 1.0
fusewire_probe_largest_free_bytes{pid="7",device="0"} SIZE
fusewire_probe_expandable_segments{pid="7",device="0"} 0.0
"""


def taken(*pages: ProcessPage, ledger: Ledger | None = None, whole: bool = True) -> Together:
    return together(pages, ledger or Ledger(), whole=whole)


def codes(found: Together) -> list[str]:
    return [finding.code for finding in found.findings]


def test_processes_add_by_device() -> None:
    found = taken(a_page({"0": 1, "1": 2}), a_page({"1": 4}, run="bb"))

    for gauge in ("allocated", "reserved", "active", "inactive_split"):
        assert found.values[f"allocator_{gauge}_bytes"] == 7 * GIB
        assert found.parts[f"allocator_{gauge}_bytes"] == {"0": GIB, "1": 6 * GIB}
    assert found.parts["allocator_ooms_total"] == {"0": 1.0, "1": 6.0}
    assert found.absent == {"allocator_largest_free_bytes": Absence.SWITCHED_OFF}
    assert found.findings == []


def test_the_largest_free_block_is_the_largest_of_all() -> None:
    pages = [
        a_page({"0": 1}, run=run, more=SNAPSHOT.replace("SIZE", size))
        for run, size in (("aa", "700"), ("bb", "900"))
    ]

    found = taken(*pages)

    assert found.values["allocator_largest_free_bytes"] == 900.0
    assert found.parts["allocator_largest_free_bytes"] == {"0": 900.0}
    assert found.absent == {}


def test_a_snapshot_that_is_still_to_come_is_no_sample() -> None:
    page = a_page({"0": 1}, more='fusewire_probe_snapshot_enabled{pid="7"} 1.0')

    assert taken(page).absent == {"allocator_largest_free_bytes": Absence.NO_SAMPLE}


def test_a_process_started_anew_does_not_take_its_counts_back() -> None:
    ledger = Ledger()

    totals = [
        taken(a_page({"0": count}, run=run), ledger=ledger).values["allocator_ooms_total"]
        for run, count in (("aa", 5), ("aa", 7), ("bb", 1), ("bb", 9))
    ]
    between = taken(a_page(state="cuda_not_initialized", run="cc"), ledger=ledger)

    assert totals == [5.0, 7.0, 8.0, 16.0]
    assert between.values == {"allocator_retries_total": 16.0, "allocator_ooms_total": 16.0}


def test_a_sum_that_misses_a_process_is_not_given() -> None:
    found = taken(a_page({"0": 1}), whole=False)

    assert found.absent["allocator_reserved_bytes"] is Absence.UNUSABLE
    assert found.values["allocator_ooms_total"] == 1.0


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf"])
def test_a_gauge_that_cannot_be_is_not_added(value: str) -> None:
    bad = f'fusewire_probe_reserved_bytes{{pid="7",device="1"}} {value}'

    found = taken(a_page({"0": 1}, more=bad))

    assert found.absent["allocator_reserved_bytes"] is Absence.UNUSABLE
    assert found.values["allocator_allocated_bytes"] == GIB


def test_a_figure_that_an_old_torch_lacks_is_not_in_its_version() -> None:
    text = page_text({"0": 1}).replace("inactive_split", "another")
    page = read_page(text.encode(), wanted(), SeriesCache())
    assert page is not None

    absence = taken(page).absent["allocator_inactive_split_bytes"]
    assert absence is Absence.NOT_IN_VERSION


@pytest.mark.parametrize(
    "state", ["no_cuda", "cuda_not_initialized", "torch_not_loaded", "torch_missing"]
)
def test_no_gpu_in_use_is_a_state_with_words(state: str) -> None:
    found = taken(a_page(state=state))

    assert codes(found) == [state]
    assert set(found.absent) == set(FAMILIES)
    assert set(found.absent.values()) == {Absence.NO_SAMPLE}


def test_processes_without_a_gpu_beside_one_with_one_are_no_finding() -> None:
    found = taken(a_page(state="cuda_not_initialized", run="bb"), a_page({"0": 1}))

    assert codes(found) == []
    assert found.values["allocator_reserved_bytes"] == GIB


def test_a_probe_that_torch_refused_is_told_and_makes_sums_unusable() -> None:
    found = taken(a_page(state="failed", run="bb"), a_page({"0": 1}))

    assert codes(found) == ["probe_failed"]
    assert "7" in found.findings[0].text
    assert found.absent["allocator_reserved_bytes"] is Absence.UNUSABLE


def test_a_state_of_a_newer_probe_is_told() -> None:
    assert codes(taken(a_page(state="xpu"))) == ["probe_unknown_state"]


MEANINGLESS = "split_share_meaningless_with_expandable_segments"
BOTH = "expandable_segments_with_max_split_size"
GROW = "expandable_segments:True"
CUDA, COMMON = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


@pytest.mark.parametrize(
    ("torch", "conf", "expected"),
    [
        ("2.11.0", {CUDA: GROW}, [MEANINGLESS]),
        ("2.11.0", {COMMON: GROW}, [MEANINGLESS]),
        ("2.11.0", {CUDA: f"{GROW},max_split_size_mb:128"}, [BOTH, MEANINGLESS]),
        ("2.11.0", {CUDA: "max_split_size_mb:128"}, []),
        ("2.11.0", {"torch": GROW}, [MEANINGLESS]),
        ("2.11.0", {CUDA: GROW, "torch": "expandable_segments:False"}, []),  # torch knows best
        ("2.11.0", {CUDA: "expandable_segments:False", COMMON: GROW}, [MEANINGLESS]),
        ("2.9.1+cu128", {COMMON: GROW}, ["alloc_conf_ignored"]),
        ("2.9.1+cu128", {COMMON: GROW, "torch": GROW}, ["alloc_conf_ignored"]),
        ("2.9.1+cu128", {COMMON: GROW, CUDA: GROW}, [MEANINGLESS]),
        ("2.10.0", {COMMON: GROW}, [MEANINGLESS, "alloc_conf_ignored"]),
        ("2.4.0", {COMMON: GROW}, ["alloc_conf_ignored"]),
        ("", {COMMON: GROW}, [MEANINGLESS]),
    ],
)
def test_settings_that_do_not_do_what_they_seem_to_are_found(
    torch: str, conf: dict[str, str], expected: list[str]
) -> None:
    found = taken(a_page({"0": 1}, torch=torch, conf=conf))

    assert codes(found) == expected
    meaningless = MEANINGLESS in expected
    absence = found.absent.get("allocator_inactive_split_bytes")
    assert absence is (Absence.UNUSABLE if meaningless else None)


def test_segments_that_were_seen_to_grow_count_whatever_the_settings_say() -> None:
    more = SNAPSHOT.replace("SIZE", "5").replace("} 0.0", "} 1.0")

    assert codes(taken(a_page({"0": 1}, more=more))) == [MEANINGLESS]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vllm:num_requests_running 1\n",
        page_text({"0": 1}).rstrip("\n"),  # its last line may be cut
        page_text({"0": 1}).replace('run="aa"', 'run=""'),
    ],
)
def test_what_is_no_whole_page_of_a_probe_is_none(text: str) -> None:
    assert read_page(text.encode(), wanted(), SeriesCache()) is None
