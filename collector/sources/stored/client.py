"""The connection to one server that stores metrics: what is sent with each query, and how many."""

from __future__ import annotations

import asyncio
import ssl

import httpx2

from collector.sources.credentials import headers_for
from collector.sources.fetch import FetchError, FetchLimits, Outcome, refuse_cookies
from collector.sources.stored.asking import Answer, ask
from collector.sources.stored.settings import PrometheusConfig


class StoredClient:
    """Sends queries with the server's credentials, within its bound of queries at a time."""

    def __init__(self, config: PrometheusConfig, client: httpx2.AsyncClient) -> None:
        """Make the connection; nothing is opened.

        Args:
            config: The server's settings.
            client: Shared with other sources; not used if the server needs TLS settings of its own.
        """
        self.queries = 0
        self._config = config
        self._shared = client
        refuse_cookies(client)
        self._own: httpx2.AsyncClient | None = None
        self._url = f"{config.url}/api/v1/query"
        self._headers = headers_for(
            config.url,
            config.credentials,
            insecure_http=config.insecure_http,
            plain={"X-Scope-OrgID": config.tenant} if config.tenant else {},
        )
        self._limits = FetchLimits(timeout_seconds=config.timeout)
        self._places = asyncio.Semaphore(config.concurrency)

    async def query(self, query: str, at: float | None) -> Answer:
        """Return the answer to an instant query, for the moment `at` (unix time) or for now.

        Raises:
            FetchError: If there is no usable answer.
        """
        form = {"query": query, "nocache": "1"}  # VictoriaMetrics else hides the newest 30 s
        if at is not None:
            form["time"] = f"{at:.3f}"
        if self._config.partial_response is not None:
            form["partial_response"] = str(self._config.partial_response).lower()  # Thanos
            form["deny_partial_response"] = str(not self._config.partial_response).lower()
        async with self._places:
            self.queries += 1
            return await ask(
                self._client(), self._url, form=form, headers=self._headers, limits=self._limits
            )

    async def close(self) -> None:
        """Close what is held open; it opens again if it is needed."""
        if self._own is not None:
            own, self._own = self._own, None
            await own.aclose()

    def _client(self) -> httpx2.AsyncClient:
        """Return the client; a server with TLS settings of its own has its own one.

        Raises:
            FetchError: If its certificates cannot be read.
        """
        if self._config.ca_file is None and self._config.verify:
            return self._shared
        if self._own is None:
            try:
                context = _tls(self._config)
            except (OSError, ssl.SSLError) as error:
                text = f"ca_file {self._config.ca_file}: cannot be used: {error}"
                raise FetchError(Outcome.CREDENTIALS, text) from error
            self._own = httpx2.AsyncClient(trust_env=False, verify=context)
            refuse_cookies(self._own)
        return self._own


def _tls(config: PrometheusConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.ca_file)
    if not config.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
