"""A client's metrics page becomes signals, and says how the client is built."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import ValidationError

from collector.sources.neighbours.client import DEFAULT_TERMS, ClientConfig
from detectors.records import Absence
from exporters.embed.client_kit import ClientKit, Metrics
from tests.collector.sources.neighbours import at, check_contract, codes, page, read_once
from tests.collector.sources.servers import hanging_up, text

pytestmark = pytest.mark.anyio
SIGNALS: set[str] = {*DEFAULT_TERMS}


async def test_the_default_names_are_read_and_429s_are_told_by_their_label() -> None:
    async with at(text(page("client-controller.txt"))) as url:
        reading = await read_once(ClientConfig(url=url))

    check_contract(reading, SIGNALS)
    assert reading.values["client_requests_total"] == 8712.0
    assert reading.values["client_rate_limited_total"] == 2580.0
    assert reading.values["client_retries_total"] == 2566.0
    assert reading.values["client_queue_size"] == 8420.0
    assert reading.values["client_streams_active"] == 50.0
    assert reading.values["memory_rss_bytes"] == 3_435_973_836.0
    assert codes(reading) == {"queue_without_bound"}


async def test_the_client_kit_s_own_page_is_read_without_any_name_and_has_nothing_amiss() -> None:
    registry = CollectorRegistry()
    kit = ClientKit(metrics=Metrics(registry), queue_bound=1000)
    kit.call(lambda: "answered")
    with kit.stream() as buffer:
        buffer.put(b"held")
        body = generate_latest(registry)
    async with at(text(body)) as url:
        reading = await read_once(ClientConfig(url=url))

    assert set(reading.values) >= SIGNALS - {"memory_rss_bytes"}
    assert reading.values["client_queue_bound"] == 1000.0
    assert reading.values["client_requests_total"] == 1.0
    assert reading.values["client_streams_active"] == 1.0
    assert reading.values["client_rate_limited_total"] == 0.0
    assert reading.findings == ()


async def test_a_configured_bound_and_limit_stand_in_for_the_page() -> None:
    config = {"queue_bound": 10_000, "memory_limit": 4_294_967_296}
    async with at(text(page("client-controller.txt"))) as url:
        reading = await read_once(ClientConfig.model_validate({"url": url, **config}))

    assert reading.values["client_queue_bound"] == 10_000.0
    assert reading.values["memory_limit_bytes"] == 4_294_967_296.0
    assert codes(reading) == set()


async def test_other_names_are_taken_with_labels() -> None:
    body = b'sent_total{code="200"} 90\nsent_total{code="429"} 7\nsent_total{code="529"} 3\n'
    names = {
        "client_requests_total": "sent_total",
        "client_rate_limited_total": 'sent_total{code=~"429|529"}',
        "client_retries_total": 'sent_total{code!="200"}',
    }
    async with at(text(body)) as url:
        reading = await read_once(ClientConfig.model_validate({"url": url, "names": names}))

    assert reading.values["client_requests_total"] == 100.0
    assert reading.values["client_rate_limited_total"] == 10.0
    assert reading.values["client_retries_total"] == 10.0


async def test_retries_without_any_count_of_429s_are_a_finding() -> None:
    body = b"openai_api_requests_total 90\nopenai_api_rate_limit_retries 12\n"
    async with at(text(body)) as url:
        reading = await read_once(ClientConfig(url=url))

    assert codes(reading) == {"retries_without_rate_limits_counted"}
    assert reading.absent["client_rate_limited_total"] is Absence.NO_SAMPLE
    assert reading.absent["client_queue_size"] is Absence.NO_FAMILY


async def test_a_client_that_is_gone_is_down_and_has_no_findings() -> None:
    async with at(hanging_up) as url:
        reading = await read_once(ClientConfig(url=url, queue_bound=5))

    check_contract(reading, SIGNALS)
    assert not reading.up
    assert reading.findings == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("my metric", "metric family"),
        ("sent_total{status=429}", "=~ are understood"),
        ('sent_total{status~"4.."}', "=~ are understood"),
    ],
)
def test_a_name_that_is_no_selector_is_refused_with_the_way_to_write_it(
    name: str, said: str
) -> None:
    names = {"client_requests_total": name}
    with pytest.raises(ValidationError, match=said):
        ClientConfig.model_validate({"url": "http://127.0.0.1:1", "names": names})
