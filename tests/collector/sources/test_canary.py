"""The canary on answers of a real vLLM: silent while nothing changes, loud when weights do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx2
import pytest

from collector.sources.server.canary import SIGNAL, CanaryConfig, CanarySource
from collector.sources.server.canary_answers import AnswersError
from collector.sources.server.canary_prompts import PROMPTS
from detectors.records import Absence, Reading
from tests.collector.sources.engine_server import (
    ANSWERS,
    Reply,
    Route,
    a_scrape,
    engine,
    place,
    recorded,
    said,
    tools,
)

pytestmark = pytest.mark.anyio
ROUNDS = json.loads((ANSWERS / "canary-0.32.0.json").read_bytes())
COMPLETIONS = "/v1/completions"
SIZE = 24


@dataclass
class Engine:
    """A vLLM that answers round by round as the recorded ones of `plan`, the last for ever."""

    plan: list[str] = field(default_factory=lambda: ["base"])
    most_top: int = 20
    questions: list[dict[str, object]] = field(default_factory=list)
    before: Callable[[int], None] = lambda number: None

    def __call__(self, body: bytes) -> Reply:
        question = json.loads(body)
        self.before(len(self.questions))
        if question["logprobs"] > self.most_top:
            return 400, recorded("vllm-0.32.0-err-logprobs-21.json")[1]
        self.questions.append(question)
        number = (len(self.questions) - 1) // SIZE
        name = self.plan[min(number, len(self.plan) - 1)]
        return said(ROUNDS[name][PROMPTS.index(question["prompt"])])


@dataclass
class Scene:
    """A canary over such an engine."""

    source: CanarySource
    engine: Engine
    url: str
    client: httpx2.AsyncClient

    async def read(self, scrape: Reading | None = None) -> Reading:
        self.source.notice(scrape or a_scrape())
        return await self.source.read()

    def again(self, config: CanaryConfig) -> Scene:
        """Return a canary of another Fusewire over the same engine."""
        source = CanarySource(config, place(self.url), tools(self.client))
        return Scene(source, self.engine, self.url, self.client)


@pytest.fixture
async def scene(anyio_backend: str) -> AsyncIterator[Scene]:
    answers = Engine()
    models = recorded("vllm-0.32.0-models.json")
    routes: dict[str, Route] = {"/v1/models": models, COMPLETIONS: answers}
    async with engine(routes) as server, httpx2.AsyncClient() as client:
        source = CanarySource(CanaryConfig(), place(server.url), tools(client))
        yield Scene(source, answers, server.url, client)


def told(reading: Reading) -> tuple[list[str], list[str]]:
    return [it.code for it in reading.findings], [it.what for it in reading.noticed]


async def test_two_rounds_make_the_reference_and_its_floor(scene: Scene) -> None:
    reading = await scene.read()

    assert reading.values[SIGNAL] == 0.0
    assert told(reading) == ([], [])
    assert len(scene.engine.questions) == 2 * SIZE
    for question in scene.engine.questions:
        assert (question["max_tokens"], question["logprobs"]) == (1, 20)
        assert (question["temperature"], question["return_tokens_as_token_ids"]) == (0, True)


async def test_the_same_weights_stay_silent(scene: Scene) -> None:
    scene.engine.plan = ["base", "base", "again"]
    await scene.read()

    reading = await scene.read()

    assert reading.values[SIGNAL] < 1e-3
    assert told(reading) == ([], [])
    assert len(scene.engine.questions) == 3 * SIZE


@pytest.mark.parametrize(("name", "least"), [("noise", 1.0), ("int8", 0.005)])
async def test_other_weights_are_noticed_once_and_are_a_finding_as_long_as_they_stay(
    scene: Scene, name: str, least: float
) -> None:
    scene.engine.plan = ["base", "base", *[name] * 4, "base"]
    await scene.read()

    first, second, third = await scene.read(), await scene.read(), await scene.read()

    assert first.values[SIGNAL] > least
    assert told(first) == (["canary_diverged"], ["weights"])
    assert first.noticed[0].before != first.noticed[0].after
    assert told(second) == (["canary_diverged"], [])
    assert told(third) == ([], [])


async def test_a_moment_of_noise_does_not_come_twice_and_is_no_change(scene: Scene) -> None:
    scene.engine.plan = ["base", "base", "int8", "base"]
    await scene.read()

    reading = await scene.read()

    assert len(scene.engine.questions) == 4 * SIZE
    assert reading.values[SIGNAL] < 1e-3
    assert told(reading) == ([], [])


async def test_the_noise_of_a_repeat_raises_the_limit(scene: Scene) -> None:
    scene.engine.plan = ["base", "int8"]  # as if batches moved the answers as far as int8 does

    first, second = await scene.read(), await scene.read()

    assert first.values[SIGNAL] == second.values[SIGNAL] > 0.005
    assert told(second) == ([], [])


async def test_under_load_nothing_is_asked(scene: Scene) -> None:
    reading = await scene.read(a_scrape({"requests_waiting": 2.0}))

    assert scene.engine.questions == []
    assert reading.absent[SIGNAL] is Absence.SKIPPED
    assert reading.up


async def test_load_that_comes_ends_the_round_and_costs_the_reference_nothing(
    scene: Scene,
) -> None:
    await scene.read()

    def load(number: int) -> None:
        if number == 2 * SIZE + 5:
            scene.source.notice(a_scrape({"requests_waiting": 2.0}))

    scene.engine.before = load
    during, after = await scene.read(), await scene.read()

    assert during.absent[SIGNAL] is Absence.SKIPPED
    assert len(scene.engine.questions) == 2 * SIZE + 6 + SIZE
    assert after.values[SIGNAL] == 0.0


async def test_a_reference_survives_a_restart_and_a_change_is_told_once_over_it(
    scene: Scene,
) -> None:
    scene.engine.plan = ["base", "base", "int8"]
    await scene.read()

    other = scene.again(CanaryConfig())
    other.source.load(scene.source.save())
    first = await other.read()
    third = scene.again(CanaryConfig())
    third.source.load(other.source.save())
    second = await third.read()

    assert told(first) == (["canary_diverged"], ["weights"])
    assert told(second) == (["canary_diverged"], [])


async def test_a_new_label_accepts_the_present_answers(scene: Scene) -> None:
    scene.engine.plan = ["base", "base", "int8"]
    await scene.read()
    assert told(await scene.read()) == (["canary_diverged"], ["weights"])

    other = scene.again(CanaryConfig(accept="int8 since November"))
    other.source.load(scene.source.save())

    assert told(await other.read()) == ([], [])
    assert (await other.read()).values[SIGNAL] == 0.0


async def test_another_version_or_model_has_a_reference_of_its_own(scene: Scene) -> None:
    scene.engine.plan = ["base", "base", "int8"]
    await scene.read()

    reading = await scene.read(a_scrape(version="0.33.0"))

    assert told(reading) == ([], [])
    assert scene.source.stats().outcomes == {"reference": 2}


async def test_a_version_that_becomes_surer_is_the_same_one_also_over_a_restart(
    scene: Scene,
) -> None:
    scene.engine.plan = ["base", "base", "base", "int8"]
    await scene.read(a_scrape(version=">=0.31.0"))
    await scene.read(a_scrape(version="0.32.0"))

    other = scene.again(CanaryConfig())
    other.source.load(scene.source.save())
    at_start = await other.read(a_scrape(version=">=0.31.0"))
    upgraded = await other.read(a_scrape(version="0.33.0"))

    assert told(at_start) == (["canary_diverged"], ["weights"])
    assert told(upgraded) == ([], [])


async def test_a_server_that_gives_fewer_alternatives_is_asked_for_fewer(scene: Scene) -> None:
    scene.engine.most_top = 5

    reading = await scene.read()

    assert {question["logprobs"] for question in scene.engine.questions} == {5}
    assert reading.values[SIGNAL] == 0.0


@pytest.mark.parametrize(
    ("answer", "why", "code"),
    [
        ((400, recorded("vllm-0.32.0-nanweights.json")[1]), Absence.UNUSABLE, "canary_refused"),
        (said({"choices": [{"logprobs": None}]}), Absence.UNUSABLE, "canary_refused"),
        (
            said({"choices": [{"logprobs": {"top_logprobs": [{"a": 7.5, "b": -3.0}]}}]}),
            Absence.UNUSABLE,
            "canary_refused",
        ),
        (
            said({"choices": [{"logprobs": {"top_logprobs": [{"a": -0.1, "b": -0.1}]}}]}),
            Absence.UNUSABLE,
            "canary_refused",
        ),
        ((500, b"{}"), Absence.SCRAPE_FAILED, None),
        ((503, b"{}"), Absence.SKIPPED, None),
    ],
    ids=["nan weights", "no logprobs", "logits", "no distribution", "500", "busy"],
)
async def test_what_cannot_be_compared_is_said_and_is_no_number(
    scene: Scene, answer: Reply, why: Absence, code: str | None
) -> None:
    routes = {"/v1/models": recorded("vllm-0.32.0-models.json"), COMPLETIONS: answer}
    async with engine(routes) as server:
        source = CanarySource(CanaryConfig(), place(server.url), tools(scene.client))
        source.notice(a_scrape())

        reading = await source.read()

    assert reading.absent[SIGNAL] is why
    assert [it.code for it in reading.findings] == ([code] if code else [])
    assert source.reference is None


@pytest.mark.parametrize("data", [b"x", b"\x90", b"\x95\x07\xa0\x90\xcb" + b"\0" * 8 + b"\xc2"])
async def test_bytes_that_are_no_reference_are_refused_and_change_nothing(
    scene: Scene, data: bytes
) -> None:
    await scene.read()
    before = scene.source.save()

    with pytest.raises(AnswersError, match="become a new one"):
        scene.source.load(data)

    assert scene.source.save() == before


async def test_of_answers_only_hashes_and_numbers_are_kept(scene: Scene) -> None:
    await scene.read()

    saved = scene.source.save()

    assert b"token_id" not in saved
    assert not any(prompt.encode() in saved for prompt in PROMPTS)
    assert len(saved) < 20_000


def test_the_prompts_are_short_and_differ() -> None:
    assert len(set(PROMPTS)) == len(PROMPTS) >= 20
    assert all(0 < len(prompt) < 80 and prompt == prompt.rstrip() for prompt in PROMPTS)
