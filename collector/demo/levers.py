"""What the story may do: tell the tier what to play, and the client what to send."""

from __future__ import annotations

import httpx2

from collector.demo.client import Client
from collector.demo.story import StoryError


class DemoLevers:
    """Acts on the recorded tier through its control port, and on the client directly."""

    def __init__(self, http: httpx2.AsyncClient, *, control: str, client: Client) -> None:
        self._http = http
        self._control = control
        self._client = client

    def send_prompts(self, segment: str, prompts: str) -> None:
        """Let one upstream draw its prompts from another set of recordings."""
        self._client.send_prompts(segment, prompts)

    async def play(self, targets: tuple[str, ...], scene: str) -> None:
        """Let targets play another scene (`StoryError` if the tier does not)."""
        await self._order({"targets": list(targets), "scene": scene})

    async def answer_from(self, answers: str) -> None:
        """Let all targets answer from another set of recordings (`StoryError` as `play`)."""
        await self._order({"answers": answers})

    async def _order(self, order: dict[str, object]) -> None:
        try:
            response = await self._http.put(f"{self._control}/scene", json=order)
            response.raise_for_status()
        except httpx2.HTTPError as error:
            msg = f"the recorded tier did not take the order {order}: {error}"
            raise StoryError(msg) from error
