"""Fusewire's hook for LiteLLM: every generation, streamed or not, with its logprobs, to Fusewire.

One file beside LiteLLM's `config.yaml`, standard library and LiteLLM only, Python 3.9 or newer:

    litellm_settings: {callbacks: fusewire_litellm_hook.fusewire}

    FUSEWIRE_URL=http://127.0.0.1:9731     where Fusewire listens; without it nothing is sent
    FUSEWIRE_TOKEN_FILE=/run/token         bearer token, if Fusewire wants one
    FUSEWIRE_TIERS={"gpt-4o": "chat"}      tier of a model group; else the group's name is the tier
    FUSEWIRE_SAMPLE=0.1                    share of calls that is sent; declared to Fusewire
    FUSEWIRE_TEXT=0                        send no prompts and answers, only numbers
    FUSEWIRE_ASK_TOP_LOGPROBS=5            ask for logprobs where the caller says nothing of them

A caller never waits: lines go into a bounded queue (what finds no room is counted) and a thread of
its own sends them. Logprobs are there if they were asked for. LiteLLM's success payload of a stream
has none, so streams are read as they pass.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any, Callable, Optional
from urllib import error, parse, request

from litellm.integrations.custom_logger import CustomLogger

QUEUE_MOST = 2_000  # lines
QUEUE_MOST_BYTES = 64 * 1024 * 1024
BATCH_MOST, BATCH_MOST_BYTES = 200, 4 * 1024 * 1024
CHUNKS_MOST = 65_536  # of one stream; a longer one is sent without the rest
CALLS_MOST = 10_000  # streams that are known to have been read as they passed
TRIES, WAIT_SECONDS, WAIT_MOST_SECONDS = 5, 1.0, 30.0
TIMEOUT_SECONDS = 10.0
ANSWER_MOST = 1_048_576  # bytes of Fusewire's answer
# sending the same again would not help; a redirect is not followed: see `_Straight`
UNUSABLE = (301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 413, 415, 422)
_UNREADABLE = (OSError, HTTPException, ValueError)
# what chunks and lines of other people's making may raise; a warning may be made an error
_TROUBLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
    Warning,
)
_LOG = logging.getLogger("fusewire")
_PARAMETERS = (
    "temperature", "max_tokens", "max_completion_tokens", "n", "logprobs", "top_logprobs", "echo",
)  # fmt: skip
# what is kept of an answer without its text: members, and those that are words of the engine
_KEPT = (
    "choices", "index", "message", "delta", "logprobs", "content", "logprob", "top_logprobs",
    "token_logprobs", "text_offset", "token", "tokens", "top_tokens", "special", "prefill",
    "details", "generated_tokens", "input_length", "output", "incomplete_details", "usage",
    "prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "created", "created_at",
)  # fmt: skip
_WORDS = ("id", "object", "model", "system_fingerprint", "finish_reason", "status", "reason")

Line = dict[str, Any]


class Settings:
    """What the hook is told; `sample` is a share, 0 to 1."""

    def __init__(
        self,
        url: str = "",
        *,
        token: str = "",
        tiers: Optional[Mapping[str, str]] = None,
        sample: float = 1.0,
        text: bool = True,
        ask_top: int = 0,
    ) -> None:
        if not 0 < sample <= 1:
            msg = f"FUSEWIRE_SAMPLE: got {sample!r}, expected a share over 0 and up to 1"
            raise ValueError(msg)
        self.url = url.rstrip("/")
        self.token = token
        self.tiers = dict(tiers or {})
        self.sample = sample
        self.text = text
        self.ask_top = ask_top

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings.

        Raises:
            ValueError: If one cannot be used; the message names it.
        """
        token_file = environ.get("FUSEWIRE_TOKEN_FILE", "")
        try:
            tiers = json.loads(environ.get("FUSEWIRE_TIERS", "{}"))
            sample = float(environ.get("FUSEWIRE_SAMPLE", "1"))
            ask_top = int(environ.get("FUSEWIRE_ASK_TOP_LOGPROBS", "0"))
            token = Path(token_file).read_text(encoding="utf-8").strip() if token_file else ""
        except (ValueError, OSError) as problem:
            msg = f"a FUSEWIRE_ variable cannot be used: {problem}"
            raise ValueError(msg) from problem
        text = environ.get("FUSEWIRE_TEXT", "1") not in ("0", "false", "no")
        url = environ.get("FUSEWIRE_URL", "")
        return cls(url, token=token, tiers=tiers, sample=sample, text=text, ask_top=ask_top)


