"""What other sources know of a target joins the next scrape of its engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from collector.sources.joined import Companion, JoinedSource
from collector.sources.protocols import ScrapeStats
from detectors.records import Absence, Identity, Reading
from detectors.remarks import Finding, GpuProcess, Noticed
from tests.builders import a_reading

pytestmark = pytest.mark.anyio


@dataclass
class Said:
    """A source that says what it is given, and remembers what it was told."""

    name: str
    reading: Reading
    learned: list[Mapping[str, float]] = field(default_factory=list)
    closed: int = 0

    async def read(self) -> Reading:
        return self.reading

    def stats(self) -> ScrapeStats:
        return ScrapeStats(outcomes={"read": 7})

    async def close(self) -> None:
        self.closed += 1

    def learn(self, limits: Mapping[str, float]) -> None:
        self.learned.append(limits)


@dataclass
class Noticing(Said):
    """A companion that wants to see the engine's scrapes."""

    seen: list[Reading] = field(default_factory=list)

    def notice(self, reading: Reading) -> None:
        self.seen.append(reading)


def of_gpu(
    values: Mapping[str, float],
    *,
    seconds: float = 0.0,
    absent: Mapping[str, Absence] | None = None,
) -> Reading:
    return replace(a_reading(values, absent=absent, seconds=seconds), source="gpu")


def joined(main: Reading, *, moment: float = 1000.0) -> tuple[JoinedSource, Said]:
    """Return a target with a GPU source read every 5 s, at `moment` of the monotonic clock."""
    page = Said("scrape:chat/a", main)
    gpu = Said("gpu:chat/a", a_reading())
    return JoinedSource(page, [Companion(gpu, 5.0)], monotonic=lambda: moment), page


async def test_a_companions_values_join_the_next_scrape_with_their_age() -> None:
    main = a_reading({"up": 1.0, "requests_running": 2.0}, seconds=4.0)
    source, _ = joined(main, moment=1004.0)

    await source.keep(
        0,
        replace(
            of_gpu(
                {"up": 1.0, "gpu_memory_used_bytes": 9.0},
                absent={"gpu_throttled": Absence.NO_SAMPLE},
            ),
            parts={"gpu_memory_used_bytes": {"0": 4.0, "1": 5.0}},
        ),
    )
    reading = await source.read()

    assert reading.values == {"up": 1.0, "requests_running": 2.0, "gpu_memory_used_bytes": 9.0}
    assert reading.parts == {"gpu_memory_used_bytes": {"0": 4.0, "1": 5.0}}
    assert reading.absent == {"gpu_throttled": Absence.NO_SAMPLE}
    assert reading.ages == {"gpu_memory_used_bytes": 4.0}
    assert reading.age_of("requests_running") == 0.0


async def test_a_companions_age_is_its_own_however_old_the_page_is() -> None:
    source, _ = joined(replace(a_reading(seconds=4.0), age_seconds=30.0), moment=1004.0)

    await source.keep(0, of_gpu({"gpu_memory_used_bytes": 9.0}))

    assert (await source.read()).age_of("gpu_memory_used_bytes") == 4.0


async def test_what_a_companion_has_not_said_lately_is_stale_not_unchanged() -> None:
    source, _ = joined(a_reading({"up": 1.0}), moment=1015.1)

    await source.keep(0, of_gpu({"gpu_memory_used_bytes": 9.0}))
    reading = await source.read()

    assert "gpu_memory_used_bytes" not in reading.values
    assert reading.absent == {"gpu_memory_used_bytes": Absence.STALE}


async def test_the_engines_own_word_wins_and_a_wanted_signal_gets_the_better_reason() -> None:
    main = a_reading({"requests_running": 2.0}, absent={"gpu_memory_used_bytes": Absence.NO_FAMILY})
    source, _ = joined(main)

    await source.keep(
        0, of_gpu({"requests_running": 99.0}, absent={"gpu_memory_used_bytes": Absence.NO_DRIVER})
    )
    reading = await source.read()

    assert reading.values == {"requests_running": 2.0}
    assert reading.absent == {"gpu_memory_used_bytes": Absence.NO_DRIVER}


async def test_a_failed_scrape_still_tells_what_the_gpu_says() -> None:
    source, _ = joined(a_reading({"up": 0.0}, problem="connection refused"))

    await source.keep(0, of_gpu({"gpu_memory_used_bytes": 9.0}))
    reading = await source.read()

    assert not reading.up
    assert reading.values == {"up": 0.0, "gpu_memory_used_bytes": 9.0}


