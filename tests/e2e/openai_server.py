"""An OpenAI-compatible upstream on the loopback: chat, plain and streamed, with logprobs."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

WORDS = ("alpha", " beta", " gamma")


@dataclass
class Upstream:
    """Where it is, and the bodies it was asked with."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)


def _logprobs(words: tuple[str, ...], top: int) -> dict[str, Any]:
    return {
        "content": [
            {
                "token": word,
                "logprob": -0.5,
                "bytes": list(word.encode()),
                "top_logprobs": [
                    {
                        "token": word if rank == 0 else f"o{rank}",
                        "logprob": -0.5 - rank,
                        "bytes": None,
                    }
                    for rank in range(top)
                ],
            }
            for word in words
        ]
    }


def _whole(asked: dict[str, Any]) -> dict[str, Any]:
    wanted = bool(asked.get("logprobs"))
    return {
        "id": "chatcmpl-plain",
        "object": "chat.completion",
        "created": 1_795_953_600,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "".join(WORDS)},
                "finish_reason": "stop",
                "logprobs": _logprobs(WORDS, asked.get("top_logprobs") or 1) if wanted else None,
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }


def _chunks(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    base = {
        "id": "chatcmpl-stream",
        "object": "chat.completion.chunk",
        "created": 1_795_953_600,
        "model": "tiny",
    }
    for word in WORDS:
        choice: dict[str, Any] = {"index": 0, "delta": {"content": word}, "finish_reason": None}
        if asked.get("logprobs"):
            choice["logprobs"] = _logprobs((word,), asked.get("top_logprobs") or 1)
        yield {**base, "choices": [choice]}
    yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    yield {**base, "choices": [], "usage": usage}


@contextlib.contextmanager
def an_upstream() -> Iterator[Upstream]:
    """Serve until the block ends."""
    upstream = Upstream()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            upstream.asked.append(asked)
            self.send_response(200)
            if asked.get("stream"):
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for chunk in _chunks(asked):
                    self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
                self.wfile.write(b"data: [DONE]\n\n")
                return
            body = json.dumps(_whole(asked)).encode()
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    upstream.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield upstream
    finally:
        server.shutdown()
        server.server_close()
