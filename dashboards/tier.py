"""The board of a tier: is it fine, what changed, why, and how old is what we see."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dashboards.causes import RATE, TIER, age, drift, lines, of, saturation
from dashboards.panels import (
    BREAKER_TEXTS,
    GREEN,
    GREY,
    LEVEL_TEXTS,
    RED,
    YELLOW,
    Board,
    Panel,
    Query,
    Row,
    Variable,
)
from exporters.catalog import (
    ADMIT_RATIO,
    BREAKER_STATE,
    TRANSITIONS,
    VERDICT_LEVEL,
    Metric,
    signal_metric,
)


@dataclass(frozen=True, slots=True)
class BoardSettings:
    """Where colours change; the defaults are those of the detectors."""

    kv_cache_clear_ratio: float = 0.80
    kv_cache_trip_ratio: float = 0.95


def tier_board(settings: BoardSettings) -> Board:
    """Return the board."""
    up = signal_metric("up")
    return Board(
        uid="fusewire-tier",
        title="Fusewire: tier",
        description="One model service: its targets, verdicts and breakers.",
        variables=(
            Variable("tier", "Tier", up, "tier"),
            Variable("target", "Target", up, "target", TIER),
        ),
        rows=(
            Row("Is it fine?", _fine(settings)),
            Row("What changed?", _changed()),
            Row("Saturation and progress", saturation()),
            Row("Drift", drift()),
            Row("How old is the data?", age()),
        ),
    )


def _stat(title: str, metric: Metric, expr: str, description: str) -> Panel:
    """Return a number that is green at 0 and red from 1 on."""
    return Panel(
        kind="stat",
        title=title,
        description=description,
        metric=metric,
        unit="none",
        queries=(Query(expr),),
        width=4,
        base=GREEN,
        steps=((1.0, RED),),
    )


def _fine(settings: BoardSettings) -> tuple[Panel, ...]:
    kv, up = signal_metric("kv_cache_usage_ratio"), signal_metric("up")
    opened = _stat(
        "Breakers open",
        BREAKER_STATE,
        f"sum({of(BREAKER_STATE)} == bool 2)",
        "Targets ejected and tiers shed. When red: 'fusewire breaker list' names the cause.",
    )
    worst = _stat(
        "Worst verdict",
        VERDICT_LEVEL,
        f"max({of(VERDICT_LEVEL)})",
        "The worst of all verdicts. When red: the timeline below shows which.",
    )
    unknown = _stat(
        "Verdicts unknown",
        VERDICT_LEVEL,
        f"sum({of(VERDICT_LEVEL)} == bool -1)",
        "Streams that cannot be judged. When yellow: see baselines and absent signals below.",
    )
    down = _stat(
        "Targets down",
        up,
        f"sum({of(up)} == bool 0)",
        "Targets whose page does not answer. When red: look at the engine's process.",
    )
    fullest = _stat(
        "Fullest KV cache",
        kv,
        f"max({of(kv)})",
        "KV-cache blocks in use at the fullest target. When red: requests queue or are preempted.",
    )
    admitted = _stat(
        "Least admitted",
        ADMIT_RATIO,
        f"min({of(ADMIT_RATIO)})",
        "The lowest share of requests that a breaker lets through. When red: none pass there.",
    )
    return (
        opened,
        replace(worst, texts=LEVEL_TEXTS, steps=(), base=GREY),
        replace(unknown, steps=((1.0, YELLOW),)),
        down,
        replace(fullest, unit="percentunit", steps=_kv_steps(settings), decimals=1),
        replace(admitted, unit="percentunit", base=RED, steps=((0.01, YELLOW), (0.999, GREEN))),
    )


def _kv_steps(settings: BoardSettings) -> tuple[tuple[float, str], ...]:
    return ((settings.kv_cache_clear_ratio, YELLOW), (settings.kv_cache_trip_ratio, RED))


def _changed() -> tuple[Panel, ...]:
    return (
        Panel(
            kind="timeline",
            title="Breakers",
            description="State of each breaker; one without a target is the tier's own and sheds.",
            metric=BREAKER_STATE,
            unit="none",
            queries=(Query(f"max by (tier, target) ({of(BREAKER_STATE)})", "{{tier}} {{target}}"),),
            width=12,
            texts=BREAKER_TEXTS,
            base=GREY,
        ),
        Panel(
            kind="timeline",
            title="Verdicts",
            description="Worst level of each detector and scope. Grey is unknown, which is not ok.",
            metric=VERDICT_LEVEL,
            unit="none",
            queries=(
                Query(
                    f"max by (tier, segment, target, detector) ({of(VERDICT_LEVEL)})",
                    "{{tier}} {{segment}} {{target}} {{detector}}",
                ),
            ),
            width=12,
            texts=LEVEL_TEXTS,
            base=GREY,
        ),
        replace(
            lines(
                "Requests admitted",
                ADMIT_RATIO,
                "percentunit",
                "Share of requests that each breaker lets through, a person's override included.",
                Query(f"min by (tier, target) ({of(ADMIT_RATIO)})", "{{tier}} {{target}}"),
            ),
            most=1.0,
        ),
        replace(
            lines(
                "Breaker transitions",
                TRANSITIONS,
                "none",
                "What breakers went to. Many in a row are flapping: raise the hold or the ramp.",
                Query(f"sum by (tier, reason) (increase({of(TRANSITIONS)}{RATE}))", "{{reason}}"),
            ),
            kind="bars",
        ),
    )
