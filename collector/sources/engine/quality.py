"""What shows only over several scrapes: values not to be believed, families gone, engines unlike.

Findings hold while they are seen. A value that is not to be believed is taken out of the scrape, so
that no detector judges it: `unknown` rather than wrong.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from collector.sources.engine.translation import Translation
from collector.sources.page.page import Page
from collector.sources.page.series import Ledger
from detectors.records import Absence, Histogram
from detectors.remarks import Finding

MOST_SECONDS: Final = 1e5  # a mean latency beyond a day is the host's uptime, not a request's
SCRAPES: Final = 12  # in a row, a minute at 5 s
STUCK_FROM: Final = 0.5  # of the KV cache, with nothing running
UNLIKE_USAGE: Final = 0.5
UNLIKE_RUNNING: Final = 3.0
LOSSES_SECONDS: Final = 600.0
_MAX_MARKS: Final = 240
_ROUNDING: Final = 1e-3  # sums of doubles differ by less than nothing
_LATENCIES: Final = (
    *("ttft_seconds", "inter_token_seconds", "queue_seconds"),
    *("e2e_seconds", "prefill_seconds", "decode_seconds"),
)
_USAGE: Final = ("kv_cache_usage_ratio", "kv_cache_usage_mean_ratio")


@dataclass(frozen=True, slots=True)
class _Mark:
    """How many requests were lost and finished by a moment."""

    seconds: float
    lost: float
    finished: float


class Quality:
    """The memory of one engine's page for these findings."""

    def __init__(self) -> None:
        self._quarantined: set[str] = set()
        self._histograms: dict[str, Histogram] = {}
        self._usage: float | None = None
        self._tokens: float | None = None
        self._still = 0
        self._missed: dict[str, int] = {}  # signal once fed -> scrapes with work and without it
        self._unlike = 0
        self._marks: deque[_Mark] = deque(maxlen=_MAX_MARKS)

    def check(
        self, page: Page, found: Translation, ledger: Ledger, monotonic_seconds: float
    ) -> None:
        """Add the findings of a scrape to it, and take out what is not to be believed.

        Args:
            page: As parsed.
            found: What it says, changed.
            ledger: The target's memory; a spoilt histogram begins anew after a restart.
            monotonic_seconds: When it was read.
        """
        tokens = found.values.get("generation_tokens_total")
        worked = tokens is not None and self._tokens is not None and tokens > self._tokens
        running = found.values.get("requests_running", 0.0)
        if found.restarted:
            self._release(found, ledger)
        self._quarantine(found)
        self._stuck(found, worked=worked)
        self._vanished(found, worked=worked or (tokens is None and running > 0.0))
        self._losses(found, monotonic_seconds)
        self._engines(page, found)
        self._tokens = tokens

    def _release(self, found: Translation, ledger: Ledger) -> None:
        """Let what was set aside begin anew with the restarted engine's values."""
        for signal in self._quarantined & found.histograms.keys():
            fresh = ledger.anew(signal)
            if fresh is not None:
                found.histograms[signal] = fresh
                self._histograms.pop(signal, None)
        self._quarantined.clear()

    def _quarantine(self, found: Translation) -> None:
        """Take latencies out whose sum holds uptimes or negative times, until a restart."""
        for signal in _LATENCIES:
            histogram = found.histograms.get(signal)
            if histogram is None:
                continue
            before = self._histograms.get(signal)
            self._histograms[signal] = histogram
            if _absurd(histogram, before):
                self._quarantined.add(signal)
            if signal not in self._quarantined:
                continue
            del found.histograms[signal]
            found.absent[signal] = Absence.UNUSABLE
            text = (
                "the sum holds times as long as the host's uptime, or negative ones (vLLM 0.25.1 "
                "and later, requests that end before a milestone): not used until the engine "
                "restarts"
            )
            found.findings.append(Finding("absurd_latency", signal, text))

    def _stuck(self, found: Translation, *, worked: bool) -> None:
        """Take the KV usage out that stays high in an engine without any work."""
        usage = found.values.get(_USAGE[0])
        idle = found.values.get("requests_running") == 0.0 and not worked
        idle = idle and not found.values.get("requests_waiting")
        same = usage is not None and usage == self._usage and usage >= STUCK_FROM
        self._still = self._still + 1 if idle and same else 0
        self._usage = usage
        if self._still < SCRAPES or usage is None:
            return
        for signal in _USAGE:
            if found.values.pop(signal, None) is not None:
                found.absent[signal] = Absence.UNUSABLE
        text = (
            f"{usage:.0%} of the KV cache is said to be in use and nothing runs, waits or is "
            "generated: blocks of aborted requests were not given back, or the gauge is frozen; "
            "not used until it moves, restart the engine if requests then starve"
        )
        found.findings.append(Finding("stuck_kv_usage", _USAGE[0], text))

    def _vanished(self, found: Translation, *, worked: bool) -> None:
        """Tell signals that had a value and have had none for a while, though there was work."""
        for signal in found.aliases:
            if signal in found.values or signal in found.histograms:
                self._missed[signal] = 0
        gone = []
        for signal, missed in self._missed.items():
            if found.absent.get(signal) not in {Absence.NO_FAMILY, Absence.NO_SAMPLE}:
                continue
            self._missed[signal] = missed + worked
            if self._missed[signal] >= SCRAPES:
                gone.append(signal)
        if gone:
            text = (
                f"{', '.join(sorted(gone)[:8])}: on this page before and not any more, though the "
                "engine works; after an upgrade or another front end look for renamed families"
            )
            found.findings.append(Finding("signals_lost", min(gone), text))

    def _losses(self, found: Translation, now: float) -> None:
        """Tell that latencies are of survivors while requests get lost."""
        lost = found.values.get("requests_lost_total")
        if lost is None:
            return
        finished = found.values.get("requests_finished_total", 0.0)
        if not self._marks or now - self._marks[-1].seconds >= LOSSES_SECONDS / _MAX_MARKS:
            self._marks.append(_Mark(now, lost, finished))
        while len(self._marks) > 1 and now - self._marks[0].seconds > LOSSES_SECONDS:
            self._marks.popleft()
        first = self._marks[0]
        more = lost - first.lost
        if more < 3.0 or more < 0.01 * (finished - first.finished):  # noqa: PLR2004  # stray ones
            return
        text = (
            f"about {more:.0f} requests of the last {(now - first.seconds) / 60.0:.0f} minutes had "
            "a first token and no end (clients or gateways gave up): latency histograms hold only "
            "the others, so their quantiles look better than what users met"
        )
        found.findings.append(Finding("survivor_bias", "e2e_seconds", text))

    def _engines(self, page: Page, found: Translation) -> None:
        """Tell engines of one target that carry very unlike loads."""
        usage = _by_engine(page, found.aliases.get(_USAGE[0], ""))
        running = _by_engine(page, found.aliases.get("requests_running", ""))
        unlike = len(usage) > 1 and max(usage) - min(usage) >= UNLIKE_USAGE
        if len(running) > 1:
            rest = (sum(running) - max(running)) / (len(running) - 1)
            enough = max(running) >= 2.0 * len(running)
            unlike = unlike or (enough and max(running) > UNLIKE_RUNNING * max(rest, 1.0))
        self._unlike = self._unlike + 1 if unlike else 0
        if self._unlike < SCRAPES:
            return
        text = (
            f"the target's {max(len(usage), len(running))} engines carry unlike loads: running "
            f"{min(running, default=0.0):.0f} to {max(running, default=0.0):.0f}, KV usage "
            f"{min(usage, default=0.0):.2f} to {max(usage, default=0.0):.2f}; "
            "look at how requests are spread over data-parallel ranks"
        )
        found.findings.append(Finding("engines_unlike", "requests_running", text))


def _absurd(histogram: Histogram, before: Histogram | None) -> bool:
    """Whether a mean, of all or of those since the scrape before, is no latency."""
    means = [(histogram.sum, histogram.total)]
    if before is not None and before.bounds == histogram.bounds:
        means.append((histogram.sum - before.sum, histogram.total - before.total))
    return any(n > 0 and not -_ROUNDING <= total / n <= MOST_SECONDS for total, n in means)


def _by_engine(page: Page, family: str) -> list[float]:
    """Return the largest value of each engine that names itself."""
    found: dict[str, float] = {}
    for series, value in page.samples.get(family, ()):
        if series.engine and not series.copied and value >= 0.0:
            found[series.engine] = max(value, found.get(series.engine, 0.0))
    return list(found.values())
