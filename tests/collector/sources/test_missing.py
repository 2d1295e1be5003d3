"""Why a signal is not there, what detectors need, and how to switch it on: tables without holes."""

from __future__ import annotations

import pytest

from collector.sources.engine.enabling import how_to_enable, needed_signals
from collector.sources.engine.engines import ENGINES, Engine
from collector.sources.engine.missing import explained, why_missing
from collector.sources.engine.versions import release, span_ends
from detectors.records import Absence, Identity
from detectors.signals import SIGNALS
from tests.collector.sources.reading_pages import Scraped, body

DERIVED = {
    *("generation_tokens_per_second", "requests_lost_total"),
    *("ttft_estimate_seconds", "lora_adapters_active"),
}
TOLD_BY_ENGINES = frozenset().union(*(engine.signals for engine in ENGINES)) | DERIVED


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_what_an_engine_has_no_row_for_has_a_reason(engine: Engine) -> None:
    missing = TOLD_BY_ENGINES - engine.signals
    if "generation_tokens_total" in engine.signals:
        missing -= {"generation_tokens_per_second"}
    if engine.counts_losses:
        missing -= {"requests_lost_total"}
    if engine.first_token:
        missing -= {"ttft_estimate_seconds"}
    if engine.adapters:
        missing -= {"lora_adapters_active"}

    unexplained = [it for it in missing if not why_missing(engine.name, "", it)]

    assert unexplained in ([], ["generation_tokens_per_second"])
    assert not unexplained or why_missing(engine.name, "", "generation_tokens_total")


@pytest.mark.parametrize(
    ("version", "signal", "word"),
    [
        ("0.9.2-0.11.2", "requests_rejected_total", "from 0.32 on"),
        ("0.31.0", "requests_rejected_total", "from 0.32 on"),
        (">=0.30.0", "requests_rejected_total", ""),
        ("0.32.0", "requests_rejected_total", ""),
        ("", "requests_rejected_total", ""),
        ("<=0.6.6", "preemptions_total", ""),
        ("<=0.4.0", "preemptions_total", "from 0.4.3 on"),
        ("0.6.3.post1", "queue_p99_seconds", "from 0.6.4 on"),
        ("0.6.4", "queue_p99_seconds", ""),
        ("0.13.0", "requests_failed_total", "from 0.14 on"),
        ("0.14.0", "requests_failed_total", ""),
        ("0.11.0", "corrupted_requests_total", "from 0.11.1 on"),
        ("0.11.1", "corrupted_requests_total", ""),
        ("0.33.0", "batch_tokens", "only TGI"),
    ],
)
def test_a_version_of_vllm_lacks_what_came_later(version: str, signal: str, word: str) -> None:
    text = why_missing("vllm", version, signal)

    assert word in text
    assert bool(text) == bool(word)


def test_the_reason_of_the_version_takes_the_place_of_an_absent_family_alone() -> None:
    old = Identity(engine="vllm", version="0.9.2")
    absent, wrong = Absence.NO_FAMILY, Absence.UNUSABLE

    assert explained(absent, old, "requests_rejected_total") is Absence.NOT_IN_VERSION
    assert explained(wrong, old, "requests_rejected_total") is Absence.UNUSABLE
    assert explained(absent, old, "requests_running") is Absence.NO_FAMILY
    assert explained(absent, Identity(), "requests_rejected_total") is Absence.NO_FAMILY


def test_a_recorded_page_of_an_old_engine_says_what_its_version_lacks() -> None:
    absent = Scraped().read(body("vllm-0.9.2.post2-load.txt")).absent

    assert absent["requests_rejected_total"] is Absence.NOT_IN_VERSION
    assert absent["requests_failed_total"] is Absence.NO_SAMPLE


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_what_is_needed_of_an_engine_is_what_it_can_tell(engine: Engine) -> None:
    needed = needed_signals(engine.name)

    assert "up" in needed
    assert needed - {"up"} <= engine.signals
    assert needed <= needed_signals("auto")
    assert not [it for it in needed if why_missing(engine.name, "", it)]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_every_signal_of_an_engine_can_be_switched_on_somehow(engine: Engine) -> None:
    for signal in engine.signals:
        assert len(how_to_enable(engine.name, signal)) > 20
    assert how_to_enable("unheard-of", "requests_running") == ""


def test_the_advice_names_the_flag_or_the_key() -> None:
    assert "--enable-metrics" in how_to_enable("sglang", "requests_running")
    assert "VLLM_COMPUTE_NANS_IN_LOGITS=1" in how_to_enable("vllm", "corrupted_requests_total")
    assert "batch_token_budget" in how_to_enable("tgi", "kv_cache_usage_ratio")
    assert "request_slots" in how_to_enable("llamacpp", "request_slots")
    assert "kv_cache_capacity_tokens" in how_to_enable("dynamo", "kv_cache_capacity_tokens")
    assert how_to_enable("triton", "ttft_p99_seconds") == how_to_enable("triton", "ttft_seconds")


def test_signals_of_the_tables_are_canonical() -> None:
    assert SIGNALS.keys() >= TOLD_BY_ENGINES


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("0.9.2-0.11.2", ("0.9.2", "0.11.2")),
        (">=0.32.0", ("0.32.0", "")),
        ("<=0.6.6", ("", "0.6.6")),
        ("0.8.5.post2", ("0.8.5", "0.8.5")),
        ("0.10.1rc2.dev1-cu128", ("0.10.1", "0.10.1")),
        ("v3.3.6-sha-abc", ("3.3.6", "3.3.6")),
        ("nightly", ("", "")),
        ("", ("", "")),
    ],
)
def test_what_an_engine_calls_its_version_is_a_span(text: str, ends: tuple[str, str]) -> None:
    assert span_ends(text) == ends


def test_releases_compare_by_number() -> None:
    assert release("0.9.2") < release("0.10.0") < release("b7010")
    assert release("nightly") == ()
