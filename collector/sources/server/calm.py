"""Whether an engine has room for questions of ours: pure, over the newest scrape of its page."""

from __future__ import annotations

from typing import Final

from detectors.records import Reading

MOST_KV_USAGE_RATIO: Final = 0.8


def busy(reading: Reading | None) -> str:
    """Say in words why an engine is to be left alone, empty if it may be asked.

    A page that was not seen, or that cannot be read, tells nothing of the load: not knowing is no
    permission. A page that is read and has neither signal (they are not all engines') is one.
    """
    if reading is None:
        return "no scrape of its page has been seen yet"
    if not reading.up:
        return "its page cannot be read, so its load is not known"
    waiting = reading.values.get("requests_waiting", 0.0)
    if waiting > 0:
        return f"{waiting:g} requests are waiting"
    usage = reading.values.get("kv_cache_usage_ratio", 0.0)
    if usage > MOST_KV_USAGE_RATIO:
        return f"the KV cache is used to {usage:.2f}, over {MOST_KV_USAGE_RATIO:g}"
    return ""


def memory_margin_ratio(reading: Reading | None) -> float | None:
    """Return the free share of memory, None where nothing tells it.

    Of GPU memory where the reading has it (of the fullest device), else of the KV cache.
    """
    if reading is None or not reading.up:
        return None
    used = reading.parts.get("gpu_memory_used_bytes", {})
    total = reading.parts.get("gpu_memory_total_bytes", {})
    margins = [1 - used[it] / total[it] for it in used if total.get(it, 0.0) > 0]
    usage = reading.values.get("kv_cache_usage_ratio")
    if not margins and usage is not None:
        margins = [1 - usage]
    return max(min(margins), 0.0) if margins else None
