"""A small client of the Kubernetes API: lists, page by page, with the pod's own credentials."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx2
import msgspec

from collector.discovery.found import DiscoveryError
from collector.discovery.kubernetes_shapes import Item, Listed

_PAGE: Final = 500
_MOST_PAGES: Final = 20
_MOST_BYTES: Final = 33_554_432
_TIMEOUT_SECONDS: Final = 10.0
_GONE: Final = 410
_HINTS: Final = {
    401: "the token is not accepted; check 'token_file'",
    403: "the account may not list them; give it a Role with the verb 'list' on {what}",
    404: "the server does not know {what}; check 'namespace' and the cluster's version",
}


@dataclass(frozen=True, slots=True)
class Access:
    """Where the API server is and how it is talked to; the token file is read at every list."""

    url: str
    token_file: Path | None
    trust: ssl.SSLContext | None


class Api:
    """Lists of one API server."""

    def __init__(self, name: str, access: Access, shared: httpx2.AsyncClient) -> None:
        self._name = name
        self._access = access
        self._own = (
            httpx2.AsyncClient(trust_env=False, verify=access.trust) if access.trust else None
        )
        self._client = self._own or shared

    async def close(self) -> None:
        if self._own is not None:
            await self._own.aclose()

    async def every(
        self, path: str, selector: str, decoder: msgspec.json.Decoder[Listed[Item]]
    ) -> list[Item]:
        """Return all items of a list.

        Raises:
            DiscoveryError: If the list could not be had whole.
        """
        found: list[Item] = []
        token = ""
        for _ in range(_MOST_PAGES):
            page = await self._page(path, selector, token, decoder)
            found += page.items_or_null or []
            token = page.metadata.token
            if not token:
                return found
        msg = f"{self._name}: over {_PAGE * _MOST_PAGES:,} items; narrow the selector"
        raise DiscoveryError(msg)

    async def _page(
        self, path: str, selector: str, token: str, decoder: msgspec.json.Decoder[Listed[Item]]
    ) -> Listed[Item]:
        query = {"labelSelector": selector, "limit": str(_PAGE)}
        if token:
            query["continue"] = token
        url = f"{self._access.url}{path}"
        try:
            headers = await asyncio.to_thread(self._headers)
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                response = await self._client.get(url, params=query, headers=headers)
        except (httpx2.HTTPError, TimeoutError) as error:
            text = str(error) or type(error).__name__
            msg = f"{self._name}: the API server cannot be reached: {text[:200]}"
            raise DiscoveryError(msg) from error
        self._check(response, path.rpartition("/")[2])
        try:
            return decoder.decode(response.content)
        except (msgspec.DecodeError, RecursionError) as error:
            msg = f"{self._name}: the API server's answer cannot be read: {error}"
            raise DiscoveryError(msg) from error

    def _headers(self) -> dict[str, str]:
        """Return the credentials; the kubelet replaces the token while the pod runs."""
        file = self._access.token_file
        if file is None:
            return {"Accept": "application/json"}
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            msg = f"{self._name}: token_file {file} cannot be read: {error}"
            raise DiscoveryError(msg) from error
        if not token or not token.isascii() or not token.isprintable():
            msg = f"{self._name}: token_file {file} holds no token"
            raise DiscoveryError(msg)
        return {"Accept": "application/json", "Authorization": f"Bearer {token}"}

    def _check(self, response: httpx2.Response, what: str) -> None:
        status = response.status_code
        if status == _GONE:
            msg = f"{self._name}: the list changed while it was read; it is read again soon"
            raise DiscoveryError(msg)
        if status != httpx2.codes.OK:
            hint = _HINTS.get(status, "expected 200 with a list").format(what=what)
            msg = f"{self._name}: the API server answered {status}: {hint}"
            raise DiscoveryError(msg)
        if len(response.content) > _MOST_BYTES:
            msg = f"{self._name}: the API server's answer is over {_MOST_BYTES:,} bytes"
            raise DiscoveryError(msg)
