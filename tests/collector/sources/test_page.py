"""The parser: every rule of the format that engines bend, and equality with prometheus-client."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from collector.sources.page.families import compile_families
from collector.sources.page.keys import SeriesCache
from collector.sources.page.page import MAX_LINE_BYTES, MAX_SAMPLES, Page, Skip, parse
from tests.collector.sources.page_facts import normal, read_line
from tests.collector.sources.reading_pages import FAMILIES, NAMES, body, page_of

Flat = tuple[str, tuple[tuple[str, str], ...], float]
_SUFFIXES = {"value": "", "bucket": "_bucket", "sum": "_sum", "count": "_count"}
RUNNING = "vllm_num_requests_running"
TTFT = "vllm_time_to_first_token_seconds"


def flat(page: Page) -> list[Flat]:
    """Write a page's samples as (name, labels, value), sorted; `le` as a number."""
    rows: list[Flat] = []
    for found in page.samples.values():
        for series, value in found:
            labels = dict(series.labels)
            if series.role == "bucket":
                labels["le"] = repr(series.bound)
            name = series.family + _SUFFIXES[series.role]
            rows.append((name, tuple(sorted(labels.items())), value))
    return sorted(rows, key=repr)


def theirs(text: str) -> list[Flat]:
    """Return what prometheus-client reads of the wanted samples, line by line."""
    rows: list[Flat] = []
    lines = text.split("\n")[:-1]
    stop = lines.index("# EOF") if "# EOF" in lines else len(lines)
    for line in lines[:stop]:
        sample = read_line(line) if not line.startswith("#") and line.strip() else None
        name = normal(sample.name) if sample else ""
        if sample is None or name.encode() not in FAMILIES.roles:
            continue
        family, role = FAMILIES.roles[name.encode()]
        labels = dict(sample.labels)
        if role == "bucket":
            try:
                labels["le"] = repr(float(labels["le"]))
            except (KeyError, ValueError):
                continue  # to prometheus-client a label like any other
            name = family + "_bucket"
        rows.append((name, tuple(sorted(labels.items())), float(sample.value)))
    return sorted(rows, key=repr)


@pytest.mark.parametrize("name", NAMES)
def test_each_recorded_page_reads_as_prometheus_client_reads_it(name: str) -> None:
    recorded = body(name)

    page = page_of(recorded)

    assert flat(page) == theirs(recorded.decode())


@pytest.mark.parametrize(
    "name",
    [
        "vllm-0.32.0-rust-load.txt",
        "vllm-0.32.0-openmetrics-slash-utf8.txt",
        "prometheus-client-0.26-openmetrics-allow-utf-8.txt",
    ],
)
def test_openmetrics_pages_read_as_the_openmetrics_parser_reads_them(name: str) -> None:
    text = body(name).decode()
    peer = {
        (normal(sample.name), json.dumps(sample.labels, sort_keys=True)): sample.value
        for family in read_openmetrics(text)  # type: ignore[no-untyped-call]  # it has no types
        for sample in family.samples
    }

    page = page_of(text)

    assert page.openmetrics
    plain = [row for row in flat(page) if not row[0].endswith("_bucket")]
    assert len(plain) > 3
    for sample_name, labels, value in plain:
        assert peer[sample_name, json.dumps(dict(labels), sort_keys=True)] == value


@pytest.mark.parametrize("name", NAMES)
def test_a_warm_cache_changes_nothing(name: str) -> None:
    cache = SeriesCache()
    cold = parse(body(name), FAMILIES, cache)

    warm = parse(body(name), FAMILIES, cache)

    assert flat(warm) == flat(cold)
    assert (warm.types, warm.skipped, warm.broken) == (cold.types, cold.skipped, cold.broken)


def test_the_type_of_a_counter_may_stand_on_its_base_name() -> None:
    page = page_of("# TYPE vllm:prompt_tokens counter\nvllm:prompt_tokens_total 12\n")

    assert page.types["vllm_prompt_tokens_total"] == "counter"
    assert flat(page) == [("vllm_prompt_tokens_total", (), 12.0)]
    assert page.openmetrics


def test_a_family_with_headers_alone_is_known() -> None:
    page = page_of("# HELP vllm:num_requests_running Running.\n# TYPE vllm:kv_cache_usage_perc x\n")

    assert page.types == {RUNNING: "", "vllm_kv_cache_usage_perc": ""}
    assert page.skipped == {Skip.TYPE: 1}
    assert not page.samples


