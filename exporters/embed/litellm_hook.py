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
from typing import Any, Callable, Optional, cast
from urllib import error, parse, request

from litellm.integrations.custom_logger import CustomLogger

QUEUE_MOST = 2_000  # lines
QUEUE_MOST_BYTES = 64 * 1024 * 1024
BATCH_MOST, BATCH_MOST_BYTES = 200, 4 * 1024 * 1024
CHUNKS_MOST = 65_536  # of one stream; a longer one is sent without the rest
CALLS_MOST = 10_000  # streams that are known to have been read as they passed
TRIES = 5
WAIT_SECONDS, WAIT_MOST_SECONDS = 1.0, 30.0
TIMEOUT_SECONDS = 10.0
TOO_MANY = 429
UNUSABLE = (400, 401, 403, 404, 413, 415, 422)  # sending the same again would not help
_UNREADABLE = (OSError, HTTPException, ValueError)
_LOG = logging.getLogger("fusewire")
_PARAMETERS = (
    "temperature", "max_tokens", "max_completion_tokens", "n", "logprobs", "top_logprobs", "echo",
)  # fmt: skip

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

    def put(self, line: Line) -> None:
        """Take a line if there is room, and see to it that it is sent."""
        try:
            data = json.dumps(line, separators=(",", ":"), default=str).encode()
        except (ValueError, TypeError, RecursionError):
            self.counts["dropped"] += 1
            return
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
            status, after = self._post(b"\n".join(batch))
            if status == 200:  # noqa: PLR2004  # HTTP
                self.counts["sent"] += len(batch)
                self._tell("", healed=True)
                return
            if status in UNUSABLE:
                self.counts["refused"] += len(batch)
                self._tell(f"answered {status}")
                return
            self._tell(f"answered {status}" if status else "cannot be reached")
            backoff = min(WAIT_SECONDS * 2**attempt, WAIT_MOST_SECONDS)
            self._sleep(after if after else backoff * random.uniform(0.5, 1.0))  # noqa: S311
        self.counts["lost"] += len(batch)

    def _post(self, body: bytes) -> tuple[int, float]:
        """Return the status (0 if there was no answer) and the wait that was asked for."""
        headers = {"content-type": "application/x-ndjson"}
        if self._settings.token:
            headers["authorization"] = f"Bearer {self._settings.token}"
        url = f"{self._settings.url}/v1/ingest/generations"
        try:
            call = request.Request(url, data=body, headers=headers, method="POST")  # noqa: S310
            with request.urlopen(call, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                return int(answer.status), 0.0
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
        line = self._line(payload.get("model_group") or payload.get("model"), asked, response)
        line["id"] = call or payload.get("id")
        line["target"] = _server(payload.get("api_base"))
        line["at"] = payload.get("startTime")
        line["latency_seconds"] = payload.get("response_time")
        self.outbox.put({key: value for key, value in line.items() if value is not None})

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
        chunks: list[Line] = []
        began, finished = time.time(), False  # noqa: TID251  # this file has no clock to be given
        try:
            async for chunk in response:
                if wanted and len(chunks) < CHUNKS_MOST:
                    chunks.append(_plain(chunk))
                yield chunk
            finished = True
        finally:
            if wanted and chunks:
                line = self._line(request_data.get("model"), request_data, chunks)
                line["id"] = call or None
                line["at"] = began
                if finished:
                    line["latency_seconds"] = time.time() - began  # noqa: TID251
                self.outbox.put({key: value for key, value in line.items() if value is not None})

    def _chosen(self) -> bool:
        return self.settings.sample >= 1 or random.random() < self.settings.sample  # noqa: S311

    def _line(self, group: object, asked: Line, response: object) -> Line:
        name = str(group or "")
        sent = {key: asked[key] for key in _PARAMETERS if asked.get(key) is not None}
        sent["model"] = name
        if self.settings.text:
            sent["messages"] = asked.get("messages")
        else:
            response = without_text(response)
        line: Line = {"tier": self.settings.tiers.get(name, name), "request": sent}
        line["response"] = response
        if self.settings.sample < 1:
            line["sample_ratio"] = self.settings.sample
        return line


def without_text(response: object) -> object:
    """Return a response, or the chunks of a stream, without what was said; numbers stay."""
    if isinstance(response, list):
        return [without_text(it) for it in response]
    if not isinstance(response, dict):
        return response
    dropped = ("content", "text", "token", "bytes", "reasoning_content", "tool_calls", "arguments")
    kept: Line = {}
    for key, value in response.items():
        of_logprobs = key == "content" and isinstance(value, list)  # a list of tokens
        if of_logprobs or key not in dropped:
            kept[key] = without_text(value)
    return kept


def _plain(chunk: object) -> Line:
    """Return a chunk as a plain mapping; one that is none is empty."""
    dump = getattr(chunk, "model_dump", None)
    plain = dump(exclude_none=True) if callable(dump) else chunk
    return cast("Line", plain) if isinstance(plain, dict) else {}


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
