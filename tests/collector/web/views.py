"""Views of the status page for tests: an incident as an operator would meet it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from collector.web.view import (
    BaselineView,
    BreakerView,
    HealthView,
    OverrideView,
    PartView,
    SignalView,
    StatusView,
    TargetView,
    TierView,
    TransitionView,
    VerdictView,
)

NOW = datetime(2026, 11, 29, 15, 26, 40, tzinfo=UTC)

FULL = TargetView(
    id="c",
    url="http://127.0.0.1:9743",
    engine="vllm 0.32.0",
    up=True,
    age_seconds=0.7,
    signals=(
        SignalView("kv_cache_usage_ratio", 0.967741, "ratio", 0.7),
        SignalView("requests_waiting", 18.0, "requests", 0.7),
        SignalView("generation_tokens_total", 12345.0, "tokens", 0.7),
        SignalView("memory_working_set_bytes", 2.0**31, "bytes", 0.7),
        SignalView("spec_decode_acceptance_ratio", None, "ratio", None, "family absent"),
    ),
)
DOWN = TargetView(
    id="b",
    url="http://127.0.0.1:9742",
    engine="",
    up=False,
    age_seconds=95.0,
    problem="connection refused",
    signals=(SignalView("requests_waiting", None, "requests", 95.0, "scrape failed"),),
)
NEW = TargetView(id="a", url="http://127.0.0.1:9741", engine="", up=None, age_seconds=None)

CHAT = TierView(
    name="chat",
    mode="enforce",
    targets=(NEW, DOWN, FULL),
    verdicts=(
        VerdictView("target:c", "scrape_seconds", "limit", "ok", "0.02, trip at 2", 0.7),
        VerdictView(
            "segment:batch",
            "prompt_digit_ratio",
            "input_ks",
            "warning",
            "KS 0.61 over the threshold 0.2 on 240 requests",
            1.2,
            baseline="bl_0123456789abcdef",
            cause="input_drift",
        ),
        VerdictView(
            "segment:search",
            "prompt_digit_ratio",
            "input_ks",
            "unknown",
            "collecting, 320 of 500 requests",
            1.2,
            cause="baseline_missing",
        ),
        VerdictView(
            "target:c",
            "kv_cache_usage_ratio",
            "kv_limit",
            "critical",
            "kv_cache_usage_ratio 0.968, trip at 0.95, 3 of the last 5 scrapes",
            0.7,
            cause="kv_cache_saturated",
        ),
    ),
    breakers=(
        BreakerView("", "closed", 0.49, 0.49, "kv_cache_saturated", "guard keeps b in"),
        BreakerView(
            "c",
            "open",
            0.0,
            0.0,
            "kv_cache_saturated",
            "kv_cache_usage_ratio 0.968, trip at 0.95",
            open_until=NOW + timedelta(seconds=9),
            lease_expires_at=NOW + timedelta(seconds=15),
        ),
        BreakerView(
            "a",
            "forced_closed",
            0.05,
            1.0,
            override=OverrideView(
                "forced_closed", "the operator", "trying it by hand", NOW + timedelta(hours=1)
            ),
        ),
        BreakerView("b", "closed", 1.0, 1.0),
    ),
    baselines=(
        BaselineView("tier", "active", 500, 500, "bl_fedcba9876543210"),
        BaselineView("segment:batch", "candidate", 511, 500, "bl_0123456789abcdef"),
        BaselineView("segment:search", "collecting", 320, 500),
    ),
)

INCIDENT = StatusView(
    at=NOW,
    version="0.1.0",
    tiers=(CHAT,),
    transitions=(
        TransitionView(NOW, "chat", "c", "open", "KV cache full", "auto"),
        TransitionView(NOW, "chat", "b", "would_open", "KV cache full", "auto", dry_run=True),
    ),
    health=HealthView(
        parts=(
            PartView("action:alertmanager", 12, "ConnectError: connection refused"),
            PartView("detector:input_ks", 1),
        ),
        config_loaded_at=NOW - timedelta(minutes=3),
    ),
)
