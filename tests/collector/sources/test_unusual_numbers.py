"""Pages with absurd numbers and torn lines, scrape after scrape: what is read stays in reason."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.sources.engine.oddities import oddities
from collector.sources.engine.quality import Quality
from collector.sources.engine.quantiles import Windows
from collector.sources.engine.translate import Translation
from collector.sources.page.page import Skip
from detectors.records import Absence
from tests.collector.sources.reading_pages import NAMES, Scraped, body, page_of

PAGES = {name: body(name) for name in NAMES if body(name)}
WORDS = (
    *("NaN", "+Inf", "-Inf", "-1", "-0", "0", "1", "1_0", "0x10", "x"),
    *("1e308", "1e400", "-1e308", "9e18", "1e17", "9.1e15", "5e-324"),
)
NUMBERS = st.sampled_from([word.encode() for word in WORDS])
ABSURD = 1e20  # no sum of counts below 2**53 comes near in a few scrapes
MUTATIONS = st.tuples(
    st.sampled_from(["number", "number", "number", "drop", "double", "tear", "engine"]),
    st.integers(0, 1 << 30),
    NUMBERS,
)


def mutated(page: bytes, kind: str, place: int, number: bytes) -> bytes:
    """Change one line; every family is as likely, however many lines it has."""
    lines = page.split(b"\n")
    rows: dict[bytes, list[int]] = {}
    for row, line in enumerate(lines):
        if b" " in line and line[:1] != b"#":
            rows.setdefault(line.partition(b"{")[0].partition(b" ")[0], []).append(row)
    if not rows:
        return page
    of_family = sorted(rows.items())[place % len(rows)][1]
    row = of_family[-1 - place // len(rows) % len(of_family)]
    line = lines[row]
    lines[row] = {
        "number": line.rpartition(b" ")[0] + b" " + number,
        "drop": b"",
        "double": line + b"\n" + line,
        "tear": line[: place % len(line)],
        "engine": line.replace(b'"0"', b'"1"'),
    }[kind]
    return b"\n".join(lines)


def problems(found: Translation, highest: dict[str, float]) -> list[str]:
    """Return what is wrong with a scrape; `highest` are the counters so far, and is kept up."""
    wrong = [name for name, value in found.values.items() if not abs(value) < ABSURD]
    for name, value in found.values.items():
        if name.endswith("_total"):
            if value < highest.get(name, 0.0):
                wrong.append(f"{name} fell")
            highest[name] = value
    for name, histogram in found.histograms.items():
        numbers = (*histogram.bounds, *histogram.counts, histogram.total, histogram.sum)
        if not all(abs(number) < ABSURD for number in numbers):
            wrong.append(name)
    return wrong


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(sorted(PAGES)),
    st.lists(st.lists(MUTATIONS, max_size=12), min_size=1, max_size=4),
)
def test_no_page_raises_or_leaves_a_number_that_is_none_or_falls(
    name: str, scrapes: list[list[tuple[str, int, bytes]]]
) -> None:
    target, quality, windows = Scraped(), Quality(), Windows()
    highest: dict[str, float] = {}
    for turn, mutations in enumerate(scrapes):
        text = PAGES[name]
        for kind, place, number in mutations:
            text = mutated(text, kind, place, number)

        found = target.read(text)

        assert problems(found, highest) == []
        page = page_of(text)
        quality.check(page, found, target.ledger, 5.0 * turn)
        found.findings += oddities(page, found)
        windows.take(found, 5.0 * turn)
        assert all(it.lower <= it.value <= it.upper for it in found.quantiles.values())
        assert all(it.value < ABSURD for it in found.quantiles.values())
        assert not found.absent.keys() & (found.values.keys() | found.histograms.keys())
        assert len(found.findings) == len({(it.code, it.signal) for it in found.findings})


@pytest.mark.parametrize("below", ["5e-324", "1e-300"])
def test_a_quotient_by_next_to_nothing_is_unusable_and_counted(below: str) -> None:
    found = Scraped().read(
        "vllm:spec_decode_num_accepted_tokens_total 4\n"
        f"vllm:spec_decode_num_draft_tokens_total {below}\n"
    )

    assert found.absent["spec_decode_acceptance_ratio"] is Absence.UNUSABLE
    assert found.skipped[Skip.UNUSABLE] == 1