async def test_a_change_is_said_once_and_a_finding_as_long_as_it_holds() -> None:
    source, _ = joined(a_reading())
    finding = Finding("gpu_lost", "gpu_memory_used_bytes", "GPU 1 is lost")

    await source.keep(0, replace(of_gpu({}), noticed=(Noticed("driver"),), findings=(finding,)))
    await source.keep(0, replace(of_gpu({}), noticed=(Noticed("vbios"),), findings=(finding,)))
    first, second = await source.read(), await source.read()

    assert [it.what for it in first.noticed] == ["driver", "vbios"]
    assert second.noticed == ()
    assert first.findings == second.findings == (finding,)


async def test_processes_travel_with_the_reading() -> None:
    source, _ = joined(a_reading())
    process = GpuProcess("0", 41, 2.0, "python", "target")

    await source.keep(0, replace(of_gpu({}), processes=(process,)))

    assert (await source.read()).processes == (process,)


async def test_limits_that_a_companion_found_reach_the_engines_page() -> None:
    source, page = joined(a_reading())

    await source.keep(0, of_gpu({"batch_token_budget": 4096.0, "gpu_memory_used_bytes": 1.0}))

    assert page.learned == [{"batch_token_budget": 4096.0}]


async def test_a_limit_that_nobody_tells_any_more_is_taken_back() -> None:
    source, page = joined(a_reading())

    await source.keep(0, of_gpu({"batch_token_budget": 4096.0}))
    await source.keep(0, of_gpu({}))

    assert page.learned == [{"batch_token_budget": 4096.0}, {}]


async def test_a_companion_that_does_not_know_a_signal_does_not_hide_why_the_page_lacks_it() -> (
    None
):
    source, _ = joined(a_reading(absent={"request_slots": Absence.NOT_IN_VERSION}))

    await source.keep(0, of_gpu({}, absent={"request_slots": Absence.NO_FAMILY}))

    assert (await source.read()).absent == {"request_slots": Absence.NOT_IN_VERSION}


async def test_why_a_companion_cannot_be_read_is_a_finding_while_it_lasts() -> None:
    source, _ = joined(a_reading())
    absent = {"gpu_throttled": Absence.SCRAPE_FAILED}

    await source.keep(0, replace(of_gpu({}, absent=absent), problem="cannot connect: refused"))
    (finding,) = (await source.read()).findings
    await source.keep(0, of_gpu({"gpu_throttled": 0.0}))

    assert (finding.code, finding.signal) == ("source_failed", "gpu_throttled")
    assert "'gpu' cannot be read: cannot connect: refused" in finding.text
    assert (await source.read()).findings == ()


async def test_a_page_without_a_server_to_ask_is_no_trouble() -> None:
    source, _ = joined(a_reading())
    silent = replace(of_gpu({}), source="facts", problem="answered 400")

    await source.keep(0, silent)

    assert (await source.read()).findings == ()


async def test_a_restart_is_a_change_whoever_else_is_asked() -> None:
    source, _ = joined(replace(a_reading(), restarted=True))

    assert (await source.read()).noticed == (Noticed("restart"),)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (Identity("vllm", ">=0.31.0", "tiny"), Identity("vllm", "0.32.0", "tiny")),
        (Identity("vllm", "", ""), Identity("vllm", "0.32.0", "tiny")),
        (Identity("vllm", ">=0.33.0", "tiny"), Identity("vllm", ">=0.33.0", "tiny")),
        (Identity("sglang", "", "tiny"), Identity("sglang", "", "tiny")),
    ],
)
async def test_a_server_that_answered_before_another_took_its_place_is_not_believed(
    page: Identity, expected: Identity
) -> None:
    source, _ = joined(replace(a_reading(), identity=page))
    told = Identity("vllm", "0.32.0", "tiny")

    await source.keep(0, replace(of_gpu({}), source="facts", identity=told))

    assert (await source.read()).identity == expected


async def test_a_companion_that_asks_to_is_shown_every_scrape() -> None:
    main = a_reading({"requests_running": 2.0})
    noticing = Noticing("facts:chat/a", a_reading())
    source = JoinedSource(
        Said("scrape:chat/a", main), [Companion(noticing, 60.0)], monotonic=lambda: 1000.0
    )

    await source.read()

    assert noticing.seen == [main]


async def test_closing_a_target_closes_everything_that_is_read_of_it() -> None:
    gpu, page = Said("gpu:chat/a", a_reading()), Said("scrape:chat/a", a_reading())
    source = JoinedSource(page, [Companion(gpu, 5.0)], monotonic=lambda: 1000.0)

    await source.close()

    assert (page.closed, gpu.closed) == (1, 1)
    assert source.stats().outcomes == {"read": 7}
