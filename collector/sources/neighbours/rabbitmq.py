"""RabbitMQ by its management API: the messages of one queue, and its length limit."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import httpx2

from collector.sources.fetch import FetchError, Outcome
from collector.sources.neighbours.asked import amount, answer, document_of, members
from collector.sources.neighbours.waiting import Depth, missing

_NOT_FOUND: Final = 404
_HINTS: Final[Mapping[int, str]] = {
    401: "it wants a user with the tag 'monitoring'; set username and password_file",
}


async def rabbitmq_depth(
    client: httpx2.AsyncClient, url: str, vhost: str, queue: str, *, login: tuple[str, str]
) -> Depth:
    """Ask the management API how many messages a queue holds, delivered ones included.

    Raises:
        FetchError: If it does not answer with its JSON.
    """
    headers = {"accept": "application/json"}
    if login[0]:
        packed = base64.b64encode(":".join(login).encode()).decode()
        headers["authorization"] = f"Basic {packed}"
    place = f"{url}/api/queues/{quote(vhost, safe='')}/{quote(queue, safe='')}"
    got = await answer(client, place, headers)
    if got.status == _NOT_FOUND:
        return missing("queue", queue)
    return depth_of(document_of(got, _HINTS))


def depth_of(document: object) -> Depth:
    """Return the depth of one queue as the API tells it.

    Raises:
        FetchError: If it is no queue: the url leads to something else.
    """
    queue = members(document)
    if "messages" not in queue and "messages_ready" not in queue and "vhost" not in queue:
        raise FetchError(Outcome.UNUSABLE, "answered JSON that is no queue of RabbitMQ; check url")
    size = amount(queue.get("messages"))
    limits = (
        amount(members(queue.get("arguments")).get("x-max-length")),
        amount(members(queue.get("effective_policy_definition")).get("max-length")),
    )
    bounds = [limit for limit in limits if limit]
    return Depth(size, min(bounds, default=None))
