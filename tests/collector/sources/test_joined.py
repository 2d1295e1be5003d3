"""What other sources know of a target joins the next scrape of its engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from collector.sources.joined import Companion, JoinedSource
from collector.sources.protocols import ScrapeStats
from detectors.records import Absence, Finding, GpuProcess, Noticed, Reading
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
