"""The gateway's log of generations: lines as the service takes them, a bounded queue."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import httpx2
import pytest

from collector.demo.intake import Generation, IntakeQueue, line_of

GENERATION = Generation(
    at=datetime(2026, 11, 29, 15, 0, tzinfo=UTC),
    target="a",
    segment='ba"tch',
    latency_seconds=0.25,
    request=b'{\n "prompt": "x"\n}',
    response=b'{"id": "cmpl-1", "choices": []}',
)
URL = "http://service/v1/ingest/generations"


def test_a_line_has_the_bodies_as_they_went_over_the_wire() -> None:
    line = line_of(GENERATION, tier="chat")

    assert b"\n" not in line
    assert json.loads(line) == {
        "at": "2026-11-29T15:00:00Z",
        "tier": "chat",
        "target": "a",
        "segment": 'ba"tch',
        "latency_seconds": 0.25,
        "request": {"prompt": "x"},
        "response": {"id": "cmpl-1", "choices": []},
    }


@pytest.mark.anyio
async def test_lines_are_sent_in_batches_as_ndjson() -> None:
    bodies: list[bytes] = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        assert request.headers["content-type"] == "application/x-ndjson"
        bodies.append(request.content)
        return httpx2.Response(200, json={"accepted": 1, "rejected": []})

    queue = IntakeQueue(tier="chat")
    for _ in range(300):
        queue.offer(GENERATION)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as http:
        taken = [await queue.send_batch(http, URL) for _ in range(3)]

    assert taken == [250, 50, 0]
    assert [len(body.splitlines()) for body in bodies] == [250, 50]
    assert (queue.sent, queue.dropped, queue.lost, len(queue)) == (300, 0, 0, 0)


@pytest.mark.anyio
async def test_a_batch_that_fails_is_counted_and_the_next_one_is_tried() -> None:
    answers = iter([httpx2.Response(500), httpx2.Response(200)])
    queue = IntakeQueue(tier="chat")
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: next(answers))) as http:
        queue.offer(GENERATION)
        await queue.send_batch(http, URL)
        assert (queue.lost, queue.sent) == (1, 0)
        assert "500" in queue.problem
        queue.offer(GENERATION)
        await queue.send_batch(http, URL)

    assert (queue.lost, queue.sent, queue.problem) == (1, 1, "")


def test_a_full_queue_drops_and_counts() -> None:
    queue = IntakeQueue(tier="chat", bound=2)

    for _ in range(5):
        queue.offer(GENERATION)

    assert (len(queue), queue.dropped) == (2, 3)


@pytest.mark.anyio
async def test_the_queue_rests_when_a_batch_was_not_full() -> None:
    rests: list[float] = []

    async def sleep(seconds: float) -> None:
        rests.append(seconds)
        if len(rests) == 2:
            raise KeyboardInterrupt

    queue = IntakeQueue(tier="chat")
    for _ in range(260):
        queue.offer(GENERATION)
    async with httpx2.AsyncClient(
        transport=httpx2.MockTransport(lambda _: httpx2.Response(200))
    ) as http:
        with pytest.raises(KeyboardInterrupt):
            await queue.run(http, URL, sleep)

    assert queue.sent == 260
