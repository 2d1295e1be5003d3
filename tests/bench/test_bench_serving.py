"""The whole service under load: generations over HTTP, and a fleet of a thousand targets.

The machine of a benchmark has other work too, so each number is given by the clock and by the
processor time that it took; the second is what Fusewire costs.
"""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from tests.bench.serving import ROOT, Looked, Served, engines, samples, service
from tests.bench.test_bench_intake import chat_line

BATCH = 100
SECONDS = 10.0
SENDERS = 3
TARGETS = 1000
PAGE = ROOT / "tests/fixtures/metrics/vllm-0.32.0-load.txt"


def loop_line(found: Looked) -> str:
    return (
        f"loop: worst delay {found.worst_seconds * 1e3:.1f} ms by the clock, "
        f"{found.worst_computed_seconds * 1e3:.1f} ms of its own computing; over 5 ms "
        f"{found.over_five} and {found.computed_over_five} of {found.turns} turns"
    )


def send(served: Served, body: bytes, until: float, done: list[int]) -> None:
    """Post the same body again and again on one connection."""
    head = (
        "POST /v1/ingest/generations?tier=chat HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/x-ndjson\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    with socket.create_connection(("127.0.0.1", served.port)) as connection:
        while time.monotonic() < until:
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)
            assert b"200 OK" in answer, answer
            done.append(BATCH)


@pytest.mark.bench
@pytest.mark.slow
def test_generations_over_http(tmp_path: Path) -> None:
    body = b"\n".join([chat_line(5)] * BATCH)
    tiers = "tiers:\n  chat:\n    targets: [http://127.0.0.1:9]\n"
    with service(tmp_path, tiers) as served:
        send(served, body, time.monotonic() + 2, [])
        served.clear()
        before = served.look()
        done: list[int] = []
        senders = [
            threading.Thread(target=send, args=(served, body, before.at + SECONDS, done))
            for _ in range(SENDERS)
        ]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        time.sleep(1.1)
        after = served.look()

    sent = sum(done)
    loop = (after.loop_cpu_seconds - before.loop_cpu_seconds) / sent
    worker = (after.workers_cpu_seconds - before.workers_cpu_seconds) / sent
    print(f"\ngenerations over HTTP, batches of {BATCH}, {len(body) / BATCH:,.0f} bytes a line")
    rate = sent / SECONDS
    print(f"  by the clock         {rate:>8,.0f} generations/s, {SENDERS} senders, goal 5,000")
    print(f"  the worker           {worker * 1e6:>8.0f} us, so at most {1 / worker:,.0f}/s")
    print(f"  the service's loop   {loop * 1e6:>8.0f} us, so at most {1 / loop:,.0f}/s")
    print(f"  {loop_line(after)}")


@pytest.mark.bench
@pytest.mark.slow
def test_a_thousand_targets(tmp_path: Path) -> None:
    with engines(PAGE, TARGETS) as ports:
        rows = [
            f"      - {{id: t{i}, url: 'http://127.0.0.1:{port}'}}" for i, port in enumerate(ports)
        ]
        tiers = "tiers:\n  chat:\n    targets:\n" + "\n".join(rows) + "\n"
        with service(tmp_path, tiers) as served:
            time.sleep(25)
            first = sum(samples(served.metrics(), "fusewire_scrapes_total"))
            served.clear()
            before = served.look()
            time.sleep(25)
            after = served.look()
            page = served.metrics()

    scrapes = sum(samples(page, "fusewire_scrapes_total")) - first
    took = sorted(samples(page, "fusewire_scrape_seconds"))
    cost = (after.loop_cpu_seconds - before.loop_cpu_seconds) / (after.at - before.at)
    print(f"\n{TARGETS} targets every 5 s, {PAGE.name}: {scrapes:.0f} scrapes")
    each = (after.loop_cpu_seconds - before.loop_cpu_seconds) / after.scrapes_started
    print(f"  one core             {cost:>8.0%}   goal 50%")
    print(
        f"  a scrape takes       {each * 1e3:>8.2f} ms of it, so {TARGETS} every 5 s "
        f"{each * TARGETS / 5:.0%}"
    )
    print(f"  memory               {after.rss_bytes / 1e6:>8.0f} MB, goal 300 MB")
    print(f"  a scrape             {took[len(took) // 2]:>8.3f} s, longest {took[-1]:.3f} s")
    print(
        f"  starts late          {after.started_late_p99_seconds:>8.3f} s at the 99th of 100, "
        f"{after.started_late_most_seconds:.3f} s at most of {after.reads_started}, goal 1 s"
    )
    print(f"  garbage collection   {after.collection_most_seconds:>8.3f} s, the longest")
    print(f"  {loop_line(after)}")
