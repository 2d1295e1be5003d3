"""Brokers asked for real: a NATS and a Redis on the loopback."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector.sources.neighbours.broker import BrokerConfig
from detectors.records import Reading
from tests.collector.sources.neighbours import check_contract, codes, read_once
from tests.parts import need_program
from tests.programs import free_port, running

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SIZE, BOUND = "client_queue_size", "client_queue_bound"
NATS = """
listen: 127.0.0.1:{port}
http: 127.0.0.1:{monitor}
jetstream {{ store_dir: "{folder}", max_mem: 16M, max_file: 16M }}
"""


class Nats:
    """A small client of NATS' own text protocol, for what the tests need."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._file = self._socket.makefile("rb")
        self._file.readline()
        self._socket.sendall(b'CONNECT {"verbose":false}\r\nSUB inbox 1\r\nPING\r\n')
        self._until(b"PONG")

    def request(self, subject: str, body: dict[str, object]) -> dict[str, object]:
        payload = json.dumps(body).encode()
        head = f"PUB {subject} inbox {len(payload)}\r\n".encode()
        self._socket.sendall(head + payload + b"\r\n")
        size = int(self._until(b"MSG").split()[-1])
        answer: dict[str, object] = json.loads(self._file.read(size + 2))
        assert "error" not in answer, answer
        return answer

    def publish(self, subject: str, count: int) -> None:
        self._socket.sendall(f"PUB {subject} 5\r\nhello\r\n".encode() * count + b"PING\r\n")
        self._until(b"PONG")

    def pull(self, count: int) -> None:
        """Take messages without acknowledging them."""
        subject = "$JS.API.CONSUMER.MSG.NEXT.JOBS.workers"
        body = json.dumps({"batch": count}).encode()
        self._socket.sendall(f"PUB {subject} inbox {len(body)}\r\n".encode() + body + b"\r\n")
        for _ in range(count):
            self._file.read(int(self._until(b"MSG").split()[-1]) + 2)

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _until(self, word: bytes) -> bytes:
        while True:
            line = self._file.readline()
            assert line, "NATS closed the connection"
            if line.startswith(word):
                return line


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[tuple[Nats, str]]:
    program = need_program("nats-server", install="apt-get install nats-server")
    port, monitor = free_port(), free_port()
    file = tmp_path / "nats.conf"
    file.write_text(NATS.format(port=port, monitor=monitor, folder=tmp_path / "js"))
    url = f"http://127.0.0.1:{monitor}"
    with running([program, "-c", str(file)], ready=f"{url}/healthz", log=tmp_path / "log"):
        client = Nats(port)
        try:
            yield client, url
        finally:
            client.close()


async def ask_nats(url: str, **settings: object) -> Reading:
    known = {"system": "nats", "url": url, "queue": "JOBS"}
    return await read_once(BrokerConfig.model_validate({**known, **settings}))


async def test_nats_tells_what_waits_for_a_consumer_with_what_is_not_acknowledged(
    nats: tuple[Nats, str],
) -> None:
    client, url = nats
    limits = {"max_msgs": 100, "storage": "memory", "retention": "limits", "discard": "new"}
    stream = {"name": "JOBS", "subjects": ["jobs.>"], **limits}
    client.request("$JS.API.STREAM.CREATE.JOBS", stream)
    before = await ask_nats(url)
    worker = {"durable_name": "workers", "ack_policy": "explicit"}
    client.request(
        "$JS.API.CONSUMER.DURABLE.CREATE.JOBS.workers", {"stream_name": "JOBS", "config": worker}
    )
    client.publish("jobs.a", 30)
    client.pull(7)

    reading = await ask_nats(url, group="workers")
    own = await ask_nats(url, bound=40)
    nobody = await ask_nats(url, group="nobody")
    elsewhere = await ask_nats(url, queue="OTHER")

    check_contract(reading, {SIZE, BOUND})
    assert before.values[SIZE] == 0.0
    assert (reading.values[SIZE], reading.values[BOUND]) == (30.0, 100.0)
    assert own.values[BOUND] == 40.0
    assert codes(nobody) == codes(elsewhere) == {"queue_not_found"}


