"""JetStream on TPUs; only an excerpt of a page is known, the other names are from its code."""

from __future__ import annotations

from typing import Final

from collector.sources.engine.rows import Alias, Engine, Row, Term, histogram, plain

JETSTREAM: Final = Engine(
    name="jetstream",
    prefix="jetstream",
    rows=(
        plain("requests_waiting", "jetstream_prefill_backlog_size"),
        Row(
            "requests_finished_total",
            (Alias((Term("jetstream_request_success_count_total", part="success"),)),),
        ),
        histogram("ttft_seconds", "jetstream_time_to_first_token"),
        histogram("inter_token_seconds", "jetstream_time_per_output_token"),
        histogram("queue_seconds", "jetstream_queue_duration"),
        histogram("e2e_seconds", "jetstream_time_per_request"),
    ),
)
