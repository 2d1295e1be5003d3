"""What one page shows of itself that a person should know: findings without any memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from collector.sources.engine.engines import ENGINES, PROCESS_START
from collector.sources.engine.translation import Translation
from collector.sources.page.page import Page, Skip
from detectors.remarks import Finding

_FRONTS: Final = {engine.prefix: engine.name for engine in ENGINES if engine.front}
_WITH_CACHE: Final = frozenset(
    engine.name for engine in ENGINES if "kv_cache_capacity_tokens" in engine.signals
)
_FEW: Final = 20.0  # counts this small differ by what is under way


def oddities(page: Page, found: Translation) -> Iterator[Finding]:
    """Yield the findings about a page that is an engine's; at most one of a code.

    Args:
        page: As parsed.
        found: What it says in canonical signals.
    """
    if not found.identity.engine:
        yield _no_engine()
        return
    told = (*(rule(page, found) for rule in _OF_PAGE), *(rule(found) for rule in _OF_VALUES))
    yield from (finding for finding in told if finding is not None)


def _no_engine() -> Finding:
    text = (
        "the page answers and has no family of an engine: statistics are off "
        "(vLLM --disable-log-stats, SGLang without --enable-metrics), a multiprocess directory is "
        "broken (PROMETHEUS_MULTIPROC_DIR; vLLM 0.5.4 lost them, --disable-frontend-"
        "multiprocessing brings them back), or TGI has not had its first request"
    )
    return Finding("no_engine_data", "up", text)


def _copies(found: Translation) -> Finding | None:
    copies = found.skipped.get(Skip.REEXPORT, 0)
    if not copies:
        return None
    text = (
        f"{copies} series carry `server` or `worker_addr`: a router's copies of its engines' own; "
        "they are left out, make the engines the targets"
    )
    return Finding("router_reexport", "requests_running", text)


def _passed_through(page: Page, found: Translation) -> Finding | None:
    fronts = [name for prefix, name in _FRONTS.items() if prefix in page.engines]
    if not fronts or found.identity.engine in fronts:
        return None
    text = (
        f"{fronts[0]} passes the families of {found.identity.engine} on: have this page or the "
        "engine's own as a target, not both, or the tier counts twice"
    )
    return Finding("passed_through", "requests_running", text)


def _pids(page: Page, found: Translation) -> Finding | None:
    for signal in ("requests_running", "kv_cache_usage_ratio"):
        series = [it for it, _ in page.samples.get(found.aliases.get(signal, ""), ())]
        if any("pid" in it.labels for it in series):
            text = (
                f"{signal} stands once for each process (`pid`), most of them left over; the "
                "largest is taken; vLLM 0.11.1 and later write one"
            )
            return Finding("pid_duplicates", signal, text)
    return None


def _processes(page: Page, found: Translation) -> Finding | None:
    """Tell a multiprocess registry: the Python front end without its `process_*` families."""
    if found.identity.engine != "vllm" or page.openmetrics or page.cut:
        return None
    running = page.samples.get(found.aliases.get("requests_running", ""), ())
    if page.samples.get(PROCESS_START) or not any("engine" in it.labels for it, _ in running):
        return None
    text = (
        "several API servers share one registry: steps (iteration_tokens_total) are counted once a "
        "server and are not used, a kept PROMETHEUS_MULTIPROC_DIR carries counts over a restart, "
        "and a restart shows by falling counters only"
    )
    return Finding("several_processes", "requests_running", text)


def _no_capacity(page: Page, found: Translation) -> Finding | None:
    signal = "kv_cache_capacity_tokens"
    if found.identity.engine not in _WITH_CACHE or signal in found.values or page.cut:
        return None
    if "requests_running" not in found.values:
        return None  # nothing has been asked of it yet
    key = "batch_token_budget" if found.identity.engine in {"tgi", "lorax"} else signal
    text = (
        "the page does not say how many tokens the cache holds, so it is unknown, not 0: configure "
        f"{key} of the target (the engine's start-up log has the number)"
    )
    return Finding("kv_capacity_unknown", signal, text)


def _first_tokens(page: Page, found: Translation) -> Finding | None:
    """Compare counts that should differ by what is under way; counts do without buckets."""
    began = _counted(page, "vllm_time_to_first_token_seconds")
    whole = found.values.get("requests_finished_total")
    if whole is None or not began:
        return None
    under_way = (
        "requests_running",
        "requests_waiting",
        "preemptions_total",
    )  # V0 counts these anew
    most = 1.5 * whole + _FEW + sum(found.values.get(it, 0.0) for it in under_way)
    if began <= most:
        return None
    text = (
        f"{began:.0f} first tokens against {whole:.0f} ended requests: this version counts "
        "chunks or sequences (vLLM 0.5), or very many requests are aborted; do not take the count "
        "for one of requests"
    )
    return Finding("ttft_above_requests", "ttft_seconds", text)


def _counted(page: Page, family: str) -> float:
    found = page.samples.get(family, ())
    return sum(value for series, value in found if series.role == "count" and value >= 0.0)


def _successes(found: Translation) -> Finding | None:
    reasons = found.parts.get("requests_finished_total", {})
    first = found.histograms.get("ttft_seconds")
    ended = reasons.get("stop", 0.0) + reasons.get("length", 0.0)
    if first is None or not first.total or ended <= 1.05 * first.total + _FEW:
        return None
    text = (
        f"{ended:.0f} requests succeeded of {first.total:.0f} that had a first token: answers are "
        "counted (n > 1), not requests; a success ratio from these is over 1 and means nothing"
    )
    return Finding("success_above_requests", "requests_finished_total", text)


def _inner_model(page: Page, found: Translation) -> Finding | None:
    if found.identity.engine != "triton":
        return None
    counts = {
        it.labels.get("model", ""): value
        for it, value in page.samples.get("nv_inference_request_success", ())
    }
    still = sorted(model for model, value in counts.items() if not value)
    if not still or max(counts.values()) < _FEW:
        return None
    text = (
        f"model {still[0][:64]!r} counts no request while others do: Triton before 23.12 leaves "
        "inner models at 0; a vLLM backend is switched on for each model (REPORT_CUSTOM_METRICS)"
    )
    return Finding("model_counts_nothing", "requests_finished_total", text)


_OF_PAGE: Final = (
    *(_passed_through, _pids, _processes, _no_capacity, _first_tokens, _inner_model),
)
_OF_VALUES: Final = (_copies, _successes)
