"""Reading from a server that stores metrics: what is made of its answers."""

from __future__ import annotations

import re

import pytest

from collector.sources.engine.engines import ENGINES
from collector.sources.engine.understanding import Moment, Understanding
from detectors.records import Absence
from tests.collector.sources.fake_prometheus import (
    ENGINE,
    A,
    Clock,
    FakePrometheus,
    a_server,
    a_stored,
    an_engine,
    one_read,
)
from tests.collector.sources.reading_pages import body, page_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def fake() -> FakePrometheus:
    return FakePrometheus()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_families_with_equal_labels_do_not_swallow_each_other(
    fake: FakePrometheus, clock: Clock
) -> None:
    an_engine(fake, running=3.0, tokens=100.0)

    reading = await one_read(fake, clock)

    assert reading.values["requests_running"] == 3.0
    assert reading.values["requests_waiting"] == 3.0
    assert reading.values["generation_tokens_total"] == 100.0
    assert reading.values["up"] == 1.0
    assert reading.values["scrape_seconds"] == 0.25
    assert (reading.identity.engine, reading.identity.model) == ("vllm", "m")
    assert not reading.problem


@pytest.mark.parametrize("name", ["vllm_", "ray_vllm:", "ray_vllm_", "kserve_vllm:"])
async def test_a_family_is_found_under_every_spelling(
    name: str, fake: FakePrometheus, clock: Clock
) -> None:
    fake.hold(f"{name}num_requests_running", 2.0, **ENGINE)

    reading = await one_read(fake, clock)

    assert reading.values["requests_running"] == 2.0


async def test_of_two_spellings_stored_at_once_the_newer_is_read(
    fake: FakePrometheus, clock: Clock
) -> None:
    fake.hold("vllm_num_requests_running", 9.0, fake.now - 40, **ENGINE)
    fake.hold("vllm:num_requests_running", 2.0, **ENGINE)

    reading = await one_read(fake, clock)

    assert reading.values["requests_running"] == 2.0


async def test_a_family_older_than_the_rest_has_an_age_of_its_own(
    fake: FakePrometheus, clock: Clock
) -> None:
    an_engine(fake)
    fake.hold("vllm:kv_cache_usage_perc", 0.5, fake.now - 30, **ENGINE)

    reading = await one_read(fake, clock)

    assert reading.ages["kv_cache_usage_ratio"] == pytest.approx(30.0)
    assert "requests_running" not in reading.ages


async def test_samples_too_old_are_absent_and_said_to_be_stale(
    fake: FakePrometheus, clock: Clock
) -> None:
    an_engine(fake)
    fake.hold("vllm:kv_cache_usage_perc", 0.5, fake.now - 61, **ENGINE)

    reading = await one_read(fake, clock)

    assert "kv_cache_usage_ratio" not in reading.values
    assert reading.absent["kv_cache_usage_ratio"] is Absence.STALE


async def test_a_series_that_stays_behind_is_not_added_to_the_living(
    fake: FakePrometheus, clock: Clock
) -> None:
    fake.hold("ray_vllm:num_requests_running", 5.0, fake.now - 90, ReplicaId="dead", **A)
    fake.hold("ray_vllm:num_requests_running", 2.0, ReplicaId="one", **A)
    fake.hold("ray_vllm:num_requests_running", 1.0, ReplicaId="two", **A)

    reading = await one_read(fake, clock)

    assert reading.values["requests_running"] == 3.0


async def test_a_target_whose_samples_are_all_old_is_a_problem_in_words(
    fake: FakePrometheus, clock: Clock
) -> None:
    fake.hold("vllm:num_requests_running", 5.0, fake.now - 200, **ENGINE)

    reading = await one_read(fake, clock)

    assert "nothing of it newer than 60 s" in reading.problem
    assert reading.values["up"] == 0.0


async def test_a_scrape_that_failed_there_is_a_reading_with_up_0(
    fake: FakePrometheus, clock: Clock
) -> None:
    fake.hold("up", 0.0, **A)

    reading = await one_read(fake, clock)

    assert reading.values["up"] == 0.0
    assert "cannot scrape it (up is 0 there)" in reading.problem
    assert reading.absent["requests_running"] is Absence.SCRAPE_FAILED


