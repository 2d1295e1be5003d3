"""The status page: what it must say, and what must never get through."""

from __future__ import annotations

from dataclasses import replace

import pytest

from collector.web.page import CONTENT_SECURITY_POLICY, STYLE_PATH, render, style_sheet
from collector.web.view import (
    BaselineView,
    BreakerView,
    HealthView,
    SignalView,
    StatusView,
    TargetView,
    TierView,
    TransitionView,
    VerdictView,
)
from tests.collector.web.reader import read, words
from tests.collector.web.views import CHAT, INCIDENT, NOW

HOSTILE = "<script>alert(1)</script>\"'&{{ 7 * 7 }}"


def hostile_view() -> StatusView:
    """A view in which every text that comes from outside is hostile."""
    tier = TierView(
        name=HOSTILE,
        mode=HOSTILE,
        role=HOSTILE,
        targets=(
            TargetView(
                HOSTILE, HOSTILE, HOSTILE, up=False, age_seconds=1.0, problem=HOSTILE,
                signals=(SignalView(HOSTILE, None, HOSTILE, None, HOSTILE),),
            ),
            TargetView(
                HOSTILE, HOSTILE, HOSTILE, up=True, age_seconds=1.0,
                signals=(SignalView(HOSTILE, 1.0, HOSTILE, 1.0),),
            ),
        ),
        verdicts=tuple(
            VerdictView(HOSTILE, HOSTILE, HOSTILE, level, HOSTILE, 1.0, HOSTILE, HOSTILE)
            for level in ("ok", "warning", HOSTILE)
        ),
        breakers=(BreakerView(HOSTILE, HOSTILE, 0.5, 0.5, HOSTILE, HOSTILE),),
        baselines=(),
    )  # fmt: skip
    return StatusView(
        at=NOW,
        version=HOSTILE,
        tiers=(tier,),
        transitions=(TransitionView(NOW, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        health=HealthView(journal_problem=HOSTILE, config_problem=HOSTILE),
    )


@pytest.mark.parametrize("view", [INCIDENT, StatusView(at=NOW, version="0.1.0"), hostile_view()])
def test_the_page_is_html_whose_tags_nest(view: StatusView) -> None:
    reader = read(render(view))

    assert reader.misplaced == []
    assert reader.open == []


def test_hostile_names_and_reasons_stay_text() -> None:
    reader = read(render(hostile_view()))

    tags = {tag for tag, _ in reader.tags}
    attributes = {name for _, found in reader.tags for name in found}
    assert "script" not in tags
    assert not any(name.startswith("on") for name in attributes)
    assert "<script>alert(1)</script>" in "".join(reader.text)
    assert "{{ 7 * 7 }}" in "".join(reader.text)


def test_nothing_on_the_page_needs_script_or_inline_style() -> None:
    reader = read(render(INCIDENT))

    assert not {"script", "style", "iframe", "img"} & {tag for tag, _ in reader.tags}
    assert not any("style" in found for _, found in reader.tags)
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_the_page_loads_itself_again_and_says_so() -> None:
    reader = read(render(INCIDENT))

    refresh = [found for tag, found in reader.tags if found.get("http-equiv") == "refresh"]
    assert [found["content"] for found in refresh] == ["5"]
    assert "loads again every 5 s" in words(render(INCIDENT))
    assert "http-equiv" not in render(replace(INCIDENT, refresh_seconds=0))


def test_every_table_has_a_caption_and_headings_with_a_scope() -> None:
    reader = read(render(INCIDENT))

    tags = [tag for tag, _ in reader.tags]
    headings = [found for tag, found in reader.tags if tag == "th"]
    assert tags.count("table") == tags.count("caption") >= 6
    assert all(found.get("scope") in {"row", "col"} for found in headings)


@pytest.mark.parametrize("level", ["ok", "warning", "critical", "unknown"])
def test_a_level_is_told_in_a_word_and_a_sign_and_never_by_colour_alone(level: str) -> None:
    verdict = VerdictView("tier", "prompt_chars", "input_ks", level, "because of this", 1.0)

    page = render(StatusView(at=NOW, version="1", tiers=(replace(CHAT, verdicts=(verdict,)),)))

    signs = {"ok": "✔", "warning": "▲", "critical": "✖", "unknown": "?"}
    assert f"{signs[level]} {level}" in words(page)
    assert "because of this" in words(page)


def test_not_knowing_is_shown_with_its_reason_and_is_not_counted_as_ok() -> None:
    unknown = VerdictView("tier", "prompt_chars", "ks", "unknown", "collecting, 3 of 500", 1.0)
    tier = TierView(name="chat", mode="observe", verdicts=(unknown,))

    text = words(render(StatusView(at=NOW, version="1", tiers=(tier,))))

    assert "Tier chat ? unknown" in text
    assert "collecting, 3 of 500" in text
    assert "judged as ok" not in text


def test_a_healthy_stock_engine_is_ok_although_it_lacks_an_optional_signal() -> None:
    verdicts = (
        VerdictView("target:a", "kv_cache_usage_ratio", "kv_limit", "ok", "0.1", 1.0),
        VerdictView("target:a", "corrupted_requests_total", "corrupted", "unknown", "off", 1.0),
    )
    tier = TierView(name="chat", mode="observe", verdicts=verdicts)

    text = words(render(StatusView(at=NOW, version="1", tiers=(tier,))))

    assert "Tier chat ✔ ok" in text
    assert "1 not known, with the reason" in text


def test_two_variants_of_a_scope_are_told_apart_and_a_lone_one_is_not_named() -> None:
    tier = TierView(
        name="chat",
        mode="observe",
        verdicts=(
            VerdictView("tier", "prompt_chars", "ks", "warning", "", 1.0, variant="0a1b"),
            VerdictView("segment:free", "prompt_chars", "ks", "warning", "", 1.0, variant="0a1b"),
        ),
        baselines=(
            BaselineView("tier", "active", 500, 500, variant="0a1b"),
            BaselineView("tier", "collecting", 3, 500, variant="2c3d"),
        ),
    )

    text = words(render(StatusView(at=NOW, version="1", tiers=(tier,))))

    assert "▲ warning tier, variant 0a1b prompt_chars" in text
    assert "▲ warning segment:free prompt_chars" in text
    assert "tier, variant 2c3d collecting 3" in text


def test_on_a_phone_every_cell_carries_the_name_of_its_column() -> None:
    page = render(INCIDENT)

    cards = page.count('<table class="cards">')
    cells = [found for tag, found in read(page).tags if tag == "td"]
    named = [found for found in cells if "data-label" in found]
    assert cards == page.count("<table") - page.count('<table class="signals">') > 4
    assert len(named) == len(cells) - 2 * len(CHAT.targets[2].signals[:4])
    assert "@media (max-width: 40rem)" in style_sheet()


def test_a_tier_that_nothing_has_judged_is_unknown() -> None:
    text = words(render(StatusView(at=NOW, version="1", tiers=(TierView("chat", "observe"),))))

    assert "Tier chat ? unknown" in text
    assert "Nothing has been judged yet." in text
    assert "sends nothing" in text


def test_signals_show_value_unit_and_age_or_why_there_is_none() -> None:
    text = words(render(INCIDENT))

    assert "kv_cache_usage_ratio0.9680.7 s" in text
    assert "requests_waiting180.7 s" in text
    assert "memory_working_set_bytes2.00 GiB" in text
    assert "spec_decode_acceptance_ratio (family absent)" in text
    assert "Target b ✖ scrape failed: connection refused" in text
    assert "last scrape 95 s ago" in text
    assert "Target a ? unknown not scraped yet" in text


def test_breakers_show_state_ratio_cause_override_and_lease() -> None:
    text = words(render(INCIDENT))

    assert "the whole tier sheds 0.49 0.49 kv_cache_saturated: guard keeps b in" in text
    assert "target c open 0.00 0.00" in text
    assert "15:26:49 15:26:55" in text
    assert "forced closed by the operator: trying it by hand; ends 2026-11-29 16:26:40 UTC" in text
    assert "by itself it would be at 0.05" in text


def test_the_worst_verdicts_come_first() -> None:
    text = words(render(INCIDENT))

    assert text.index("✖ critical target:c") < text.index("▲ warning segment:batch")
    assert "bl_0123456789abcdef" in text


def test_baselines_show_how_far_collection_is() -> None:
    text = words(render(INCIDENT))

    assert "segment:search collecting 320 320 of 500" in text
    assert "tier active 500 complete" in text


def test_transitions_that_were_only_recorded_say_so() -> None:
    assert "chat/b would open (recorded only) KV cache full auto" in words(render(INCIDENT))


def test_the_health_of_the_service_names_what_is_broken() -> None:
    sick = replace(
        INCIDENT,
        health=replace(
            INCIDENT.health, journal_problem="disk is full", config_problem="tiers: missing"
        ),
    )

    text = words(render(sick))

    assert "The service itself ✖ critical" in text
    assert "action:alertmanager is failing (12 failures so far)" in text
    assert "The journal cannot be written: disk is full" in text
    assert "the one before it is in force: tiers: missing" in text
    assert "Failed before and work again: detector:input_ks (1)." in text


def test_a_well_service_says_since_when_its_configuration_is_in_force() -> None:
    well = replace(INCIDENT, health=HealthView(config_loaded_at=NOW))

    text = words(render(well))

    assert "The service itself ✔ ok" in text
    assert "configuration of 2026-11-29 15:26:40 UTC in force" in text


def test_the_style_sheet_is_in_the_package_and_knows_the_dark() -> None:
    assert STYLE_PATH in render(INCIDENT)
    assert "prefers-color-scheme: dark" in style_sheet()