class Outbox:
    """A bounded queue of encoded lines and the thread that sends them; `put` never waits.

    `counts` has `sent`, `dropped` (no room), `refused` (Fusewire did not want them) and `lost`
    (given up after several tries).
    """

    def __init__(
        self,
        settings: Settings,
        *,
        sleep: Callable[[float], None] = time.sleep,
        most: int = QUEUE_MOST,
    ) -> None:
        self.counts = {"sent": 0, "dropped": 0, "refused": 0, "lost": 0}
        self._settings = settings
        self._sleep = sleep
        self._most = most
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._ready = threading.Condition()
        self._process = 0
        self._broken = False
        # past HTTP_PROXY: Fusewire is inside, and the proxy is none of those who may see this
        self._open = request.build_opener(_Straight, request.ProxyHandler({})).open

    def put(self, line: Line, response: bytes = b"{}") -> None:
        """Take a line, and its response as JSON, if there is room; see to it that it is sent."""
        data = _encoded(line)
        if not data or not response:
            self.counts["dropped"] += 1
            return
        data = b'%s,"response":%s}' % (data[:-1], response)
        with self._ready:
            if len(self._lines) >= self._most or self._bytes + len(data) > QUEUE_MOST_BYTES:
                self.counts["dropped"] += 1
                return
            self._lines.append(data)
            self._bytes += len(data)
            if self._process != os.getpid():  # also after a fork: threads do not come along
                self._process = os.getpid()
                threading.Thread(target=self._run, name="fusewire-outbox", daemon=True).start()
            self._ready.notify()

    def _run(self) -> None:
        while True:
            with self._ready:
                while not self._lines:
                    self._ready.wait()
                batch = self._batch()
            self._deliver(batch)

    def _batch(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while self._lines and len(batch) < BATCH_MOST and size < BATCH_MOST_BYTES:
            batch.append(self._lines.popleft())
            size += len(batch[-1])
        self._bytes -= size
        return batch

    def _deliver(self, batch: list[bytes]) -> None:
        """Send a batch, again after a while if need be; ids make a doubled one count once."""
        for attempt in range(TRIES):
            status, told = self._post(b"\n".join(batch))
            if status == 200:  # noqa: PLR2004  # HTTP
                taken = int(min(told, len(batch)))
                self.counts["sent"] += taken
                self.counts["refused"] += len(batch) - taken
                self._tell("", healed=True)
                return
            if status in UNUSABLE:
                self.counts["refused"] += len(batch)
                self._tell(f"answered {status}")
                return
            self._tell(f"answered {status}" if status else "cannot be reached")
            backoff = min(WAIT_SECONDS * 2**attempt, WAIT_MOST_SECONDS)
            self._sleep(told if told else backoff * random.uniform(0.5, 1.0))  # noqa: S311
        self.counts["lost"] += len(batch)

    def _post(self, body: bytes) -> tuple[int, float]:
        """Return the status, 0 if none, and the wait that was asked for; of 200 the lines taken."""
        headers = {"content-type": "application/x-ndjson"}
        if self._settings.token:
            headers["authorization"] = f"Bearer {self._settings.token}"
        url = f"{self._settings.url}/v1/ingest/generations"
        try:
            call = request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310
            with self._open(call, timeout=TIMEOUT_SECONDS) as answer:
                return int(answer.status), _accepted(answer.read(ANSWER_MOST))
        except error.HTTPError as answer:
            answer.close()
            return answer.code, _seconds(answer.headers.get("retry-after", ""))
        except _UNREADABLE:
            return 0, 0.0

    def _tell(self, problem: str, *, healed: bool = False) -> None:
        """Log when sending breaks and when it heals, not in between."""
        if healed and self._broken:
            _LOG.info("sending generations to Fusewire works again")
        elif not healed and not self._broken:
            _LOG.warning("generations do not reach Fusewire: %s", problem)
        self._broken = not healed


class FusewireHook(CustomLogger):  # type: ignore[misc]  # LiteLLM is not there where this is checked
    """LiteLLM's callbacks; none of them raises or waits."""

    def __init__(self, settings: Settings, outbox: Optional[Outbox] = None) -> None:
        super().__init__()
        self.settings = settings
        self.outbox = outbox or Outbox(settings)
        self._streamed: OrderedDict[str, None] = OrderedDict()

    async def async_pre_call_hook(
        self,
        user_api_key_dict: Any,  # noqa: ANN401, ARG002  # LiteLLM's own
        cache: Any,  # noqa: ANN401, ARG002
        data: Line,
        call_type: str,
    ) -> Line:
        """Switch logprobs on where that was asked for and the caller says nothing of them."""
        if self.settings.ask_top and call_type in ("completion", "acompletion"):
            data.setdefault("logprobs", True)
            if data["logprobs"] is True:
                data.setdefault("top_logprobs", self.settings.ask_top)
        return data

    async def async_log_success_event(
        self,
        kwargs: Line,
        response_obj: Any,  # noqa: ANN401, ARG002
        start_time: Any,  # noqa: ANN401, ARG002
        end_time: Any,  # noqa: ANN401, ARG002
    ) -> None:
        """Take a finished call from the standard payload; streams that passed are known already."""
        payload = kwargs.get("standard_logging_object")
        if not isinstance(payload, dict) or not self.settings.url:
            return
        call = str(payload.get("litellm_call_id") or kwargs.get("litellm_call_id") or "")
        if call in self._streamed:
            return
        if not self._chosen():
            return
        response = payload.get("response")
        if not isinstance(response, dict):
            return
        asked = {**(payload.get("model_parameters") or {}), "messages": payload.get("messages")}
        more = {
            "id": call or payload.get("id"),
            "target": _server(payload.get("api_base")),
            "at": payload.get("startTime"),
            "latency_seconds": payload.get("response_time"),
        }
        group = payload.get("model_group") or payload.get("model")
        self._send(group, asked, self._piece(response), more)

    async def async_post_call_streaming_iterator_hook(
        self,
        user_api_key_dict: Any,  # noqa: ANN401, ARG002
        response: Any,  # noqa: ANN401
        request_data: Line,
    ) -> AsyncIterator[Any]:
        """Pass a stream on, chunk by chunk, and keep what each tells."""
        call = str(request_data.get("litellm_call_id") or "")
        wanted = bool(self.settings.url) and self._chosen()
        if call:
            self._streamed[call] = None
            while len(self._streamed) > CALLS_MOST:
                self._streamed.popitem(last=False)
        chunks: list[bytes] = []  # encoded as they come: all at once would hold up the loop
        began, finished = time.time(), False  # noqa: TID251  # this file has no clock to be given
        try:
            async for chunk in response:
                if wanted and len(chunks) < CHUNKS_MOST:
                    chunks.append(self._piece(chunk) or b"{}")
                yield chunk
            finished = True
        finally:
            if wanted and chunks:
                seconds = time.time() - began if finished else None  # noqa: TID251
                more = {"id": call or None, "at": began, "latency_seconds": seconds}
                answer = b"[%s]" % b",".join(chunks)
                self._send(request_data.get("model"), request_data, answer, more)

    def _send(self, group: object, asked: Line, response: bytes, more: Line) -> None:
        line = {**self._line(group, asked), **more}
        self.outbox.put({key: it for key, it in line.items() if it is not None}, response)

    def _piece(self, response: object) -> bytes:
        """Return a response or a chunk as JSON, empty if it cannot be; without text if wanted."""
        try:
            dump = getattr(response, "model_dump", None)
            plain = dump(exclude_none=True) if callable(dump) else response
            kept = plain if self.settings.text else without_text(plain)
            return _encoded(kept) if isinstance(plain, dict) else b"{}"
        except _TROUBLE:
            return b""

    def _chosen(self) -> bool:
        return self.settings.sample >= 1 or random.random() < self.settings.sample  # noqa: S311

    def _line(self, group: object, asked: Line) -> Line:
        name = str(group or "")
        sent = {key: asked[key] for key in _PARAMETERS if asked.get(key) is not None}
        sent["model"] = name
        if self.settings.text:
            sent["messages"] = asked.get("messages")
        line: Line = {"tier": self.settings.tiers.get(name, name), "request": sent}
        if self.settings.sample < 1:
            line["sample_ratio"] = self.settings.sample
        return line


def without_text(response: object) -> object:
    """Return a response, or the chunks of a stream, without what was said.

    Only numbers of known meaning and words of the engine stay; ids of tokens are text, too.
    """
    if isinstance(response, (list, tuple)):
        return [without_text(it) for it in response if not isinstance(it, str)]
    if not isinstance(response, dict):
        return response if isinstance(response, (int, float)) else None
    kept: Line = {}
    for key, value in response.items():
        if isinstance(value, str):
            kept.update({key: value} if key in _WORDS else {})
        elif key == "top_logprobs" and isinstance(value, list):
            kept[key] = [_nameless(it) for it in value]
        elif key in _KEPT:
            kept[key] = without_text(value)
    return kept


def _nameless(candidates: object) -> object:
    """Return the candidates of one position: completions have their texts for keys."""
    if not isinstance(candidates, dict) or isinstance(candidates.get("token"), str):
        return without_text(candidates)
    numbers = [it for it in candidates.values() if isinstance(it, (int, float))]
    return {str(place): number for place, number in enumerate(numbers)}


def _encoded(value: object) -> bytes:
    """Return a value as JSON, empty if it cannot be."""
    try:
        return json.dumps(value, separators=(",", ":"), default=str).encode()
    except _TROUBLE:
        return b""


class _Straight(request.HTTPRedirectHandler):
    """Follows no redirect: it would make a GET of what is sent, and take the token elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:  # noqa: ANN401  # whatever it is given
        return None


def _accepted(body: bytes) -> float:
    """Return how many lines Fusewire took, as its answer says; all of them if it does not."""
    try:
        accepted = json.loads(body)["accepted"]
    except _TROUBLE:
        return float("inf")
    return accepted if isinstance(accepted, int) and accepted >= 0 else float("inf")


def _server(api_base: object) -> Optional[str]:
    """Return `host:port` of an engine's address, as Fusewire names targets by default."""
    try:
        parts = parse.urlsplit(str(api_base or ""))
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return None
    return f"{parts.hostname}:{port}" if parts.hostname else None


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.0), WAIT_MOST_SECONDS)
    except ValueError:
        return 0.0


fusewire = FusewireHook(Settings.from_environment(os.environ))
