"""Played pages: gauges as recorded, counters that never fall."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from collector.demo.player import CALM_PARTS, SCENES, Player, Recording, Scene, read_recording
from collector.demo.recorded import KV_FULL, LOAD, read_pages
from tests.collector.sources.reading_pages import Scraped

SERIES = (("engine", "0"), ("model_name", "tiny"))
FINISHED = ("vllm:e2e_request_latency_seconds_count", SERIES)
Rows = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def recording() -> Recording:
    return read_recording(read_pages(KV_FULL))


@pytest.fixture(scope="module")
def calm() -> Mapping[str, float]:
    return read_recording(read_pages(LOAD)[:1]).pages[0].rising


def a_player(recording: Recording, calm: Mapping[str, float], start: int = 0) -> Player:
    return Player(recording, calm=calm, scene=SCENES["normal"], start=start)


def samples(page: str) -> tuple[Rows, Rows]:
    """Return the rising samples and the gauges of a page, as prometheus_client reads them."""
    rising: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    gauges: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            into = rising if family.type in {"counter", "histogram"} else gauges
            into[(sample.name, tuple(sorted(sample.labels.items())))] = sample.value
    return rising, gauges


def gauge(page: str, name: str) -> float:
    _, gauges = samples(page)
    return sum(value for (found, _), value in gauges.items() if found == name)


def total(page: str, name: str) -> float:
    """Return the sum of a family's samples, quicker than by way of `samples`."""
    lines = [line for line in page.splitlines() if line.startswith(f"{name}{{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def shown(player: Player, pages: int) -> list[str]:
    return [player.next_page() for _ in range(pages)]


def test_counters_never_fall_over_loops_and_changes_of_scene(
    recording: Recording, calm: Mapping[str, float]
) -> None:
    player = a_player(recording, calm, start=1)

    pages = shown(player, 6)
    player.play(SCENES["kvfull"])
    pages += shown(player, 14)
    player.play(SCENES["normal"])
    pages += shown(player, CALM_PARTS)

    read = [samples(page)[0] for page in pages]
    falls = [
        (name, before[name], after[name])
        for before, after in pairwise(read)
        for name in before
        if after[name] < before[name]
    ]
    assert falls == []
    tokens = ("vllm:generation_tokens_total", (("engine", "0"), ("model_name", "tiny")))
    assert all(after[tokens] > before[tokens] for before, after in pairwise(read))


def test_buckets_of_played_histograms_stay_cumulative(
    recording: Recording, calm: Mapping[str, float]
) -> None:
    player = a_player(recording, calm)
    pages = shown(player, 5)
    player.play(SCENES["kvfull"])
    pages += shown(player, 9)

    for page in pages:
        for family in text_string_to_metric_families(page):
            if family.type != "histogram":
                continue
            last: dict[tuple[tuple[str, str], ...], float] = {}
            for sample in family.samples:
                labels = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
                if sample.name.endswith("_bucket"):
                    assert sample.value >= last.get(labels, 0.0)
                    last[labels] = sample.value
                elif sample.name.endswith("_count"):
                    assert sample.value == last[labels]


def test_gauges_are_shown_as_recorded(recording: Recording, calm: Mapping[str, float]) -> None:
    bodies = read_pages(KV_FULL)
    player = a_player(recording, calm)

    pages = shown(player, 4)

    for body, page in zip([bodies[number] for number in (26, 27, 28, 27)], pages, strict=True):
        shown_gauges, recorded_gauges = samples(page)[1], samples(body)[1]
        assert recorded_gauges
        assert {name: shown_gauges[name] for name in recorded_gauges} == recorded_gauges


@pytest.mark.parametrize("scene", SCENES)
def test_no_series_of_the_recording_is_ever_missing(
    recording: Recording, calm: Mapping[str, float], scene: str
) -> None:
    player = a_player(recording, calm)
    player.play(SCENES[scene])

    page = player.next_page()

    heads = [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
    recorded = [
        line.rpartition(" ")[0]
        for line in read_pages(KV_FULL)[-1].splitlines()
        if not line.startswith("#")
    ]
    assert heads == recorded


def test_in_the_normal_scene_nothing_waits_and_the_cache_has_room(
    recording: Recording, calm: Mapping[str, float]
) -> None:
    pages = shown(a_player(recording, calm), 8)

    assert {gauge(page, "vllm:num_requests_waiting") for page in pages} == {0.0}
    assert max(gauge(page, "vllm:kv_cache_usage_perc") for page in pages) < 0.8


def test_in_the_full_scene_the_cache_is_full_and_the_queue_grows(
    recording: Recording, calm: Mapping[str, float]
) -> None:
    player = a_player(recording, calm)
    player.play(SCENES["kvfull"])

    pages = shown(player, 10)

    queue = [gauge(page, "vllm:num_requests_waiting") for page in pages]
    assert queue[:7] == sorted(set(queue[:7]))
    assert min(queue[7:]) >= queue[3]
    assert min(gauge(page, "vllm:kv_cache_usage_perc") for page in pages) > 0.95


def test_a_calm_stretch_is_added_whole_after_all_its_parts(
    recording: Recording, calm: Mapping[str, float]
) -> None:
    player = a_player(recording, calm)
    before = samples(player.next_page())[0]

    after = samples(shown(player, CALM_PARTS)[-1])[0]

    tokens = ("vllm:generation_tokens_total", SERIES)
    assert after[tokens] - before[tokens] == 1022.0
    assert after[FINISHED] - before[FINISHED] >= 48.0


@pytest.mark.parametrize("start", range(3))
def test_no_request_is_lost_over_loops_and_changes_of_scene(
    recording: Recording, calm: Mapping[str, float], start: int
) -> None:
    player = a_player(recording, calm, start=start)
    pages = shown(player, 3 * CALM_PARTS)
    for scene in ("kvfull", "normal", "kvfull", "normal"):
        player.play(SCENES[scene])
        pages += shown(player, 2 * CALM_PARTS + 1)

    for page in pages:
        finished = total(page, "vllm:e2e_request_latency_seconds_count")
        begun = total(page, "vllm:time_to_first_token_seconds_count")
        assert begun - finished == total(page, "vllm:num_requests_running")
        well = total(page, "vllm:request_success_total")
        assert finished - well in {0.0, 1.0}  # parts of each reason are rounded down


def test_the_service_counts_no_lost_request_of_a_played_target(
    recording: Recording, calm: Mapping[str, float]
) -> None:
    player, scraped = a_player(recording, calm), Scraped()
    lost = []

    for step in range(60):
        if step in (20, 40):
            player.play(SCENES["kvfull" if step == 20 else "normal"])
        lost.append(scraped.read(player.next_page()).values["requests_lost_total"])

    assert set(lost) == {0.0}


def test_a_scene_that_is_playing_goes_on_when_it_is_asked_for_again(
    recording: Recording, calm: Mapping[str, float]
) -> None:
    player = a_player(recording, calm)
    player.play(SCENES["kvfull"])
    shown(player, 3)

    player.play(SCENES["kvfull"])

    assert gauge(player.next_page(), "vllm:num_requests_waiting") == 16.0
    assert player.scene == "kvfull"


def test_a_scene_shows_its_intro_once() -> None:
    scene = Scene("x", intro=(5, 6), loop=(1, 2))

    assert [scene.page(step) for step in range(7)] == [5, 6, 1, 2, 1, 2, 1]