def test_created_series_are_dropped() -> None:
    page = page_of("vllm:prompt_tokens_created 1.7e9\nvllm:prompt_tokens_total 3\n")

    assert flat(page) == [("vllm_prompt_tokens_total", (), 3.0)]
    assert not page.skipped


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"vllm:num_requests_running 3", 3.0),
        (b"  vllm:num_requests_running\t3\t1395066363000", 3.0),
        (b"vllm:num_requests_running{} 3 1395066363.5", 3.0),
        (b"vllm:num_requests_running 1.1701968896e+010", 1.1701968896e10),
        (b"vllm:num_requests_running +Inf", math.inf),
        (b"vllm:num_requests_running 3\r", 3.0),
        (b"ray_vllm:num_requests_running 3", 3.0),
        (b"ray_vllm_num_requests_running 3", 3.0),
        (b"kserve_vllm:num_requests_running 3", 3.0),
        (b"vllm_num_requests_running 3", 3.0),
        (b'vllm:num_requests_running 3 # {trace_id="a b"} 0.7 1.5', 3.0),
    ],
)
def test_a_value_is_read_in_every_form_it_comes_in(line: bytes, value: float) -> None:
    page = page_of(line + b"\n")

    assert flat(page) == [(RUNNING, (), value)]
    assert not page.skipped


@pytest.mark.parametrize(
    ("inside", "labels"),
    [
        ('a="b", c="d"', {"a": "b", "c": "d"}),
        ('a="b",', {"a": "b"}),
        (' a = "b" ', {"a": "b"}),
        ("a=\"{'method': 'prefill'}\"", {"a": "{'method': 'prefill'}"}),
        ('a="x=\\"y\\", z",b="}"', {"a": 'x="y", z', "b": "}"}),
        ('a="C:\\\\new\\nline\\t"', {"a": "C:\\new\nline\\t"}),
        ('a="3 4",b="/m o/d"', {"a": "3 4", "b": "/m o/d"}),
        ('a="ü 漢"', {"a": "ü 漢"}),
    ],
)
def test_label_values_keep_what_they_hold(inside: str, labels: dict[str, str]) -> None:
    page = page_of(f"vllm:num_requests_running{{{inside}}} 3\n" * 2)

    assert flat(page) == [(RUNNING, tuple(sorted(labels.items())), 3.0)] * 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"vllm:num_requests_running", Skip.VALUE),
        (b"vllm:num_requests_running three", Skip.VALUE),
        (b"vllm:num_requests_running 1_0", Skip.VALUE),
        (b"vllm:num_requests_running | 3", Skip.VALUE),
        (b"vllm:num_requests_running-3", Skip.VALUE),
        (b"vllm:num_requests_running{...} 3", Skip.LABELS),
        (b'vllm:num_requests_running{a="b" 3', Skip.LABELS),
        (b'vllm:num_requests_running{a="b",a="c"} 3', Skip.LABELS),
        (b"vllm:time_to_first_token_seconds_bucket 3", Skip.LABELS),
        (b'vllm:time_to_first_token_seconds_bucket{le="x"} 3', Skip.LABELS),
        (b'vllm:num_requests_running{a="%s"} 3' % (b"x" * MAX_LINE_BYTES), Skip.TOO_LONG),
    ],
)
def test_a_bad_line_loses_one_line_and_is_counted(line: bytes, reason: Skip) -> None:
    page = page_of(b"vllm:num_requests_waiting 1\n" + line + b"\nvllm:kv_cache_usage_perc 0.5\n")

    assert [row[2] for row in flat(page)] == [0.5, 1.0]
    assert page.skipped == {reason: 1}
    assert len(page.broken) == 1


def test_underscores_in_a_number_are_refused_from_a_known_series_too() -> None:
    page = page_of("vllm:num_requests_running 10\nvllm:num_requests_running 1_0\n")

    assert flat(page) == [(RUNNING, (), 10.0)]
    assert page.skipped == {Skip.VALUE: 1}


def test_a_cut_page_keeps_all_but_its_last_line() -> None:
    page = page_of("vllm:num_requests_running 3\nvllm:prompt_tokens_total 12")

    assert flat(page) == [(RUNNING, (), 3.0)]
    assert page.cut
    assert page.skipped == {Skip.CUT: 1}


def test_nothing_counts_behind_the_end_mark() -> None:
    page = page_of("vllm:num_requests_running 3\n# EOF\nvllm:num_requests_running 4\n")

    assert flat(page) == [(RUNNING, (), 3.0)]
    assert page.skipped == {Skip.AFTER_END: 1}


def test_an_end_mark_without_a_newline_ends_a_whole_page() -> None:
    page = page_of("vllm:num_requests_running 3\n# EOF")

    assert page.openmetrics
    assert not page.cut


def test_a_page_inside_a_json_string_is_unwrapped() -> None:
    text = "# HELP vllm:num_requests_running Running.\nvllm:num_requests_running 3\n"

    page = page_of(json.dumps(text))

    assert flat(page) == [(RUNNING, (), 3.0)]
    assert page_of(b'"# HELP not json').readable is False


def test_a_byte_order_mark_blank_lines_and_comments_do_no_harm() -> None:
    page = page_of(b"\xef\xbb\xbfvllm:num_requests_running 3\r\n\r\n# free text\r\n...\r\n")

    assert flat(page) == [(RUNNING, (), 3.0)]
    assert not page.skipped