async def test_a_nats_stream_without_limits_is_a_finding(nats: tuple[Nats, str]) -> None:
    client, url = nats
    client.request("$JS.API.STREAM.CREATE.JOBS", {"name": "JOBS", "subjects": ["jobs.>"]})
    client.publish("jobs.a", 3)

    reading = await ask_nats(url)

    assert reading.values[SIZE] == 3.0
    assert codes(reading) == {"queue_without_bound"}


@contextmanager
def redis(folder: Path, *options: str) -> Iterator[int]:
    program = need_program("redis-server", install="apt-get install redis-server")
    port = free_port()
    command = [program, "--bind", "127.0.0.1", "--port", str(port), "--save", "", *options]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        _wait_for(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(timeout=10)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        assert process.poll() is None
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("Redis did not start")


def tell(port: int, *commands: str) -> None:
    """Send commands to Redis, one a line, and wait for all replies."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall("".join(f"{it}\r\n" for it in (*commands, "ECHO done")).encode())
        got = b""
        while not got.endswith(b"done\r\n"):
            got += connection.recv(65_536)
        assert b"-ERR" not in got, got


async def ask_redis(port: int, **settings: object) -> Reading:
    known = {"system": "redis", "url": f"redis://127.0.0.1:{port}/2", "queue": "jobs"}
    return await read_once(BrokerConfig.model_validate({**known, **settings}))


async def test_redis_tells_the_lag_of_a_group_with_what_is_not_acknowledged(tmp_path: Path) -> None:
    with redis(tmp_path) as port:
        missing = await ask_redis(port)
        adds = ["XADD jobs * a 1"] * 20
        groups = ["XGROUP CREATE jobs fast 0", "XGROUP CREATE jobs slow 0"]
        reads = ["XREADGROUP GROUP fast me COUNT 15 STREAMS jobs >"]
        tell(port, "SELECT 2", *adds, *groups, *reads, "RPUSH list a b c", "SET text a")
        fast = await ask_redis(port, group="fast", bound=1000)
        slowest = await ask_redis(port)
        listed = await ask_redis(port, queue="list")
        nobody = await ask_redis(port, group="nobody")
        wrong = await ask_redis(port, queue="text")

    check_contract(fast, {SIZE, BOUND})
    assert codes(missing) == codes(nobody) == {"queue_not_found"}
    assert (fast.values[SIZE], fast.values[BOUND]) == (20.0, 1000.0)
    assert slowest.values[SIZE] == 20.0
    assert codes(slowest) == {"queue_without_bound"}
    assert listed.values[SIZE] == 3.0
    assert "expected a stream or a list" in wrong.problem


async def test_acknowledged_entries_no_longer_wait(tmp_path: Path) -> None:
    with redis(tmp_path) as port:
        adds = [f"XADD jobs 1-{n} a 1" for n in range(1, 11)]
        tell(port, "SELECT 2", *adds, "XGROUP CREATE jobs g 0")
        tell(port, "SELECT 2", "XREADGROUP GROUP g me COUNT 6 STREAMS jobs >")
        tell(port, "SELECT 2", "XACK jobs g 1-1 1-2 1-3 1-4")

        reading = await ask_redis(port, group="g")

    assert reading.values[SIZE] == 6.0  # 4 not read, 2 not acknowledged


async def test_a_password_is_needed_and_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("tower\n")
    with redis(tmp_path, "--requirepass", "tower") as port:
        tell(port, "AUTH tower", "SELECT 2", "XADD jobs * a 1")
        closed = await ask_redis(port)
        wrong = await ask_redis(port, password="castle")
        right = await ask_redis(port, password_file=str(file))

    assert "NOAUTH" in closed.problem
    assert "WRONGPASS" in wrong.problem
    assert "castle" not in wrong.problem
    assert right.values[SIZE] == 1.0


async def test_a_redis_that_is_gone_is_down(tmp_path: Path) -> None:
    with redis(tmp_path) as port:
        pass

    reading = await ask_redis(port)

    check_contract(reading, {SIZE, BOUND})
    assert "cannot connect" in reading.problem
