"""Signals that follow from others of the same page and from the scrape before."""

from __future__ import annotations

from collector.sources.engine.measure import Look
from detectors.records import Absence


def derive(look: Look, *, losses: bool) -> None:
    """Add the signals that follow from others; with `losses` the estimate of lost requests."""
    out, ledger = look.out, look.ledger
    tokens = out.values.get("generation_tokens_total")
    if tokens is not None:
        rate = ledger.rate("generation_tokens_total", tokens, look.monotonic_seconds)
        if "generation_tokens_per_second" not in out.values and rate is not None:
            out.values["generation_tokens_per_second"] = rate
            out.aliases["generation_tokens_per_second"] = "rate of generation_tokens_total"
            out.absent.pop("generation_tokens_per_second", None)
        elif "generation_tokens_per_second" not in out.values:
            out.absent["generation_tokens_per_second"] = Absence.NO_SAMPLE  # needs two scrapes
    if losses:
        _lose(look)


def _lose(look: Look) -> None:
    """Estimate the requests that had a first token and neither run nor ended."""
    out, ledger = look.out, look.ledger
    needed = ("ttft_seconds", "e2e_seconds", "requests_running")
    missing = [it for it in needed if it not in out.values and it not in out.histograms]
    if missing:
        out.absent["requests_lost_total"] = out.absent.get(missing[0], Absence.NO_FAMILY)
        return
    lost = ledger.observed("ttft_seconds") - ledger.observed("e2e_seconds")
    lost -= out.values["requests_running"] + _preempted(look)
    out.values["requests_lost_total"] = ledger.highest("requests_lost_total", lost)
    out.aliases["requests_lost_total"] = "ttft_seconds - e2e_seconds - requests_running"


def _preempted(look: Look) -> float:
    """Return how many counts of a first token do not belong to finished or running requests.

    V1 puts preempted requests back into the queue, where they wait with their first token behind
    them. V0 (no `engine` label) observes the first token again after each preemption.
    """
    preemptions = look.out.values.get("preemptions_total", 0.0)
    family = look.out.aliases["requests_running"]
    if any(series.engine for series, _ in look.samples.get(family, ())):
        return min(preemptions, look.out.values.get("requests_waiting", 0.0))
    return preemptions