def test_buckets_may_lack_their_suffix_and_quantiles_are_no_buckets() -> None:
    page = page_of(
        'vllm:time_to_first_token_seconds{le="0.5"} 3\n'
        'vllm:time_to_first_token_seconds{quantile="0.5"} 0.2\n'
    )

    assert flat(page) == [(TTFT + "_bucket", (("le", "0.5"),), 3.0)]
    assert not page.skipped


def test_a_page_with_too_many_samples_is_cut_off_and_says_so() -> None:
    page = page_of("vllm:num_requests_running 1\n" * (MAX_SAMPLES + 20_000))

    assert page.cut
    assert page.skipped == {Skip.TOO_MANY: 1}
    assert len(page.samples[RUNNING]) < MAX_SAMPLES + 20_000


def test_a_full_cache_is_emptied_and_reads_the_same() -> None:
    cache = SeriesCache(limit=10)

    page = parse(body("vllm-0.32.0-load.txt"), FAMILIES, cache)

    assert cache.emptied > 5
    assert len(cache.series) + len(cache.headers) <= 10
    assert flat(page) == flat(page_of(body("vllm-0.32.0-load.txt")))


def test_a_cache_is_bounded_in_bytes_too() -> None:
    cache = SeriesCache(limit_bytes=2_000)

    parse(body("vllm-0.32.0-load.txt"), FAMILIES, cache)

    assert cache.emptied > 5
    assert sum(map(len, cache.series)) <= 2_000


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        (b"", True),
        (b" \n", True),
        (b"up 1\n", True),
        (b"# HELP x y\n", True),
        (b"<html>vllm:</html>\n", False),
        (b'{"detail": "Not Found"}\n', False),
        (b"ok\n", False),
        (b"\x00\xff\xfe" * 100, False),
    ],
)
def test_text_that_is_no_page_at_all_is_told(text: bytes, *, readable: bool) -> None:
    assert page_of(text).readable is readable


def test_engines_are_seen_by_any_of_their_families() -> None:
    page = page_of("vllm:something_new 1\nxtgi_queue_size 1\n")

    assert page.engines == {"vllm"}
    assert not page.samples


def test_a_histogram_is_not_taken_for_a_counter_by_its_suffix() -> None:
    families = compile_families({"vllm_iteration_tokens_total": ("bucket", "sum", "count")})

    page = parse(body("vllm-v1-multiprocess-2-api-servers.txt"), families, SeriesCache())

    assert page.types == {"vllm_iteration_tokens_total": "histogram"}
    assert len(page.samples["vllm_iteration_tokens_total"]) == 12


_MUTABLE = [body(name) for name in ("vllm-0.9.2.post2-load.txt", "vllm-0.32.0-rust-load.txt")]
_WANTED_LINES = [
    line for text in _MUTABLE for line in text.split(b"\n") if FAMILIES.pattern.match(b"\n" + line)
]
_ODD = b'\x00\r\n\t "\\{}=,#_+-.eE0:\xff\xc3'


@st.composite
def mutated(draw: st.DrawFn, source: st.SearchStrategy[bytes]) -> bytes:
    """Flip bytes, cut, delete and repeat pieces of a text."""
    text = bytearray(draw(source))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(text) - 1)))
        length = draw(st.integers(0, 40))
        match draw(st.sampled_from(["flip", "odd", "cut", "delete", "repeat"])):
            case "flip":
                text[place : place + 1] = bytes([draw(st.integers(0, 255))])
            case "odd":
                text[place:place] = bytes([draw(st.sampled_from(list(_ODD)))])
            case "cut":
                del text[place + 1 :]
            case "delete":
                del text[place : place + length]
            case _:
                text[place:place] = text[place : place + length]
    return bytes(text)


@settings(max_examples=40, deadline=None)
@given(mutated(st.sampled_from(_MUTABLE)))
def test_a_damaged_page_never_raises_and_keeps_its_other_lines(text: bytes) -> None:
    page = page_of(text)

    good = {line for line in text.split(b"\n")[:-1] if line in _WANTED_LINES}
    clean = page_of(b"\n".join(good) + b"\n" if good else b"")
    if Skip.AFTER_END not in page.skipped:
        assert set(flat(clean)) <= set(flat(page))


@settings(max_examples=250, deadline=None)
@given(mutated(st.sampled_from(_WANTED_LINES)))
def test_a_damaged_line_that_both_accept_means_the_same_to_both(line: bytes) -> None:
    line = line.replace(b"\n", b"")
    page = page_of(line + b"\n")
    peer = theirs(line.decode(errors="replace") + "\n")

    ours = flat(page)

    if ours and peer:
        assert repr(ours) == repr(peer)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_raise(data: bytes) -> None:
    page = page_of(b"vllm:num_requests_running 1\n" + data)

    assert page.engines == {"vllm"}
