"""Brokers by what they answer: recorded or written JSON and pages, and a Redis that misbehaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.sources.neighbours import nats_streams
from collector.sources.neighbours.broker import BrokerConfig
from collector.sources.neighbours.redis_streams import RedisAddress, Reply, stream_depth
from detectors.records import Absence
from tests.collector.sources.neighbours import (
    at,
    built,
    check_contract,
    codes,
    json_answer,
    page,
    read_once,
)
from tests.collector.sources.servers import hanging_up, serving, text

SIZE, BOUND = "client_queue_size", "client_queue_bound"


def config(system: str, url: str, **settings: object) -> BrokerConfig:
    return BrokerConfig.model_validate({"system": system, "url": url, **settings})


@pytest.mark.anyio
async def test_a_rabbitmq_queue_counts_delivered_messages_and_takes_its_smallest_limit() -> None:
    answer = json_answer(page("rabbitmq-queue.json"))
    async with serving(answer) as server:
        login = {"username": "watch", "password": "tower"}
        reading = await read_once(config("rabbitmq", server.url, queue="documents", **login))

    check_contract(reading, {SIZE, BOUND})
    assert (reading.values[SIZE], reading.values[BOUND]) == (18_250.0, 20_000.0)
    assert server.requests[0].startswith(b"GET /api/queues/%2F/documents ")
    assert b"authorization: Basic d2F0Y2g6dG93ZXI=" in server.requests[0]


@pytest.mark.anyio
async def test_a_queue_that_is_not_there_is_unknown_with_a_remark() -> None:
    async with at(json_answer(b'{"error": "Object Not Found"}', status="404 No")) as url:
        reading = await read_once(config("rabbitmq", url, queue="nope", bound=7))

    assert reading.up
    assert reading.absent[SIZE] is Absence.NO_SAMPLE
    assert reading.values[BOUND] == 7.0
    assert codes(reading) == {"queue_not_found"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        ("401 No", b"{}", "monitoring"),
        ("200 OK", b"<html>", "not JSON"),
        ("200 OK", b"[]", "no queue of RabbitMQ"),
        ("500 Oops", b"", "answered 500"),
    ],
)
async def test_an_answer_that_is_no_queue_is_down_with_what_to_do(
    status: str, body: bytes, said: str
) -> None:
    async with at(json_answer(body, status=status)) as url:
        reading = await read_once(config("rabbitmq", url, queue="a"))

    check_contract(reading, {SIZE, BOUND})
    assert said in reading.problem


@pytest.mark.anyio
async def test_a_recorded_nats_answer_is_read_for_a_consumer_or_the_slowest() -> None:
    async with at(json_answer(page("nats-jsz.json"))) as url:
        named = await read_once(config("nats", url, queue="JOBS", group="workers"))
        slowest = await read_once(config("nats", url, queue="JOBS", account="$G"))
        other = await read_once(config("nats", url, queue="JOBS", account="other"))

    assert (named.values[SIZE], named.values[BOUND]) == (30.0, 100.0)
    assert slowest.values[SIZE] == 30.0
    assert codes(other) == {"queue_not_found"}


def test_a_stream_bounded_in_bytes_is_bounded_in_messages_of_the_mean_size() -> None:
    (account,) = json.loads(page("nats-jsz.json"))["account_details"]
    (stream,) = account["stream_detail"]
    stream["config"] |= {"max_msgs": -1, "max_bytes": 2700}

    assert nats_streams.depth_of(stream, "workers").bound == 100.0
    assert nats_streams.depth_of(stream | {"consumer_detail": []}, "").size == 30.0
    assert nats_streams.depth_of({"name": "JOBS"}, "").size is None


@pytest.mark.anyio
async def test_pages_of_rabbitmq_and_kafka_are_chosen_by_labels() -> None:
    async with at(text(page("rabbitmq-per-object.txt"))) as url:
        rabbit = await read_once(config("page", url, match={"queue": "documents"}, bound=20_000))
    async with at(text(page("kafka-lag.txt"))) as url:
        kafka = await read_once(
            config("page", url, match={"consumergroup": "batch", "topic": "documents"})
        )
        named = await read_once(
            config("page", url, names={SIZE: 'kafka_consumergroup_lag{consumergroup="audit"}'})
        )

    check_contract(rabbit, {SIZE, BOUND})
    assert (rabbit.values[SIZE], rabbit.values[BOUND]) == (18_250.0, 20_000.0)
    assert kafka.values[SIZE] == 2000.0
    assert codes(kafka) == {"queue_without_bound"}
    assert named.values[SIZE] == 9000.0


def test_an_unknown_lag_of_redis_falls_back_to_the_length_and_says_so() -> None:
    known: dict[str, Reply] = {"name": "a", "lag": 3, "pending": 2}
    old: dict[str, Reply] = {"name": "b", "pending": 1}

    assert stream_depth(9.0, [known], "a").size == 5.0
    assert stream_depth(9.0, [], "").size == 9.0
    assert stream_depth(9.0, [known, old], "").remarks[0][0] == "queue_lag_unknown"
    assert stream_depth(9.0, [known, old], "").size == 9.0
    assert stream_depth(9.0, [known], "nope").size is None


@asynccontextmanager
async def saying(*replies: bytes) -> AsyncIterator[str]:
    """Run something that answers each command with the next reply, and then hangs up."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for reply in replies:
            if not await reader.read(4096):
                break
            writer.write(reply)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "replies",
    [
        (),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n",),
        (b"+stream\r\n", b"$99999999\r\n"),
        (b"+stream\r\n", b"*99999999\r\n"),
        (b"+stream\r\n", b"*1\r\n" * 12),
        (b"+stream\r\n", b":4\r\n", b"*99\r\n" + (b"$60000\r\n" + b"a" * 60_000 + b"\r\n") * 99),
        (b"+stream\r\n", b":4\r\n", b"*9\r\n" + (b"*9999\r\n" + b":1\r\n" * 9999) * 9),
        (b"+stream\r\n", b":4\r\n", b"$8\r\nhalf"),
        (b"+stream\r\n", b"+four\r\n"),
        (b"x" * 200_000,),
        (b"-NOAUTH give a password, not 'tower'\r\n",),
        (b"+hash\r\n",),
    ],
)
async def test_a_redis_that_misbehaves_is_down_and_repeats_nothing(
    replies: tuple[bytes, ...],
) -> None:
    async with saying(*replies) as url:
        reading = await read_once(config("redis", url, queue="jobs"))

    check_contract(reading, {SIZE, BOUND})
    assert not reading.up
    assert "tower" not in reading.problem


