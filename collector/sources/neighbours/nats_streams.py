"""NATS JetStream by its monitoring port: what waits for a consumer, and a stream's own bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import httpx2

from collector.sources.neighbours.asked import amount, answer, document_of, members, rows
from collector.sources.neighbours.waiting import Depth, missing

_HINTS: Final[Mapping[int, str]] = {
    404: "no /jsz there; url is the monitoring port of NATS (http: 8222), and JetStream is on"
}


async def nats_depth(
    client: httpx2.AsyncClient, url: str, stream: str, consumer: str, *, account: str
) -> Depth:
    """Ask what waits in a stream for a consumer, or for its slowest one if none is named.

    Raises:
        FetchError: If the monitoring port does not answer with its JSON.
    """
    got = await answer(client, f"{url}/jsz?consumers=1&config=1", {"accept": "application/json"})
    document = document_of(got, _HINTS)
    accounts = rows(members(document).get("account_details"))
    chosen = [it for it in accounts if not account or it.get("name") == account]
    streams = [it for one in chosen for it in rows(one.get("stream_detail"))]
    found = next((it for it in streams if it.get("name") == stream), None)
    return missing("stream", stream) if found is None else depth_of(found, consumer)


def depth_of(stream: Mapping[str, object], consumer: str) -> Depth:
    """Return the depth of one entry of `stream_detail`."""
    consumers = rows(stream.get("consumer_detail"))
    if consumer:
        consumers = [it for it in consumers if it.get("name") == consumer]
        if not consumers:
            return missing("consumer", consumer)
    size = _most_waiting(consumers)
    state = members(stream.get("state"))
    if size is None:  # nobody consumes: all that is stored waits
        size = amount(state.get("messages"))
    return Depth(size, _bound(members(stream.get("config")), state))


def _most_waiting(consumers: Sequence[Mapping[str, object]]) -> float | None:
    waiting = [
        pending + (amount(it.get("num_ack_pending")) or 0.0)
        for it in consumers
        if (pending := amount(it.get("num_pending"))) is not None
    ]
    return max(waiting, default=None)


def _bound(config: Mapping[str, object], state: Mapping[str, object]) -> float | None:
    """Return the messages that fit: `max_msgs`, or what `max_bytes` holds of the mean message."""
    bounds = []
    most, most_bytes = amount(config.get("max_msgs")), amount(config.get("max_bytes"))
    if most:
        bounds.append(most)
    messages, held = amount(state.get("messages")), amount(state.get("bytes"))
    if most_bytes and messages and held:
        bounds.append(float(int(most_bytes * messages / held)))
    return min(bounds, default=None)
