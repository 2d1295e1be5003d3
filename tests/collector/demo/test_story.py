"""The story against a service that shows, or does not show, what it should."""

from __future__ import annotations

import io
import json

import httpx2
import msgspec
import pytest
from rich.console import Console

from collector.demo.chapters import CHAPTERS, Moment
from collector.demo.client import Counts
from collector.demo.facts import Service, WatchError
from collector.demo.story import Story, StoryError, Told
from collector.demo.summary import Summary, show, summarise
from collector.demo.timeline import Timeline
from tests.collector.demo.fake_service import FakeWorld

pytestmark = pytest.mark.anyio


async def tell(world: FakeWorld, *, shed: bool = True) -> tuple[Story, list[Told], str]:
    """Tell the whole story; return it, how it went, and what was written."""
    written = io.StringIO()
    async with httpx2.AsyncClient(transport=world.transport()) as http:
        service = Service(http, url="http://service")

        async def look() -> Moment:
            sent = int(world.now_seconds * 10)
            return Moment(
                await service.look(), Counts(sent, sent if shed and world.ratio < 1 else 0)
            )

        story = Story(
            look=look,
            alive=lambda: None,
            levers=world,
            teller=Timeline(Console(file=written, width=200)),
            now=world.now,
            monotonic=lambda: world.now_seconds,
            sleep=world.sleep,
        )
        told = await story.tell(CHAPTERS)
    return story, told, written.getvalue()


def result(story: Story, told: list[Told]) -> Summary:
    counts = Counts(answered=900, shed=40)
    return summarise(told, story.times, counts, seconds=story.seconds, places=("page", "folder"))


async def test_a_story_that_is_seen_whole_passes_in_under_two_minutes() -> None:
    story, told, written = await tell(FakeWorld())

    summary = result(story, told)
    assert [row.passed for row in told] == [True] * len(CHAPTERS)
    assert summary.passed
    assert summary.seconds < 60
    assert summary.opened is not None
    assert summary.closed is not None
    assert summary.opened < summary.closed
    assert "closed     target c: calm" in written


async def test_the_longest_story_ends_within_three_and_a_half_minutes() -> None:
    assert sum(chapter.most_seconds for chapter in CHAPTERS) <= 210


@pytest.mark.parametrize(
    ("blind", "chapter", "mark"),
    [
        ("baseline", "baseline", "baseline of the tier"),
        ("input_drift", "input", "input drift"),
        ("output_drift", "output", "output drift"),
        ("kv_cache_saturated", "saturation", "saturation"),
        ("queue_growing", "saturation", "growing queue"),
        ("open", "saturation", "target opened"),
        ("suppressed", "shed", "guard"),
        ("shed", "shed", "tier shed"),
        ("half_open", "recovery", "half open"),
        ("closed", "recovery", "target closed"),
    ],
)
async def test_what_is_not_seen_fails_its_chapter_and_the_story_goes_on(
    blind: str, chapter: str, mark: str
) -> None:
    story, told, written = await tell(FakeWorld(blind=frozenset({blind})))

    failed = {row.chapter.key for row in told if not row.passed}
    missing = {name for row in told for name, at in row.marks.items() if at is None}
    assert chapter in failed
    assert mark in missing
    assert not result(story, told).passed
    assert CHAPTERS[-1].title in written


async def test_a_tier_that_sheds_without_a_503_at_the_client_fails() -> None:
    _, told, _ = await tell(FakeWorld(), shed=False)

    missing = [name for row in told for name, at in row.marks.items() if at is None]
    assert missing == ["503 with Retry-After"]


async def test_a_shift_of_many_signals_is_told_in_a_few_lines() -> None:
    _, _, written = await tell(FakeWorld())

    assert written.count("warning    prompt_") == 4
    assert "2 more verdicts of input_drift" in written
    assert written.count("suppressed target b") == 1


async def test_what_is_still_about_the_chapter_before_is_told_as_that() -> None:
    _, _, written = await tell(FakeWorld(lingers=True))

    lines = [line for line in written.splitlines() if " prompt_" in line]
    late = [line for line in lines if "prompt_tokens" in line]
    assert len(late) == 1
    assert late[0].endswith("(of the chapter before, whose requests are in the window still)")
    assert not any("chapter before" in line for line in lines if line not in late)


async def test_the_story_ends_when_the_service_stays_out_of_sight() -> None:
    with pytest.raises(StoryError, match="20 looks"):
        await tell(FakeWorld(blind=frozenset({"/v1/breakers"})))


async def test_the_story_ends_when_a_part_has_died() -> None:
    world = FakeWorld()

    def dead() -> None:
        raise StoryError("the service ended with status 1")

    story = Story(
        look=lambda: pytest.fail("nobody looks any more"),
        alive=dead,
        levers=world,
        teller=Timeline(Console(file=io.StringIO())),
        now=world.now,
        monotonic=lambda: world.now_seconds,
        sleep=world.sleep,
    )

    with pytest.raises(StoryError, match="status 1"):
        await story.tell(CHAPTERS)


async def test_without_a_terminal_the_status_is_a_line_now_and_then() -> None:
    _, _, written = await tell(FakeWorld())

    status = [line for line in written.splitlines() if " answered · " in line]
    assert 1 <= len(status) <= 6
    assert "\x1b" not in written


async def test_the_summary_says_what_passed_and_what_was_not_seen() -> None:
    story, told, _ = await tell(FakeWorld(blind=frozenset({"input_drift"})))
    written = io.StringIO()

    show(result(story, told), Timeline(Console(file=written, width=200)))

    lines = written.getvalue().splitlines()
    assert any(line.startswith("  PASS  1. ") for line in lines)
    assert "  FAIL  2. One upstream starts to send JSON (not seen: input drift)" in lines
    assert any("900 answers of 200, 40 of 503 with Retry-After" in line for line in lines)
    assert any(line.startswith("  logs of the run: folder") for line in lines)


async def test_the_summary_of_a_pass_says_that_the_folder_stays() -> None:
    story, told, _ = await tell(FakeWorld())
    written = io.StringIO()

    show(result(story, told), Timeline(Console(file=written, width=200)))

    last = written.getvalue().splitlines()[-1]
    assert last == "  logs of the run: folder; the folder stays and may be removed"


async def test_the_summary_is_one_json_object() -> None:
    story, told, _ = await tell(FakeWorld())

    read = json.loads(msgspec.json.encode(result(story, told)))

    assert read["passed"] is True
    assert [row["key"] for row in read["chapters"]] == [chapter.key for chapter in CHAPTERS]
    assert read["chapters"][0]["marks"]["baseline of the tier"] == 5.5


async def test_an_answer_that_is_not_of_the_expected_form_names_path_and_place() -> None:
    def handler(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=[{"at": "yesterday"}])

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as http:
        with pytest.raises(WatchError, match=r"GET /v1/verdicts.*not the expected form"):
            await Service(http, url="http://service").look()


async def test_a_service_that_does_not_answer_is_not_ready() -> None:
    def handler(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(handler)) as http:
        assert not await Service(http, url="http://service").ready()
    async with httpx2.AsyncClient(transport=FakeWorld().transport()) as http:
        assert await Service(http, url="http://service").ready()