@pytest.mark.anyio
@pytest.mark.parametrize("system", ["nats", "rabbitmq", "page"])
async def test_a_broker_that_hangs_up_is_down(system: str) -> None:
    queue = {} if system == "page" else {"queue": "a"}
    async with at(hanging_up) as url, built(config(system, url, **queue)) as source:
        reading = await source.read()

    check_contract(reading, {SIZE, BOUND})
    assert not reading.up


@pytest.mark.parametrize(
    "settings",
    [
        {"system": "redis", "url": "http://127.0.0.1:1", "queue": "a"},
        {"system": "nats", "url": "redis://127.0.0.1:1", "queue": "a"},
        {"system": "nats", "url": "http://127.0.0.1:1"},
        {"system": "page", "url": "http://127.0.0.1:1", "queue": "a"},
        {"system": "nats", "url": "http://127.0.0.1:1", "queue": "a", "match": {"a": "b"}},
        {"system": "redis", "url": "redis://u:p@127.0.0.1:1", "queue": "a"},
        {"system": "redis", "url": "redis://127.0.0.1:1/jobs", "queue": "a"},
        {"system": "page", "url": "http://127.0.0.1:1", "names": {SIZE: "a b"}},
        {
            "system": "redis",
            "url": "redis://127.0.0.1:1",
            "queue": "a",
            "password": "a",
            "password_file": "b",
        },
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BrokerConfig.model_validate(settings)


def test_an_address_of_redis_has_defaults_and_hides_its_password() -> None:
    plain = RedisAddress.parse("redis://cache")
    full = RedisAddress.parse("rediss://cache:7000/3", ("watch", "tower"))

    assert plain == RedisAddress("cache", 6379, 0)
    assert full == RedisAddress("cache", 7000, 3, True, "watch", "tower")
    assert "tower" not in repr(full)
    assert RedisAddress.parse("http://cache") is None


def test_a_password_of_a_file_is_not_read_before_it_is_needed(tmp_path: Path) -> None:
    made = config("redis", "rediss://c", queue="a", password_file=str(tmp_path / "later"))

    assert made.password_file == tmp_path / "later"


@pytest.mark.parametrize(
    ("system", "url"),
    [("redis", "redis://10.0.0.7:6379/0"), ("rabbitmq", "http://10.0.0.7:15672")],
)
def test_a_password_is_not_sent_unencrypted_to_another_machine_unless_told_so(
    system: str, url: str
) -> None:
    keys = {"system": system, "url": url, "queue": "q", "password": "p"}

    with pytest.raises(ValidationError, match="insecure: true"):
        BrokerConfig.model_validate(keys)

    assert BrokerConfig.model_validate({**keys, "insecure": True}).insecure
