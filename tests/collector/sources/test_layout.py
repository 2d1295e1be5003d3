"""Pages of a form that is known read like pages of none, whatever is done to them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.sources.engine.engines import ENGINES, engines_named, wanted_families
from collector.sources.page.keys import MAX_LAYOUTS, SeriesCache
from collector.sources.page.page import Page, parse
from tests.collector.sources.reading_pages import FAMILIES, NAMES, body, scrapes

REPEATED = [
    name
    for name in NAMES
    if not parse(body(name), FAMILIES, SeriesCache()).skipped
    and parse(body(name), FAMILIES, SeriesCache()).samples
]
PIECES = (
    *(b"\n", b" ", b"_", b"1", b"NaN", b"1_0", b"-", b"#", b"{", b"}", b'"', b"\r", b"\t", b"x"),
    *(b"\nvllm:num_requests_running 5\n", b"\n# TYPE vllm:num_requests_running counter\n"),
    *(b"\n# EOF\n", b" 5 1700000000\n", b'\ntgi_queue_size{a="b"} 2\n'),
)


def shown(page: Page) -> str:
    """Return everything a page holds in a form that compares, NaN included."""
    samples = sorted((family, list(rows)) for family, rows in page.samples.items() if rows)
    rest = (sorted(page.types.items()), sorted(page.broken), sorted(page.skipped.items()))
    flags = (sorted(page.engines), page.cut, page.openmetrics, page.readable)
    return repr((samples, rest, flags))


def knowing(text: bytes) -> SeriesCache:
    """Return a cache that has learned the form of a page."""
    cache = SeriesCache()
    for _ in range(2):
        parse(text, FAMILIES, cache)
    return cache


@pytest.mark.parametrize("name", REPEATED)
def test_a_page_that_repeats_is_known_by_its_form_and_reads_the_same(name: str) -> None:
    text = body(name)
    cache = knowing(text)

    again = parse(text, FAMILIES, cache)

    assert cache.layouts or text.count(b"\n") < 20
    assert shown(again) == shown(parse(text, FAMILIES, SeriesCache()))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(set(REPEATED) - {"tgi-1.4-loaded-then-idle-no-help.txt"})),
    st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 60), st.sampled_from(PIECES)),
        min_size=1,
        max_size=3,
    ),
)
def test_a_page_that_differs_anywhere_reads_as_if_nothing_were_known(
    name: str, changes: list[tuple[float, int, bytes]]
) -> None:
    text = body(name)
    cache = knowing(text)
    changed = text
    for place, length, piece in changes:
        at = int(place * len(changed))
        changed = changed[:at] + piece + changed[at + length :]

    found = parse(changed, FAMILIES, cache)

    assert shown(found) == shown(parse(changed, FAMILIES, SeriesCache()))


@pytest.mark.parametrize("run", ["0.32.0-kvfull", "0.8.5.post2-load"])
def test_a_recorded_run_reads_the_same_with_one_cache_as_with_a_new_one_each(run: str) -> None:
    cache = SeriesCache()

    for page in scrapes(run):
        text = page.encode()

        assert shown(parse(text, FAMILIES, cache)) == shown(parse(text, FAMILIES, SeriesCache()))
    assert cache.layouts


def test_a_new_series_among_many_is_read_at_once() -> None:
    text = body("vllm-0.32.0-load.txt")
    more = text.replace(
        b"# TYPE vllm:num_requests_waiting gauge\n",
        b"# TYPE vllm:num_requests_waiting gauge\n"
        b'vllm:num_requests_waiting{engine="9",model_name="tiny"} 7.0\n',
    )

    found = parse(more, FAMILIES, knowing(text))

    assert [value for _, value in found.samples["vllm_num_requests_waiting"]] == [7.0, 45.0]


def test_pages_that_never_repeat_are_tried_ever_less() -> None:
    cache = SeriesCache()
    lines = [b"vllm:num_requests_running 1", b"vllm:num_requests_waiting 2", b"# a", b"# b"]

    for turn in range(400):
        order = lines if turn % 2 else lines[::-1]
        parse(b"\n".join(order) + b"\n", FAMILIES, cache)

    assert cache.wait == 255
    assert len(cache.layouts) <= 1


def test_forms_are_bounded_and_kept_apart_by_their_lines() -> None:
    cache = SeriesCache()
    for size in range(3 * MAX_LAYOUTS):
        text = b"# a\n" * size + b"vllm:num_requests_running 1\nvllm:num_requests_waiting 2\n"
        for _ in range(3):
            parse(text, FAMILIES, cache)

    assert len(cache.layouts) == MAX_LAYOUTS


def test_a_form_learned_for_one_engine_is_not_used_for_others() -> None:
    text = b"# a\nvllm:num_requests_running 1\ntgi_queue_size 2\n# b\n"
    cache = SeriesCache()
    for _ in range(3):
        parse(text, wanted_families(engines_named("tgi")), cache)

    found = parse(text, wanted_families(ENGINES), cache)

    assert set(found.samples) == {"vllm_num_requests_running", "tgi_queue_size"}