async def test_no_series_names_the_labels_and_the_tenant(
    fake: FakePrometheus, clock: Clock
) -> None:
    reading = await one_read(fake, clock)

    assert "no series with instance='a:8000'" in reading.problem
    assert "tenant" in reading.problem
    assert reading.values["up"] == 0.0


async def test_the_same_sample_read_twice_is_one_scrape(fake: FakePrometheus, clock: Clock) -> None:
    source = a_stored(a_server(fake, clock), clock, match={"instance": "a:8000"})
    an_engine(fake, tokens=100.0)
    await source.read()
    fake.now += 15
    an_engine(fake, tokens=400.0)
    fresh = await source.read()
    fake.now += 5
    again = await source.read()

    assert fresh.values["generation_tokens_per_second"] == pytest.approx(
        20.0
    )  # over 15 s of theirs
    assert again.values == fresh.values
    assert again.age_seconds == pytest.approx(5.0)


async def test_a_stored_page_has_quantiles_findings_and_approximations_as_a_scraped_one(
    fake: FakePrometheus, clock: Clock
) -> None:
    server = a_server(fake, clock)
    source = a_stored(server, clock, match={"instance": "a:8000"}, engine="auto")
    first = body("tgi-3.3-full-2025-09.txt")
    then = re.sub(
        rb"(?m)^([^#\n].*) ([0-9.]+)$", lambda it: b"%s %f" % (it[1], 2 * float(it[2])), first
    )
    fake.hold_page(first, instance="a:8000")
    await source.read()
    fake.now += 15
    fake.drop(instance="a:8000")
    fake.hold_page(then, instance="a:8000")

    stored = await source.read()

    scraped = Understanding(ENGINES)
    scraped.take(page_of(first), Moment(0.0, 1_000.0), {})
    found = scraped.take(page_of(then), Moment(15.0, 1_015.0), {})
    assert stored.quantiles == found.quantiles
    assert set(stored.quantiles) >= {"e2e_p50_seconds", "inter_token_p50_seconds"}
    assert stored.values["ttft_estimate_seconds"] == found.values["ttft_estimate_seconds"] > 0.0
    assert stored.values["engine_steps_total"] == found.values["engine_steps_total"]
    assert stored.findings == tuple(found.findings)
    assert "kv_capacity_unknown" in {it.code for it in stored.findings}


async def test_adapters_of_a_stored_page_are_counted_by_the_clock_of_the_server(
    fake: FakePrometheus, clock: Clock
) -> None:
    label = {"running_lora_adapters": "a,b", "waiting_lora_adapters": "b", "max_lora": "4"}
    an_engine(fake)
    fake.hold("vllm:lora_requests_info", fake.now - 2, None, **A, **label)

    reading = await one_read(fake, clock)

    assert reading.values["lora_adapters_active"] == 2.0


async def test_a_model_that_is_a_path_is_shortened_also_when_stored(
    fake: FakePrometheus, clock: Clock
) -> None:
    fake.hold("vllm:num_requests_running", 1.0, None, **{**ENGINE, "model_name": "/srv/x/tiny"})

    reading = await one_read(fake, clock)

    assert reading.identity.model.startswith("tiny#")


async def test_a_fallen_counter_is_a_restart_once(fake: FakePrometheus, clock: Clock) -> None:
    source = a_stored(a_server(fake, clock), clock, match={"instance": "a:8000"})
    an_engine(fake, tokens=100.0)
    await source.read()
    fake.now += 5
    an_engine(fake, tokens=10.0)
    fallen = await source.read()
    again = await source.read()

    assert fallen.restarted
    assert not again.restarted
    assert fallen.values["generation_tokens_total"] == 110.0


