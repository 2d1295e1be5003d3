"""A service that goes through the incident as the demo's levers are pulled; no detectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import httpx2

BEGAN = datetime(2026, 11, 29, 15, 0, tzinfo=UTC)


@dataclass
class FakeWorld:
    """Clock, levers and service in one: each pull of a lever changes what the service shows.

    `blind` names what the service never shows, for stories that must fail.
    """

    blind: frozenset[str] = frozenset()
    lingers: bool = False  # a warning about prompts comes only with the answers that change
    now_seconds: float = 0.0
    prompts: dict[str, str] = field(default_factory=dict)
    answers: str = "a-baseline"
    scenes: dict[str, str] = field(default_factory=lambda: dict.fromkeys("abc", "normal"))
    transitions: list[dict[str, object]] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=lambda: dict.fromkeys("abc", "closed"))
    ratio: float = 1.0

    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=self.now_seconds)

    async def sleep(self, seconds: float) -> None:
        self.now_seconds += seconds
        self._step()

    def send_prompts(self, segment: str, prompts: str) -> None:
        self.prompts[segment] = prompts

    async def play(self, targets: tuple[str, ...], scene: str) -> None:
        for name in targets:
            self.scenes[name] = scene

    async def answer_from(self, answers: str) -> None:
        self.answers = answers

    def _step(self) -> None:
        if self.scenes["c"] == "kvfull" and self.states["c"] == "closed":
            self._transit("c", "open", "KV cache full", "open")
        elif self.scenes["c"] == "normal" and self.states["c"] == "open":
            self._transit("c", "half_open", "ramp 0.05", "half_open")
        elif self.states["c"] == "half_open":
            self._transit("c", "closed", "calm", "closed")
        if self.scenes["b"] == "kvfull":
            self._transit("b", "suppressed", "guard: 1 of 3 is open already", "closed")
            self.ratio = 0.7
        else:
            self.ratio = 1.0

    def _transit(self, target: str, kind: str, reason: str, state: str) -> None:
        if kind in self.blind:
            return
        self.states[target] = state
        row: dict[str, object] = {"target": target, "kind": kind, "reason": reason}
        self.transitions.insert(
            0, {**row, "at": self.now().isoformat(), "tier": "chat", "actor": "auto"}
        )

    def verdicts(self) -> list[dict[str, object]]:
        found = [("tier", "temperature", "ok", "")]
        if self.prompts.get("batch") == "b-json":
            found += [
                ("segment:batch", f"prompt_{name}_ratio", "warning", "input_drift")
                for name in ("digit", "json", "punctuation", "distinct", "whitespace", "nonascii")
            ]
        if self.lingers and self.answers != "a-baseline":
            found.append(("tier", "prompt_tokens", "warning", "input_drift"))
        if self.answers != "a-baseline":
            found.append(("tier", "output_surprisal_mean_nats", "critical", "output_drift"))
        for name, scene in self.scenes.items():
            if scene == "kvfull":
                scope = f"target:{name}"
                found.append((scope, "kv_cache_usage_ratio", "critical", "kv_cache_saturated"))
                found.append((scope, "requests_waiting", "warning", "queue_growing"))
        return [
            {
                "at": self.now().isoformat(),
                "tier": "chat",
                "scope": scope,
                "signal": signal,
                "level": level,
                "cause": cause,
                "reason": "as the fake says",
            }
            for scope, signal, level, cause in found
            if cause not in self.blind
        ]

    def breakers(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = [
            {"target": name, "state": state, "shown_state": state, "effective_ratio": 1.0}
            for name, state in self.states.items()
        ]
        rows.append(
            {
                "target": "",
                "state": "closed",
                "shown_state": "closed",
                "effective_ratio": 1.0 if "shed" in self.blind else self.ratio,
            }
        )
        return [{"tier": "chat", **row} for row in rows]

    def tiers(self) -> list[dict[str, object]]:
        stage = "active" if self.now_seconds > 5 and "baseline" not in self.blind else "collecting"
        baselines = [
            {"scope": scope, "stage": stage, "requests": 321, "needed": 500}
            for scope in ("tier", "segment:batch")
        ]
        return [{"tier": "chat", "mode": "enforce", "baselines": baselines}]

    def transport(self) -> httpx2.MockTransport:
        """Answer the paths that the demo reads."""

        def handler(request: httpx2.Request) -> httpx2.Response:
            answers = {
                "/v1/verdicts": self.verdicts,
                "/v1/breakers": self.breakers,
                "/v1/transitions": lambda: self.transitions[:100],
                "/v1/tiers": self.tiers,
                "/-/ready": list,
            }
            answer = answers.get(request.url.path)
            if answer is None or request.url.path in self.blind:
                return httpx2.Response(404)
            return httpx2.Response(200, json=answer())

        return httpx2.MockTransport(handler)
