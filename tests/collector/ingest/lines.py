"""Lines made by hand, and what one body of them becomes."""

from __future__ import annotations

import json
from typing import Any

from collector.ingest.records import Decoded
from detectors.records import Batch


def the_batch(decoded: Decoded) -> Batch:
    assert decoded.rejected == ()
    (batch,) = decoded.batches
    return batch


def a_line(request: dict[str, Any] | None = None, **members: Any) -> bytes:
    """Return a line with a tiny completions answer of two tokens."""
    logprobs = {
        "tokens": ["a", "b"],
        "token_logprobs": [-0.5, -1.5],
        "top_logprobs": [{"a": -0.5, "c": -2.0}, {"d": -0.7, "b": -1.5}],
    }
    choice = {"index": 0, "text": "ab", "finish_reason": "stop", "logprobs": logprobs}
    asked = {"model": "m", "prompt": "hello", "logprobs": 2, **(request or {})}
    return json.dumps({"request": asked, "response": {"choices": [choice]}, **members}).encode()
