"""What is asked of a server that stores metrics, and that no answer breaks its reader."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.sources.engine.engines import VLLM, engines_named
from collector.sources.fetch import FetchError
from collector.sources.stored.asking import Answer, StoredSeries, decode
from collector.sources.stored.promql import (
    MAX_NAMES,
    MAX_QUERY_BYTES,
    forms_of,
    plan,
    search,
    selector,
    spelled,
)
from collector.sources.stored.rebuilt import OriginMemory, rebuilt
from collector.sources.stored.server import Share


def test_every_spelling_of_a_colon_name_is_asked_for_by_name() -> None:
    queries = " ".join(search((VLLM,), '{instance="a"}').queries)

    for name in (
        *("vllm:num_requests_running", "vllm_num_requests_running"),
        *("ray_vllm:num_requests_running", "ray_vllm_num_requests_running"),
        *("kserve_vllm:num_requests_running", "kserve_vllm_num_requests_running"),
    ):
        assert f"({name}{{" in queries
    assert "__name__" not in queries


def test_queries_stay_within_what_every_server_takes() -> None:
    engines = engines_named("auto")
    select = selector([{"instance": f"10.0.{n}.7:8000", "job": "vllm"} for n in range(40)])

    asked = (search(engines, select), plan(engines, forms_of(engines), select, evidence=True))

    for plans in asked:
        for query in plans.queries:
            assert len(query.encode()) <= MAX_QUERY_BYTES
            assert query.count("label_replace") <= MAX_NAMES
            assert query.count("(") == query.count(")")
        assert sum(it.count("label_replace") for it in plans.queries) == len(plans.marks)


def test_all_names_of_a_histogram_are_in_one_query() -> None:
    plans = plan((VLLM,), forms_of((VLLM,)), '{instance="a"}', evidence=False)

    for form in forms_of((VLLM,)):
        names = [
            spelled(f"vllm_e2e_request_latency_seconds{it}", form) for it in ("_sum", "_count")
        ]
        names.append(spelled("vllm_e2e_request_latency_seconds_bucket", form))
        with_any = [query for query in plans.queries if any(f"({it}{{" in query for it in names)]
        assert len(with_any) == 1


def test_label_values_are_quoted_and_never_read_as_patterns() -> None:
    one = selector([{"pod": 'x"y\\z\n'}])
    several = selector([{"pod": "a.b"}, {"pod": "c|d"}])

    assert one == '{pod="x\\"y\\\\z\\n"}'
    assert several == '{pod=~"a\\\\.b|c\\\\|d"}'


LABELS = st.dictionaries(
    st.sampled_from(
        ["instance", "job", "le", "engine", "fusewire_ask", "pid", "exported_job", "x"]
    ),
    st.text(max_size=8),
)


NUMBERS = st.one_of(
    st.floats().map(repr), st.sampled_from(["NaN", "+Inf", "1_0", "", "x", "1e999"])
)


SERIES = st.builds(
    StoredSeries,
    LABELS,
    st.none() | st.tuples(st.floats(-1e300, 1e300), NUMBERS),
)


@given(st.lists(SERIES, max_size=20), st.booleans())
def test_no_series_whatever_makes_the_page_fail(series: list[StoredSeries], partial: bool) -> None:
    marks = plan((VLLM,), forms_of((VLLM,)), "{}", evidence=True).marks
    names = list(marks)
    found = [(marks[names[number * 7 % len(names)]], it) for number, it in enumerate(series)]
    share = Share(found, 1_000.0, 0.0, ("partial",) if partial else (), searched=True)

    made = rebuilt(share, OriginMemory(), replica_labels=(), stale_seconds=60.0)

    assert made is None or made.page.readable


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["status", "data", "result", "resultType", "metric", "value", "warnings"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_json_whatever_is_more_than_refused(value: object) -> None:
    body = json.dumps({"status": "success", "data": value}).encode()
    try:
        answer = decode(body)
    except FetchError as error:
        assert str(error)  # noqa: PT017  # either outcome is right
    else:
        assert isinstance(answer, Answer)


@given(st.binary(max_size=200))
def test_no_bytes_whatever_are_more_than_refused(body: bytes) -> None:
    with pytest.raises(FetchError):
        decode(body)
