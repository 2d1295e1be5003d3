"""LiteLLM's hook without LiteLLM: what it sends, what it drops, and that nobody waits for it."""

from __future__ import annotations

import http.server
import importlib.util
import json
import sys
import threading
import types
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exporters import embed

FILE = Path(embed.__file__).parent / "litellm_hook.py"


@dataclass
class Sink:
    """A Fusewire that answers what a test tells it, in order, then 200."""

    url: str = ""
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    authorization: list[str] = field(default_factory=list)
    posts: int = 0
    gets: int = 0
    body: bytes = b""


@pytest.fixture
def sink() -> Iterator[Sink]:
    found = Sink()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, headers = found.answers.pop(0) if found.answers else (200, {})
            found.authorization.append(self.headers.get("authorization", ""))
            if status == 200:
                found.lines += [json.loads(line) for line in body.splitlines()]
            found.posts += 1
            self.send_response(status)
            for name, value in {"content-length": str(len(found.body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(found.body)

        def do_GET(self) -> None:
            found.gets += 1
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield found
        server.shutdown()
        thread.join()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The file as LiteLLM imports it, with an empty class in the place of LiteLLM's."""
    base = types.ModuleType("litellm.integrations.custom_logger")
    base.CustomLogger = type("CustomLogger", (), {})  # type: ignore[attr-defined]  # a stand-in
    for name in ("litellm", "litellm.integrations"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, base.__name__, base)
    for name in ("FUSEWIRE_URL", "FUSEWIRE_SAMPLE"):
        monkeypatch.delenv(name, raising=False)
    spec = importlib.util.spec_from_file_location("fusewire_litellm_hook", FILE)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def soon(condition: Callable[[], object]) -> None:
    wait = threading.Event()
    for _ in range(400):
        if condition():
            return
        wait.wait(0.025)
    raise AssertionError("not seen within 10 s")


def a_payload(**more: object) -> dict[str, Any]:
    response = {"choices": [{"message": {"content": "four"}, "logprobs": {"content": []}}]}
    payload = {
        "litellm_call_id": "call-1",
        "model_group": "gpt",
        "api_base": "http://10.0.0.1:8000/v1",
        "startTime": 1_795_953_600.5,
        "response_time": 0.25,
        "model_parameters": {"temperature": 0.5, "api_key": "sk-secret"},
        "messages": [{"role": "user", "content": "one two three"}],
        "response": response,
    }
    return {"standard_logging_object": {**payload, **more}}


@pytest.mark.anyio
async def test_a_plain_call_is_sent_with_its_tier_target_time_and_parameters(
    module: types.ModuleType, sink: Sink
) -> None:
    hook = module.FusewireHook(module.Settings(sink.url, token="t", tiers={"gpt": "chat"}))

    await hook.async_log_success_event(a_payload(), None, None, None)
    soon(lambda: sink.lines)

    (line,) = sink.lines
    assert (line["id"], line["tier"], line["target"]) == ("call-1", "chat", "10.0.0.1:8000")
    assert (line["at"], line["latency_seconds"]) == (1_795_953_600.5, 0.25)
    assert line["request"]["temperature"] == 0.5
    assert line["request"]["messages"][0]["content"] == "one two three"
    assert sink.authorization == ["Bearer t"]
    assert "sk-secret" not in json.dumps(line)


@pytest.mark.anyio
async def test_a_stream_passes_unchanged_and_its_success_event_is_not_counted_again(
    module: types.ModuleType, sink: Sink
) -> None:
    hook = module.FusewireHook(module.Settings(sink.url))
    chunks = [{"choices": [{"delta": {"content": word}, "logprobs": {}}]} for word in "abc"]

    async def stream() -> AsyncIterator[object]:
        for chunk in chunks:
            yield chunk

    asked = {"litellm_call_id": "call-1", "model": "chat", "messages": []}
    passed = [
        it async for it in hook.async_post_call_streaming_iterator_hook(None, stream(), asked)
    ]
    await hook.async_log_success_event(a_payload(), None, None, None)
    soon(lambda: sink.lines)

    assert passed == chunks
    assert [line["response"] for line in sink.lines] == [chunks]
    assert sink.lines[0]["id"] == "call-1"


@pytest.mark.anyio
async def test_without_text_only_numbers_leave(module: types.ModuleType, sink: Sink) -> None:
    hook = module.FusewireHook(module.Settings(sink.url, text=False))
    token = {"token": "secret", "bytes": [1], "logprob": -0.5, "top_logprobs": []}
    choice = {"message": {"content": "secret"}, "logprobs": {"content": [token]}}

    await hook.async_log_success_event(
        a_payload(response={"choices": [choice], "usage": {"prompt_tokens": 3}}), None, None, None
    )
    soon(lambda: sink.lines)

    (line,) = sink.lines
    assert "secret" not in json.dumps(line)
    assert "one two three" not in json.dumps(line)
    kept = line["response"]["choices"][0]["logprobs"]["content"][0]
    assert kept == {"logprob": -0.5, "top_logprobs": []}
    assert line["response"]["usage"] == {"prompt_tokens": 3}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("choice", "kept"),
    [
        (
            {
                "text": "secret",
                "logprobs": {
                    "tokens": ["secret"],
                    "token_logprobs": [-0.5],
                    "top_logprobs": [{"secret": -0.5, " secret": -1.5}],
                },
            },
            {
                "logprobs": {
                    "tokens": [],
                    "token_logprobs": [-0.5],
                    "top_logprobs": [{"0": -0.5, "1": -1.5}],
                }
            },
        ),
        (
            {
                "message": {
                    "role": "assistant",
                    "reasoning": "secret",
                    "refusal": "secret",
                    "thinking_blocks": [{"thinking": "secret"}],
                    "audio": {"transcript": "secret"},
                    "function_call": {"name": "secret"},
                    "provider_specific_fields": {"anything": "secret"},
                    "content": [{"type": "text", "text": "secret"}],
                },
                "prompt_token_ids": [19, 5, 3, 18, 5, 20],
            },
            {"message": {"content": [{}]}},
        ),
    ],
    ids=["completions", "members that carry text"],
)
async def test_no_form_of_text_leaves_without_leave(
    module: types.ModuleType, sink: Sink, choice: dict[str, Any], kept: dict[str, Any]
) -> None:
    hook = module.FusewireHook(module.Settings(sink.url, text=False))
    payload = a_payload(response={"id": "a", "choices": [{"index": 0, **choice}]})

    await hook.async_log_success_event(payload, None, None, None)
    soon(lambda: sink.lines)

    assert "secret" not in json.dumps(sink.lines)
    assert sink.lines[0]["response"] == {"id": "a", "choices": [{"index": 0, **kept}]}


@pytest.mark.anyio
async def test_a_long_stream_is_encoded_as_it_passes_and_not_at_its_end(
    module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once would hold up LiteLLM's loop: 90 ms for 2,000 tokens with 20 candidates."""
    sizes: list[int] = []
    dumps = json.dumps

    def measured(value: object, **more: Any) -> str:
        text = dumps(value, **more)
        sizes.append(len(text))
        return text

    async def stream() -> AsyncIterator[object]:
        for _ in range(100):
            yield {"choices": [{"delta": {"content": "word" * 10}}]}

    monkeypatch.setattr(module.json, "dumps", measured)
    hook = module.FusewireHook(module.Settings("http://127.0.0.1:9"))
    asked = {"litellm_call_id": "call-1", "model": "chat", "messages": []}

    async for _ in hook.async_post_call_streaming_iterator_hook(None, stream(), asked):
        pass

    assert len(sizes) == 101
    assert max(sizes) < 200


@pytest.mark.anyio
async def test_a_chunk_that_cannot_be_read_does_not_break_the_caller_s_stream(
    module: types.ModuleType, sink: Sink
) -> None:
    class Odd:
        def model_dump(self, **_: object) -> object:
            warnings.warn("unexpected value", UserWarning, stacklevel=1)  # an error, in tests
            return {}

    async def stream() -> AsyncIterator[object]:
        yield Odd()
        yield "data: [DONE]"
        yield {"choices": [{"delta": {"content": "a"}}]}

    hook = module.FusewireHook(module.Settings(sink.url))
    asked = {"litellm_call_id": "call-1", "model": "chat", "messages": []}

    passed = [
        it async for it in hook.async_post_call_streaming_iterator_hook(None, stream(), asked)
    ]
    soon(lambda: sink.lines)

    assert len(passed) == 3
    assert sink.lines[0]["response"] == [{}, {}, passed[2]]


def test_a_redirect_is_not_followed_and_not_taken_for_success(
    module: types.ModuleType, sink: Sink
) -> None:
    sink.answers = [(302, {"location": f"{sink.url}/elsewhere"})]
    outbox = module.Outbox(module.Settings(sink.url, token="t"))

    outbox.put({"id": 1})
    soon(lambda: outbox.counts["refused"])

    assert (sink.posts, sink.gets) == (1, 0)
    assert outbox.counts["sent"] == 0


def test_a_proxy_of_the_environment_does_not_see_what_is_sent(
    module: types.ModuleType, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing is there
    monkeypatch.setenv("no_proxy", "")
    outbox = module.Outbox(module.Settings(sink.url), sleep=lambda _: None)

    outbox.put({"id": 1})
    soon(lambda: sum(outbox.counts.values()))

    assert outbox.counts["sent"] == 1


def test_lines_that_fusewire_did_not_take_are_counted(module: types.ModuleType, sink: Sink) -> None:
    sink.body = b'{"accepted": 1, "rejected": [{"line": 2, "reason": "no_tier"}]}'
    outbox = module.Outbox(module.Settings(sink.url))
    outbox._ready.acquire()  # so that both go in one batch

    outbox.put({"id": 1})
    outbox.put({"id": 2})
    outbox._ready.release()
    soon(lambda: sum(outbox.counts.values()) == 2)

    assert outbox.counts == {"sent": 1, "dropped": 0, "refused": 1, "lost": 0}


def test_a_full_service_is_asked_again_after_what_it_said(
    module: types.ModuleType, sink: Sink
) -> None:
    sink.answers = [(429, {"retry-after": "7"}), (503, {})]
    slept: list[float] = []
    outbox = module.Outbox(module.Settings(sink.url), sleep=slept.append)

    outbox.put({"id": 1})
    soon(lambda: outbox.counts["sent"])

    assert sink.posts == 3
    assert slept[0] == 7.0
    assert 1.0 <= slept[1] <= 2.0
    assert outbox.counts == {"sent": 1, "dropped": 0, "refused": 0, "lost": 0}


def test_what_fusewire_refuses_is_not_sent_again(module: types.ModuleType, sink: Sink) -> None:
    sink.answers = [(422, {})]
    outbox = module.Outbox(module.Settings(sink.url))

    outbox.put({"id": 1})
    soon(lambda: outbox.counts["refused"])

    assert sink.posts == 1


def test_what_finds_no_room_is_dropped_and_counted_and_nobody_waits(
    module: types.ModuleType,
) -> None:
    gone = threading.Event()
    outbox = module.Outbox(
        module.Settings("http://127.0.0.1:9"), sleep=lambda _: bool(gone.wait(10)), most=5
    )

    for number in range(500):
        outbox.put({"id": number})
    gone.set()

    assert outbox.counts["dropped"] >= 500 - 5 - module.BATCH_MOST
    assert outbox.counts["dropped"] > 0


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"FUSEWIRE_SAMPLE": "2"}, "FUSEWIRE_SAMPLE"),
        ({"FUSEWIRE_SAMPLE": "x"}, "FUSEWIRE_ variable"),
        ({"FUSEWIRE_TIERS": "{"}, "FUSEWIRE_ variable"),
        ({"FUSEWIRE_TOKEN_FILE": "/nowhere"}, "FUSEWIRE_ variable"),
    ],
    ids=["share", "number", "json", "file"],
)
def test_a_setting_that_cannot_be_used_is_told(
    module: types.ModuleType, environ: dict[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        module.Settings.from_environment(environ)


@pytest.mark.anyio
async def test_logprobs_are_asked_for_only_where_the_caller_says_nothing(
    module: types.ModuleType,
) -> None:
    hook = module.FusewireHook(module.Settings("http://127.0.0.1:9", ask_top=5))

    silent = await hook.async_pre_call_hook(None, None, {}, "acompletion")
    refusing = await hook.async_pre_call_hook(None, None, {"logprobs": False}, "acompletion")
    embedding = await hook.async_pre_call_hook(None, None, {}, "aembedding")

    assert silent == {"logprobs": True, "top_logprobs": 5}
    assert refusing == {"logprobs": False}
    assert embedding == {}
