"""The log source: events by reason, limits, findings with amounts, and no text of any line."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from collector.sources.logs import follow as log_follow
from collector.sources.logs.lines import LogConfig, LogPatternConfig
from collector.sources.protocols import Source
from detectors.records import Identity, Reading
from tests.collector.sources.looked import FIXTURES, Clock, codes, finding, looking
from tests.collector.sources.servers import NOW

pytestmark = pytest.mark.anyio
LOGS = FIXTURES / "logs"
STATISTICS = (
    "INFO 01-01 00:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s, "
    "Avg generation throughput: 1.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: {percent}%, Prefix cache hit rate: 0.0%\n"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "server.log"
    path.write_bytes(b"")
    return path


def append(path: Path, data: bytes | str) -> None:
    with path.open("ab") as file:
        file.write(data if isinstance(data, bytes) else data.encode())


def page_reading(clock: Clock, usage: float | None) -> Reading:
    reading = Reading("chat", "a", "scrape", NOW, clock(), 0.0, identity=Identity("vllm"))
    return reading if usage is None else replace(reading, values={"kv_cache_usage_ratio": usage})


async def test_events_are_counted_from_now_on_by_reason(log: Path) -> None:
    append(log, (LOGS / "torch-oom-lines.txt").read_bytes())
    async with looking(LogConfig(path=log)) as source:
        before = await source.read()
        append(log, (LOGS / "kernel-oom-lines.txt").read_bytes())
        after = await source.read()
        still = await source.read()

    assert before.values["log_events_total"] == 0.0
    assert after.values["log_events_total"] == 12.0
    assert after.parts["log_events_total"]["kernel_oom_kill"] == 4.0
    assert still.values["log_events_total"] == 12.0
    assert after.source == "log"


async def test_the_whole_file_counts_where_it_is_wanted(log: Path) -> None:
    append(log, (LOGS / "torch-oom-lines.txt").read_bytes())

    async with looking(LogConfig(path=log, from_end=False)) as source:
        reading = await source.read()

    assert reading.parts["log_events_total"] == {"torch_oom": 8.0}


async def test_an_error_of_torch_is_told_with_its_amounts_and_what_to_do(log: Path) -> None:
    fragmented = (LOGS / "torch-oom-lines.txt").read_bytes().split(b"\n")[6] + b"\n"
    clock = Clock()
    async with looking(LogConfig(path=log), clock) as source:
        await source.read()
        append(log, fragmented)
        reading = await source.read()
        clock.seconds += 601
        later = await source.read()

    text = finding(reading, "oom_with_room").text
    assert "tried 546.00 MiB, 514.19 MiB free, 15.77 GiB in all" in text
    assert "736.86 MiB of that unused" in text
    assert "expandable_segments" in text
    assert "1 log line" in finding(reading, "torch_oom").text
    assert later.findings == ()
    assert later.values["log_events_total"] == 1.0


async def test_where_the_driver_had_room_fragmentation_is_not_blamed(log: Path) -> None:
    old = (LOGS / "torch-oom-lines.txt").read_bytes().split(b"\n")[3] + b"\n"
    async with looking(LogConfig(path=log)) as source:
        await source.read()
        append(log, old)
        reading = await source.read()

    assert "memory fraction" in finding(reading, "oom_with_room").text


async def test_limits_are_read_from_what_stood_in_the_file_already(log: Path) -> None:
    append(log, (LOGS / "vllm-start-lines.txt").read_bytes())

    async with looking(LogConfig(path=log)) as source:
        reading = await source.read()

    assert reading.values["kv_cache_capacity_tokens"] == 296_208
    assert reading.values["request_slots"] == 128
    assert reading.values["context_tokens"] == 65_536
    assert reading.values["log_events_total"] == 0.0


async def test_tgi_states_its_batch_token_budget(log: Path) -> None:
    async with looking(LogConfig(path=log)) as source:
        await source.read()
        append(log, (LOGS / "tgi-start-lines.txt").read_bytes())
        reading = await source.read()

    assert reading.values["batch_token_budget"] == 65_536


async def test_a_server_on_its_way_up_is_told_until_its_page_is_served(log: Path) -> None:
    clock = Clock()
    async with looking(LogConfig(path=log), clock) as source:
        await source.read()
        append(log, "INFO vLLM API server version 0.11.0\n")
        starting = await source.read()
        hear(source, page_reading(clock, 0.0))
        up = await source.read()

    assert codes(starting) == ["engine_starting"]
    assert codes(up) == []


def hear(source: Source, reading: Reading) -> None:
    notice = getattr(source, "notice")  # noqa: B009  # as JoinedSource finds it
    notice(reading)


@pytest.mark.parametrize("page", [0.0, None])
async def test_a_log_that_says_other_than_the_page_three_times_is_a_finding(
    log: Path, page: float | None
) -> None:
    clock, found = Clock(), []
    async with looking(LogConfig(path=log), clock) as source:
        await source.read()
        for _ in range(4):
            clock.seconds += 10
            hear(source, page_reading(clock, page))
            append(log, STATISTICS.format(percent=57.9))
            found.append(codes(await source.read()))

    assert found == [[], [], ["log_disagrees_with_page"], ["log_disagrees_with_page"]]


async def test_a_log_that_agrees_with_the_page_is_no_finding(log: Path) -> None:
    clock = Clock()
    async with looking(LogConfig(path=log), clock) as source:
        for _ in range(5):
            clock.seconds += 10
            hear(source, page_reading(clock, 0.5))
            append(log, STATISTICS.format(percent=57.9))
            reading = await source.read()
            assert codes(reading) == []
            assert "kv_cache_usage_ratio" not in reading.values  # a cross-check, no source of it


async def test_no_text_of_a_line_leaves(log: Path) -> None:
    secret = "Mx7-private"
    async with looking(LogConfig(path=log)) as source:
        await source.read()
        for line in (LOGS / "trouble-lines.txt").read_text().splitlines():
            append(log, f"{secret} {line} {secret}\n")
        append(log, f"CUDA out of memory. Tried to allocate 1.00 GiB {secret}\n")
        reading = await source.read()

    assert reading.values["log_events_total"] > 20
    assert "Mx7" not in repr(reading)
    assert "Mx7" not in repr(source.stats())


async def test_own_patterns_are_counted_under_their_code(log: Path) -> None:
    own = LogPatternConfig(code="license", regex=r"license (server|file) \w+ unreachable")
    async with looking(LogConfig(path=log, patterns=(own,))) as source:
        await source.read()
        append(log, "license server lm1 unreachable\nlicense file lm1 there\n")
        reading = await source.read()

    assert reading.parts["log_events_total"] == {"license": 1.0}
    assert reading.findings == ()


@pytest.mark.parametrize("regex", ["(a+)+", "(", "", "a.*b.*c.*d", r"x\1"])
def test_patterns_that_could_take_for_ever_or_match_everything_are_refused(regex: str) -> None:
    with pytest.raises(ValidationError):
        LogPatternConfig(code="x", regex=regex)


async def test_one_of_several_files_that_is_missing_is_a_finding_all_are_a_problem(
    log: Path, tmp_path: Path
) -> None:
    kernel = tmp_path / "kern.log"
    async with looking(LogConfig(path=log, files=(kernel,))) as source:
        one = await source.read()
        append(kernel, (LOGS / "kernel-oom-lines.txt").read_bytes())
        both = await source.read()
    async with looking(LogConfig(path=kernel.with_suffix(".no"))) as source:
        none = await source.read()

    assert one.up
    assert codes(one) == ["log_unreadable"]
    assert both.values["log_events_total"] == 12.0
    assert not none.up
    assert "as soon as it appears" in none.problem


async def test_a_log_that_grows_too_fast_is_told_and_read_on(log: Path) -> None:
    async with looking(LogConfig(path=log)) as source:
        await source.read()
        append(log, b"nothing of note, as most lines are\n" * 200_000)  # 7 MB
        behind = await source.read()
        caught_up = await source.read()

    assert codes(behind) == ["log_behind"]
    assert "2.6" in finding(behind, "log_behind").text
    assert codes(caught_up) == []


async def test_what_is_passed_over_is_told_of_its_file_only(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follow, "MOST_LAG_BYTES", 1_000_000)
    quiet = tmp_path / "quiet.log"
    append(quiet, "x\n")
    append(log, b"nothing of note, as most lines are\n" * 100_000)
    async with looking(LogConfig(path=log, files=(quiet,), from_end=False)) as source:
        reading = await source.read()
        stats = source.stats()

    assert codes(reading) == ["log_passed_over"]
    assert str(log) in finding(reading, "log_passed_over").text
    assert stats.skipped == {"bytes passed over": 3_500_000 - 262_144}


async def test_a_pattern_that_is_too_slow_is_told(log: Path) -> None:
    own = LogPatternConfig(code="slow", regex=r".*.*x")
    clock = Clock()
    ticking = iter(range(1000))

    class Ticking(Clock):
        def __call__(self) -> float:
            return clock.seconds + 0.2 * next(ticking)

    async with looking(LogConfig(path=log, patterns=(own,)), Ticking()) as source:
        await source.read()
        append(log, "any line\n")
        reading = await source.read()

    assert codes(reading) == ["pattern_too_slow"]


async def test_lines_that_cannot_be_used_are_counted(log: Path) -> None:
    async with looking(LogConfig(path=log)) as source:
        await source.read()
        append(log, b"x" * 40_000 + b"\n")
        await source.read()
        os.truncate(log, 0)
        await source.read()
        stats = source.stats()

    assert stats.skipped == {"long line": 2, "truncated": 1}
    assert stats.outcomes == {"read": 3}
