"""The bounds of the client kit: calls in flight, callers and items that wait, streams and bytes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from exporters.embed.client_kit import ClientKit, FullError, Metrics, Retries
from tests.exporters.embed.kit_bench import Answer, Bench


def test_never_more_calls_than_allowed_are_in_flight_at_once() -> None:
    bench = Bench(settings={"workers": 12, "in_flight": 3})
    lock, counts = threading.Lock(), Counter[str]()
    meeting = threading.Barrier(3)

    def ask(_: int) -> None:
        with lock:
            counts["now"] += 1
            counts["most"] = max(counts["most"], counts["now"])
        meeting.wait(timeout=5)  # three at a time get here, and never four
        with lock:
            counts["now"] -= 1

    results = list(bench.kit.map(ask, range(12)))

    assert [result.error for result in results] == [None] * 12
    assert counts["most"] == 3
    assert bench.sample("openai_api_in_flight") == 0


def test_map_draws_no_more_items_than_may_wait_and_keeps_their_order() -> None:
    bench = Bench(settings={"workers": 2, "queue_bound": 5})
    drawn: list[int] = []

    def items() -> Iterator[int]:
        for number in range(40):
            drawn.append(number)
            yield number

    results = []
    for result in bench.kit.map(lambda number: number * number, items()):
        results.append(result)
        assert len(drawn) <= len(results) + 5 + 1

    assert [result.item for result in results] == list(range(40))
    assert [result.value for result in results] == [number**2 for number in range(40)]
    assert bench.sample("openai_api_queue_bound") == 5


def test_a_failing_item_is_an_outcome_and_loses_no_other() -> None:
    bench = Bench(settings={"workers": 2})

    results = list(bench.kit.map(lambda number: 6 // number, [1, 0, 3]))

    assert [result.value for result in results] == [6, None, 2]
    assert isinstance(results[1].error, ZeroDivisionError)
    with pytest.raises(ZeroDivisionError):
        results[1].get()


def test_a_map_that_is_left_early_calls_no_more_and_holds_nothing() -> None:
    bench = Bench(settings={"workers": 1, "queue_bound": 50})
    called: list[int] = []

    for result in bench.kit.map(called.append, range(1000)):
        if result.item == 3:
            break

    assert len(called) < 100
    assert bench.sample("openai_api_queue_size") == 0


def test_more_callers_than_may_wait_are_refused_at_once() -> None:
    bench = Bench(settings={"in_flight": 1, "queue_bound": 1})
    inside, go = threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        go.wait(timeout=5)

    threads = [threading.Thread(target=bench.kit.call, args=(slow,)) for _ in range(2)]
    threads[0].start()
    inside.wait(timeout=5)
    threads[1].start()
    while not bench.sample("openai_api_queue_size"):
        pass

    with pytest.raises(FullError, match="1 calls wait"):
        bench.kit.call(slow)
    go.set()
    for thread in threads:
        thread.join(timeout=5)

    assert bench.sample("openai_api_queue_size") == 0


def test_streams_and_their_bytes_are_bounded() -> None:
    bench = Bench(settings={"streams": 2, "stream_bytes": 10})

    with bench.kit.stream() as first, bench.kit.stream():
        first.put(b"12345678")
        assert bench.sample("stream_active_buffers") == 2
        assert bench.sample("stream_buffer_bytes") == 8
        with pytest.raises(FullError, match="2 streams"), bench.kit.stream(timeout=0.01):
            pass
        with pytest.raises(FullError, match="forward them"):
            first.put(b"123")
        assert first.take() == b"12345678"
        first.put(b"123")

    assert bench.sample("stream_active_buffers") == 0
    assert bench.sample("stream_buffer_bytes") == 0


@pytest.mark.anyio
async def test_the_same_holds_in_asyncio() -> None:
    bench = Bench(
        Retries(base_seconds=0.001), settings={"in_flight": 3, "queue_bound": 5, "streams": 1}
    )
    counts, drawn = Counter[str](), 0

    async def ask(number: int) -> object:
        counts["now"] += 1
        counts["most"] = max(counts["most"], counts["now"])
        await asyncio.sleep(0)
        counts["now"] -= 1
        if number == 7 and counts["tried"] < 2:
            counts["tried"] += 1
            return Answer(503)
        return 6 // (number - 9)

    def items() -> Iterator[int]:
        nonlocal drawn
        for number in range(20):
            drawn += 1
            yield number

    results = []
    async for result in bench.kit.amap(ask, items()):
        results.append(result)
        assert drawn <= len(results) + 5 + 1
    async with bench.kit.astream() as buffer:
        buffer.put(b"1")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), bench.kit.astream():
                pass

    assert [result.item for result in results] == list(range(20))
    assert isinstance(results[9].error, ZeroDivisionError)
    assert results[7].value == -3
    assert counts["most"] == 3
    assert bench.sample("openai_api_rate_limit_retries_total") == 2
    for gauge in ("openai_api_queue_size", "openai_api_in_flight", "stream_active_buffers"):
        assert bench.sample(gauge) == 0


@pytest.mark.anyio
async def test_in_asyncio_too_callers_are_bounded_and_a_cancelled_one_leaves() -> None:
    bench = Bench(settings={"in_flight": 1, "queue_bound": 1})
    go = asyncio.Event()

    first = asyncio.ensure_future(bench.kit.acall(go.wait))
    second = asyncio.ensure_future(bench.kit.acall(go.wait))
    await asyncio.sleep(0)
    with pytest.raises(FullError):
        await bench.kit.acall(go.wait)
    second.cancel()
    await asyncio.wait([second])
    third = asyncio.ensure_future(bench.kit.acall(go.wait))
    go.set()

    assert (await first, await third) == (True, True)
    assert bench.sample("openai_api_queue_size") == 0


def test_who_stops_taking_outcomes_does_not_wait_for_calls_that_wait() -> None:
    """Ctrl-C in a batch job must not take as long as what a server told it to wait."""
    refused = Answer(429, {"retry-after": "60"})
    registry = CollectorRegistry()
    kit = ClientKit(workers=3, queue_bound=9, metrics=Metrics(registry))
    asked = threading.Event()

    def ask(number: int) -> Answer:
        if number:
            asked.set()
        return Answer() if number == 0 else refused

    began = time.monotonic()
    for _ in kit.map(ask, range(100)):
        assert asked.wait(5)
        break

    assert time.monotonic() - began < 20
    assert registry.get_sample_value("openai_api_queue_size") == 0
