"""A log that is rotated several times while the service is down is read whole when it is back."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.e2e.harness import CALM, Serving, configure, engine, serving, until

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def lines(first: int, count: int) -> bytes:
    records = (
        {
            "id": f"r-{number}",
            "request": {"model": "m", "prompt": f"the number {number}"},
            "response": {
                "choices": [{"index": 0, "text": "four", "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 1},
            },
        }
        for number in range(first, first + count)
    )
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def accepted(service: Serving) -> float:
    found = [
        line
        for line in service.text("/metrics").splitlines()
        if line.startswith("fusewire_generations_accepted_total{")
    ]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def test_files_rotated_while_the_service_was_down_are_read_once(tmp_path: Path) -> None:
    log = tmp_path / "generations.jsonl"
    log.write_bytes(lines(0, 10))
    with engine(CALM) as a:
        configure(
            tmp_path,
            [a],
            more="\ningest:\n  files:\n"
            "    - {path: generations.jsonl, tier: chat, read_from: start}\n",
        )
        with serving(tmp_path) as service:
            until(lambda: accepted(service) == 10, seconds=15)
            assert service.stop() == 0

        with log.open("ab") as more:
            more.write(lines(10, 3))
        log.rename(tmp_path / "generations.jsonl.2")
        packed = tmp_path / "generations.jsonl.1.gz"
        packed.write_bytes(gzip.compress(lines(13, 20)))
        log.write_bytes(lines(33, 4))
        for age, path in enumerate((log, packed, tmp_path / "generations.jsonl.2")):
            moment = log.stat().st_mtime - 100 * age
            os.utime(path, (moment, moment))

        with serving(tmp_path) as service:
            until(lambda: accepted(service) == 27, seconds=15)
            again = service.post(
                "/v1/ingest/generations?tier=chat",
                lines(10, 27),
                content_type="application/x-ndjson",
            )
            page, counted = service.text("/metrics"), accepted(service)
            assert service.stop() == 0

    assert counted == 27
    assert json.loads(again[1])["accepted"] == 27
    assert json.loads(again[1])["partial"]["duplicate"] == 27
    assert "fusewire_follower_lost_total{" not in page
