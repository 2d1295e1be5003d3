"""One attempt: resolve, check, sign, connect to a checked address, post, read the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

import httpx2

from alerts.breaker.records import Delivery
from alerts.delivery.answers import Answer, Meaning, Outcome, meaning
from alerts.delivery.egress import EgressError, Place, Resolve, UnresolvedError, pinned
from alerts.delivery.endpoint import Endpoint
from alerts.delivery.signing import headers

CONNECT_SECONDS = 1.0
ANSWER_BYTES = 64 * 1024
_CANNOT_CONNECT = (httpx2.ConnectError, httpx2.ConnectTimeout)


class Sender:
    """Sends one delivery to one endpoint; whatever goes wrong on the way is an outcome.

    Args:
        client: From `worker.a_client`.
        resolve: How names become addresses.
        now: The clock, aware UTC; an attempt is signed with its own time.
        controller: This installation's name, for the user agent.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        resolve: Resolve,
        *,
        now: Callable[[], datetime],
        controller: str,
    ) -> None:
        self._client = client
        self._resolve = resolve
        self._now = now
        self._agent = f"fusewire (+controller={controller})"

    async def post(self, endpoint: Endpoint, delivery: Delivery) -> Meaning:
        """Post a delivery once and return what came of it."""
        where = f"webhook {endpoint.name!r}"
        try:
            async with asyncio.timeout(endpoint.timeout_seconds):
                place = await pinned(endpoint.url, endpoint.rules, self._resolve, where=where)
                answer = await self._connected(place, endpoint, delivery)
        except EgressError as error:
            return Meaning(Outcome.MISCONFIGURED, str(error))
        except UnresolvedError as error:
            return Meaning(Outcome.RETRY, str(error))
        except TimeoutError:
            return Meaning(Outcome.RETRY, f"no answer within {endpoint.timeout_seconds:g} s")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return Meaning(Outcome.RETRY, f"{type(error).__name__}: {error}")
        return meaning(answer, epoch=delivery.epoch, seq=delivery.seq)

    async def _connected(self, place: Place, endpoint: Endpoint, delivery: Delivery) -> Answer:
        """Post to the first of the checked addresses that can be connected to."""
        sent = {
            **headers(endpoint.secrets, delivery.id, self._now(), delivery.body),
            "host": place.host,
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": self._agent,
        }
        exchange = partial(
            self._exchange,
            sent=sent,
            body=delivery.body,
            name=place.name,
            timeout_seconds=endpoint.timeout_seconds,
        )
        *earlier, last = (place.url, *place.others)
        for url in earlier:
            try:
                return await exchange(url)
            except _CANNOT_CONNECT:  # nothing was sent: the next address may be alive
                continue
        return await exchange(last)

    async def _exchange(
        self,
        url: str,
        *,
        sent: Mapping[str, str],
        body: bytes,
        name: str,
        timeout_seconds: float,
    ) -> Answer:
        """Post once; read at most 64 KiB of the answer, undecoded."""
        timeouts = httpx2.Timeout(timeout_seconds, connect=min(CONNECT_SECONDS, timeout_seconds))
        async with self._client.stream(
            "POST",
            url,
            content=body,
            headers=dict(sent),
            timeout=timeouts,
            extensions={"sni_hostname": name},
        ) as response:
            read = bytearray()
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) > ANSWER_BYTES:
                    read.clear()  # not an answer that we know: the status alone counts
                    break
            return Answer(
                response.status_code, bytes(read), response.headers.get("retry-after", "")
            )
