"""What is read from lines of logs: every recorded file with its counts and its numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.sources.logs.amounts import TorchOom, torch_oom
from collector.sources.logs.limits import StatedLimits
from collector.sources.logs.patterns import EVENTS, xid_code
from collector.sources.logs.scan import LauncherRecord, OwnPatterns, plain, scan
from collector.sources.logs.statistics import Statistics, statistics
from tests.collector.sources.looked import FIXTURES, Clock

LOGS = FIXTURES / "logs"
FILES = sorted(path.name for path in LOGS.glob("*.txt"))
GIB, MIB = float(1 << 30), float(1 << 20)

# by hand, from reading the files
COUNTS: Mapping[str, Mapping[str, int]] = {
    "kernel-oom-lines.txt": {
        "oom_in_cgroup": 2,
        "oom_on_machine": 1,
        "kernel_oom_kill": 4,  # an old kernel says first "Kill process" and then "Killed process"
        "unit_oom_kill": 1,
        "xid_79": 1,
        "xid_31": 1,
        "xid_other": 1,
        "segfault": 1,
    },
    "sglang-start-lines.txt": {},
    "sglang-stats-lines.txt": {},
    "tgi-request-lines.txt": {"request_too_long": 1},
    "tgi-start-lines.txt": {},
    "torch-oom-lines.txt": {"torch_oom": 8},
    "trouble-lines.txt": {
        "memory_allocation_failed": 2,
        "memory_error": 2,
        "cannot_allocate_memory": 1,
        "buffer_allocation_failed": 1,
        "collection_failed": 1,
        "queue_full": 2,
        "rate_limited": 4,
        "overloaded": 1,
        "gpu_illegal_access": 1,
        "gpu_assert": 1,
        "gpu_ecc": 1,
        "cuda_error": 1,
        "cuda_oom": 2,
        "nccl_timeout": 1,
        "nccl_error": 1,
        "engine_dead": 2,
        "worker_died": 1,
        "shard_crashed": 1,
        "segfault": 1,
        "duplicate_timeseries": 1,
        "port_in_use": 1,
        "kv_cache_does_not_fit": 1,
        "preempted": 1,
        "disk_full": 1,
        "server_error": 1,
    },
    "vllm-0.32-rust-frontend-lines.txt": {},
    "vllm-request-lines.txt": {"server_error": 1},
    "vllm-start-lines.txt": {},
    "vllm-stats-lines.txt": {"request_aborted": 1, "preempted": 2},
    "vllm-v0-start-lines.txt": {},
}
RECORDS = {
    "sglang-stats-lines.txt": 2,
    "vllm-0.32-rust-frontend-lines.txt": 4,
    "vllm-stats-lines.txt": 15,  # of three on one line the last is cut
}
LIMITS: Mapping[str, Mapping[str, float]] = {
    "sglang-start-lines.txt": {
        "kv_cache_capacity_tokens": 441_907,
        "request_slots": 2049,
        "context_tokens": 131_072,
    },
    "tgi-start-lines.txt": {"batch_token_budget": 65_536, "context_tokens": 8192},
    "vllm-start-lines.txt": {
        "kv_cache_capacity_tokens": 148_096 + 148_112,
        "request_slots": 2 * 64,
        "context_tokens": 65_536,
    },
    "vllm-v0-start-lines.txt": {
        "kv_cache_capacity_tokens": 27_898 * 16,
        "request_slots": 256,
        "context_tokens": 131_072,
    },
}
# tried, total, free, allocated, reserved, unallocated; and whether there was room
OOMS: tuple[tuple[tuple[float, float, float, float, float, float], bool], ...] = (
    ((12.5, 10.92 * 1024, 9.28 * 1024, 8.57, 8.57 + 4.68, 4.68), True),
    ((20, 31.75 * 1024, 3.75, 30.29 * 1024, 30.4 * 1024, 0.11 * 1024), True),
    ((5.96 * 1024, 14.76 * 1024, 5.68 * 1024, 7.46 * 1024, 7.46 * 1024 + 646.6, 646.6), True),
    ((20, 4 * 1024, 2.35 * 1024, 825.15, 850, 24.85), True),
    ((1002, 8 * 1024, 0, 13.98 * 1024, 13.98 * 1024 + 129.48, 129.48), False),
    ((16 * 1024, 44.53 * 1024, 187.94, 43.67 * 1024, 43.67 * 1024 + 335.07, 335.07), False),
    ((546, 15.77 * 1024, 514.19, 13.73 * 1024, 13.73 * 1024 + 46 + 736.86, 736.86), True),
    ((138, 79.15 * 1024, 2.19, 71.57 * 1024, 71.57 * 1024 + 39.77 + 611.6, 611.6), True),
)


def read(name: str) -> bytes:
    return (LOGS / name).read_bytes()


def limits_of(text: bytes) -> StatedLimits:
    limits = StatedLimits()
    limits.take(scan(text).facts, LauncherRecord().take(plain(text)))
    return limits


def records(line: str) -> list[Statistics]:
    return list(statistics(line.encode()))


@pytest.mark.parametrize("name", FILES)
def test_each_recorded_file_has_the_expected_counts_and_limits(name: str) -> None:
    hits = scan(read(name))

    assert dict(hits.counts) == COUNTS[name]
    assert hits.records == RECORDS.get(name, 0)
    assert limits_of(read(name)).values() == LIMITS.get(name, {})


def test_every_kind_of_trouble_stands_in_a_recorded_file() -> None:
    seen = {code for counts in COUNTS.values() for code in counts}
    known = {row.code for row in EVENTS} - {"xid"}

    assert known <= seen


def test_torchs_message_of_every_version_gives_its_amounts() -> None:
    text = read("torch-oom-lines.txt")
    places = [found.start() for found in re.finditer(rb"out of memory\. Tried", text)]

    found = [torch_oom(text, place) for place in places]

    assert len(found) == len(OOMS)
    for oom, (amounts, room) in zip(found, OOMS, strict=True):
        assert oom is not None
        told = (oom.tried, oom.total, oom.free, oom.allocated, oom.reserved, oom.unallocated)
        assert told == pytest.approx([amount * MIB for amount in amounts])
        assert oom.with_room is room
    assert [oom.device for oom in found if oom] == ["0", "4", "0", "0", "0", "0", "0", "0"]


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_message_that_was_wrapped_is_read_whole(width: int) -> None:
    line = read("torch-oom-lines.txt").split(b"\n")[2]
    words, wrapped = line.split(b" "), b""
    for word in words:
        gap = b"\n" if len(wrapped) - wrapped.rfind(b"\n") + len(word) > width else b" "
        wrapped += gap + word

    oom = torch_oom(wrapped, wrapped.find(b"out of memory. Tried"))

    assert oom is not None
    assert (oom.tried, oom.free) == pytest.approx((5.96 * GIB, 5.68 * GIB))


def test_a_message_that_breaks_off_says_what_it_says() -> None:
    cut = b"CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 8"

    oom = torch_oom(cut, 5)

    assert oom == TorchOom(tried=GIB, device="0")
    assert not oom.with_room
    assert torch_oom(b"out of memory. Tried to all", 0) is None


def test_statistics_of_every_form_become_ratios() -> None:
    v0 = records(read("vllm-stats-lines.txt").decode().split("\n")[15])
    v1 = records(read("vllm-stats-lines.txt").decode().split("\n")[1])
    glued = records(read("vllm-stats-lines.txt").decode().split("\n")[9])
    rust = records(plain(read("vllm-0.32-rust-frontend-lines.txt")).decode().split("\n")[1])
    sglang = records(read("sglang-stats-lines.txt").decode().split("\n")[0])

    assert v0 == [Statistics("", 34, 9832, 0.992, 100, 2706.1, 13395.4)]
    assert v1 == [Statistics("000", 10, 4, 0.579, 0, 1254.4, 29.2, 0.405)]
    assert [it.kv_cache_usage_ratio for it in glued] == pytest.approx([0.916, 0.919])
    assert rust == [Statistics("", 0, 0, 0.0, 0, 8.0, 96.0, 0.0)]
    assert sglang == [Statistics("", 1, 38, 0.04)]


@pytest.mark.parametrize(
    "extra",
    [
        "Waiting: 4 reqs, Deferred: 2 reqs, Preemptions: 7, GPU KV cache usage: 57.9%",
        "Waiting: 4 reqs, KV fetch: 1 waiting to start, 2 in progress, NPU KV cache usage: 57.9%",
        "Waiting: 4 reqs, GPU KV cache usage: 57.9%, External prefix cache hit rate: 1.0%",
    ],
)
def test_optional_parts_of_a_statistics_line_do_not_hide_it(extra: str) -> None:
    head = (
        "Engine 003: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s"
    )

    (found,) = records(f"{head}, Running: 10 reqs, {extra}")

    assert (found.engine, found.running, found.waiting) == ("003", 10, 4)
    assert found.kv_cache_usage_ratio == pytest.approx(0.579)


def test_a_start_makes_the_limits_of_the_one_before_void() -> None:
    text = read("vllm-start-lines.txt") + b"INFO x vLLM API server version 0.12.0\n"

    limits = limits_of(text)

    assert limits.values() == {}
    assert limits.starting
    assert not limits_of(read("vllm-start-lines.txt")).starting


def test_the_stated_size_wins_where_the_concurrency_of_a_hybrid_model_says_another() -> None:
    text = (
        b"INFO GPU KV cache size: 159,296 tokens\n"
        b"INFO Maximum concurrency for 65,536 tokens per request: 8.00x\n"
    )

    assert limits_of(text).values()["kv_cache_capacity_tokens"] == 159_296


def test_blocks_without_a_size_that_fits_give_no_capacity() -> None:
    text = (
        b"# GPU blocks: 1000, # CPU blocks: 9\n"
        b"Maximum concurrency for 1000 tokens per request: 11.31x\n"
    )

    assert "kv_cache_capacity_tokens" not in limits_of(text).values()


def test_the_launchers_record_is_read_though_it_comes_in_pieces() -> None:
    lines = plain(read("tgi-start-lines.txt")).splitlines(keepends=True)
    record = LauncherRecord()

    found = [dict(record.take(line)) for line in lines]

    assert [it for it in found if it] == [
        {"max_total_tokens": 8192.0, "max_batch_total_tokens": 60_000.0}
    ]


def test_what_users_wrote_is_no_event() -> None:
    line = (
        b"Received request c-1: prompt: 'CUDA out of memory. Tried to allocate 1 GiB MemoryError'\n"
    )

    assert not scan(line).counts
    assert scan(line.replace(b"Received request c-1: prompt: '", b"")).counts


@pytest.mark.parametrize(
    "line",
    [
        b"INFO Received request c-1: prompt: 'TEXT', params: SamplingParams(n=1)\n",
        b"INFO Request c-1 details: prompt: 'TEXT', prompt_token_ids: [1]\n",
        b"[2026-11-29] Receive: obj=GenerateReqInput(rid='c', text='TEXT')\n",
        b"INFO text_generation_router::server: router/src/server.rs:185: Input: TEXT\n",
    ],
    ids=["vllm", "vllm details", "sglang", "tgi"],
)
@pytest.mark.parametrize(
    "text",
    [
        b"GPU KV cache size: 5 tokens",
        b"max_num_seqs=1",
        b"vLLM API server version 0",
        b"CUDA out of memory. Tried to allocate 1 GiB",
        b"text_generation_launcher: Args { max_total_tokens: Some( 5, ) }",
        (
            b"Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 1.0 tokens/s, "
            b"Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 99.0%"
        ),
    ],
    ids=["capacity", "slots", "start", "trouble", "arguments", "statistics"],
)
def test_what_users_wrote_states_no_limits_of_the_server(line: bytes, text: bytes) -> None:
    asked = line.replace(b"TEXT", text)

    hits = scan(asked)

    assert (hits.counts, hits.facts, hits.statistics) == (Counter(), [], {})
    assert LauncherRecord().take(asked + b"}\n") == {}
    alone = scan(text + b"\n")
    stated = LauncherRecord().take(text.replace(b"Args { ", b"Args {\n") + b"\n}\n")
    assert alone.counts or alone.facts or alone.statistics or stated


def test_of_a_line_full_of_limits_few_are_taken() -> None:
    """Each match looks back for its engine: a thousand of them took half a second a line."""
    assert len(scan(b"max_num_seqs=1 " * 1000 + b"\n").facts) == 64


def test_one_line_counts_once_for_each_trouble_in_it() -> None:
    line = b"CUDA_ERROR_OUT_OF_MEMORY cudaErrorMemoryAllocation; MemoryError\n"

    assert dict(scan(line).counts) == {"cuda_oom": 1, "memory_error": 1}


def test_rare_xids_share_a_code_so_that_there_are_few() -> None:
    assert {xid_code(number) for number in range(1000)} >= {"xid_79", "xid_other"}
    assert len({xid_code(number) for number in range(1000)}) < 20


def test_own_patterns_count_lines_and_a_slow_one_is_left_out() -> None:
    clock = Clock()

    class Slow:
        def search(self, line: str) -> object:
            clock.seconds += 0.2
            return None

    rows = [("quota", re.compile("quota (left|gone)")), ("slow", Slow())]
    own = OwnPatterns(rows, clock)  # type: ignore[arg-type]  # a pattern that takes its time

    first = own.count(b"quota gone\nquota left quota left\nother\n")
    second = own.count(b"quota gone\n")

    assert first["quota"] == 2
    assert own.slow == {"slow"}
    assert second["quota"] == 1


def test_own_patterns_have_half_a_second_a_read_and_what_they_miss_is_counted() -> None:
    clock = Clock()

    class Dear:
        def search(self, line: str) -> object:
            clock.seconds += 0.09
            return line

    own = OwnPatterns([("dear", Dear())], clock)  # type: ignore[list-item]  # see above

    counts = own.count(b"x\n" * 20) + own.count(b"x\n")
    unseen = own.unseen_lines
    own.begin()

    assert counts["dear"] == 6
    assert unseen == 15
    assert own.count(b"x\n")["dear"] == 1


ALL = [line for name in FILES for line in read(name).split(b"\n")]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_mangled_lines_never_raise_and_never_give_a_negative_number(data: st.DataObject) -> None:
    lines = data.draw(st.lists(st.sampled_from(ALL), min_size=1, max_size=4))
    text = bytearray(b"\n".join(lines))
    for _ in range(data.draw(st.integers(0, 6))):
        place = data.draw(st.integers(0, max(len(text) - 1, 0)))
        what = data.draw(
            st.sampled_from([b"", b"\x00", b"9" * 30, b"%", b",", b"\n", b"\xff", b"("])
        )
        text[place : place + data.draw(st.integers(0, 40))] = what

    hits = scan(bytes(text))
    values = limits_of(bytes(text)).values()

    assert all(count > 0 for count in hits.counts.values())
    assert all(0.0 < value < 1e24 for value in values.values())
    assert all(it.kv_cache_usage_ratio >= 0.0 for it in hits.statistics.values())


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_looked_through(raw: bytes) -> None:
    assert scan(raw).records >= 0
    assert LauncherRecord().take(raw) == {}


def test_the_table_names_only_files_that_are_there() -> None:
    assert set(FILES) == set(COUNTS)
    assert all(Path(LOGS / name).exists() for name in {**RECORDS, **LIMITS})