async def test_copies_by_two_scrapers_count_once_and_never_go_back_in_time(
    fake: FakePrometheus, clock: Clock
) -> None:
    source = a_stored(a_server(fake, clock), clock, match={"instance": "a:8000"})
    one, two = {**ENGINE, "prometheus_replica": "0"}, {**ENGINE, "prometheus_replica": "1"}
    fake.hold("vllm:generation_tokens_total", 100.0, fake.now - 1, **one)
    fake.hold("vllm:generation_tokens_total", 90.0, fake.now - 8, **two)

    first = await source.read()
    fake.drop(prometheus_replica="0")  # the first scraper is gone, the other is behind
    second = await source.read()
    fake.now += 10
    fake.hold("vllm:generation_tokens_total", 130.0, **two)
    third = await source.read()

    assert first.values["generation_tokens_total"] == 100.0
    assert second.values["generation_tokens_total"] == 100.0
    assert third.values["generation_tokens_total"] == 130.0
    assert not (first.findings and "several" in first.findings[0].code)
    assert not any(it.restarted for it in (first, second, third))


async def test_a_copy_that_falls_behind_is_left_for_the_other(
    fake: FakePrometheus, clock: Clock
) -> None:
    source = a_stored(a_server(fake, clock), clock, match={"instance": "a:8000"})
    for replica in "01":
        fake.hold("vllm:num_requests_running", 1.0, replica=replica, **ENGINE)
    await source.read()
    fake.now += 40
    fake.hold("vllm:num_requests_running", 7.0, replica="1", **ENGINE)

    reading = await source.read()

    assert reading.values["requests_running"] == 7.0


async def test_a_match_that_selects_two_engines_is_a_finding(
    fake: FakePrometheus, clock: Clock
) -> None:
    for instance in ("a:8000", "b:8000"):
        fake.hold("up", 1.0, job="vllm", instance=instance)
        fake.hold("vllm:num_requests_running", 2.0, job="vllm", instance=instance)

    reading = await one_read(fake, clock, job="vllm")

    assert reading.values["requests_running"] == 2.0  # one of them, not both
    finding = next(it for it in reading.findings if it.code == "stored_series_of_several_targets")
    assert "instance" in finding.text


async def test_labels_of_the_server_go_and_renamed_ones_come_back(
    fake: FakePrometheus, clock: Clock
) -> None:
    scraped = {**A, "engine": "vllm", "team": "search"}
    fake.hold("up", 1.0, **scraped)
    for engine, usage in (("0", 0.25), ("1", 0.75)):
        labels = {**scraped, "exported_engine": engine}
        fake.hold("vllm:kv_cache_usage_perc", usage, **labels)

    reading = await one_read(fake, clock)

    assert reading.values["kv_cache_usage_ratio"] == 0.75
    assert reading.values["kv_cache_usage_mean_ratio"] == 0.5


async def test_a_partial_answer_is_a_finding_and_makes_nothing_too_small(
    fake: FakePrometheus, clock: Clock
) -> None:
    source = a_stored(a_server(fake, clock), clock, match={"instance": "a:8000"})
    for engine in ("0", "1"):
        fake.hold("vllm:num_requests_running", 4.0, **{**ENGINE, "engine": engine})
    whole = await source.read()
    fake.now += 5
    fake.drop(engine="1")
    fake.hold("vllm:num_requests_running", 4.0, **ENGINE)
    fake.warnings = ["store 10.0.0.9 did not answer"]
    partial = await source.read()
    fake.warnings = []
    fake.hold("vllm:num_requests_running", 5.0, **{**ENGINE, "engine": "1"})
    completed = await source.read()

    assert whole.values["requests_running"] == 8.0
    assert "requests_running" not in partial.values
    assert "store 10.0.0.9" in next(
        it.text for it in partial.findings if it.code == "stored_answer_partial"
    )
    assert completed.values["requests_running"] == 9.0


async def test_is_partial_of_victoria_metrics_is_heard_and_infos_are_not(
    fake: FakePrometheus, clock: Clock
) -> None:
    an_engine(fake)
    fake.infos = ["metric might not be a counter"]
    whole = await one_read(fake, clock)
    fake.partial = True
    partial = await one_read(fake, clock)

    codes = [{it.code for it in reading.findings} for reading in (whole, partial)]
    assert "stored_answer_partial" not in codes[0]
    assert "stored_answer_partial" in codes[1]
