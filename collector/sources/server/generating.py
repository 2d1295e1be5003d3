"""Asks an engine for one token, in the form that its server takes, with its alternatives.

Prompts are fixed texts of ours. Of an answer only numbers are kept: a token is known by a hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from collector.sources.server.asking import Answer, Asking, failed_inside, field_of, text_of

Form: TypeAlias = Literal["completions", "chat", "generate"]
Api: TypeAlias = Literal["auto", "completions", "chat", "generate"]
Came: TypeAlias = Literal["answered", "failed", "busy", "refused"]
MOST_TOP: Final = 20
_TGI_TOP: Final = 5  # its default of --max-top-n-tokens
_MOST_TOKENS: Final = 64
_BUSY: Final = frozenset({429, 503})
_NO_ROUTE: Final = frozenset({404, 405, 501})
_BAD_QUESTION: Final = frozenset({400, 422})
_LEAST_LOGPROB: Final = -1000.0  # engines write -9999, -1000 for what cannot be
_MOST_LOGPROB: Final = 1e-3
_PATHS: Final[Mapping[Form, str]] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
    "generate": "/generate",
}


@dataclass(frozen=True, slots=True)
class Generated:
    """What came of one question: `tokens` maps a token's hash to its logprob in nats.

    `failed` is the engine's fault (silence, 5xx, nonsense), `refused` that of the question or of
    the configuration (4xx), `busy` nobody's.
    """

    came: Came
    tokens: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""


class Generator:
    """Asks one server for single tokens; finds out the form and the model's name by trying."""

    def __init__(self, asking: Asking, *, api: Api = "auto", model: str = "") -> None:
        self.engine = ""  # as the page says; may be set at any time
        self._asking = asking
        self._api = api
        self._configured_model = model
        self._model = model
        self._chat = False
        self._most_top = MOST_TOP

    @property
    def form(self) -> Form:
        if self._api != "auto":
            return self._api
        if self.engine == "tgi":
            return "generate"
        return "chat" if self._chat else "completions"

    @property
    def most_top(self) -> int:
        """The most alternatives that the server gives, as far as is known."""
        return min(self._most_top, _TGI_TOP) if self.form == "generate" else self._most_top

    async def ask(self, prompt: str, *, top: int = 0) -> Generated:
        """Ask for the token after `prompt`, with the logprobs of the `top` likeliest."""
        if not self._model and self.form != "generate":
            answer = await self._asking.ask("/v1/models")
            self._model = text_of(answer.body, "data", 0, "id", longest=4096)
            if not self._model:
                return _trouble(answer, "its /v1/models names no model; configure `model`")
        found = await self._asked(prompt, min(top, self.most_top))
        if found.came == "refused":
            self._model = self._configured_model  # the next question asks for its name again
        return found

    async def _asked(self, prompt: str, top: int) -> Generated:
        answer = await self._post(prompt, top)
        if answer.status in _NO_ROUTE and self._api == "auto" and self.form != "generate":
            self._chat = not self._chat
            answer = await self._post(prompt, top)
            if answer.status in _NO_ROUTE:  # then it was not the route: a model that is gone
                self._chat = not self._chat
        if answer.status in _BAD_QUESTION and top > _TGI_TOP:
            self._most_top = top = _TGI_TOP  # servers that allow fewer alternatives
            answer = await self._post(prompt, top)
        if not answer.usable:
            return _trouble(answer, "the question was refused")
        if not _is_generation(answer.body):
            return Generated("failed", problem="answered something that is no generation")
        return Generated("answered", _tokens(answer.body) if top else {})

    async def _post(self, prompt: str, top: int) -> Answer:
        question: dict[str, object]
        if self.form == "generate":
            parameters = {"max_new_tokens": 1, "do_sample": False, "details": True}
            question = {"inputs": prompt, "parameters": parameters}
            if top:
                parameters["top_n_tokens"] = top
        else:
            question = {"model": self._model, "max_tokens": 1, "temperature": 0}
            question |= self._wording(prompt, top)
        return await self._asking.ask(_PATHS[self.form], question)

    def _wording(self, prompt: str, top: int) -> dict[str, object]:
        if self.form == "chat":
            words: dict[str, object] = {"messages": [{"role": "user", "content": prompt}]}
            return words | ({"logprobs": True, "top_logprobs": top} if top else {})
        words = {"prompt": prompt}
        if top:
            words["logprobs"] = top
            if self.engine == "vllm":
                words["return_tokens_as_token_ids"] = True  # two tokens may have one text
        return words


def _trouble(answer: Answer, words: str) -> Generated:
    """Return what an answer that cannot be used means."""
    if answer.unasked:
        return Generated("refused", problem=answer.problem)
    if answer.status in _BUSY:
        return Generated("busy", problem=answer.problem)
    if failed_inside(answer):
        return Generated("failed", problem=answer.problem)
    if 200 <= answer.status < 300 and answer.problem:  # noqa: PLR2004  # HTTP
        return Generated("failed", problem=answer.problem)
    return Generated("refused", problem=f"{words} ({answer.problem or answer.status})")


def _is_generation(body: object) -> bool:
    """Say whether a body is an answer of one of the forms; TGI may put it in a list."""
    if isinstance(field_of(body, "choices", 0), dict):
        return True
    plain = body[0] if isinstance(body, list) and body else body
    return isinstance(field_of(plain, "generated_text"), str)


def _tokens(body: object) -> dict[str, float]:
    """Return the alternatives of the first token, likeliest kept, empty where none were given."""
    logprobs = field_of(body, "choices", 0, "logprobs")
    plain = body[0] if isinstance(body, list) and body else body
    named = field_of(logprobs, "top_logprobs", 0)
    if isinstance(named, dict):
        pairs = [(str(text), value) for text, value in named.items()]
    else:
        listed = field_of(logprobs, "content", 0, "top_logprobs")
        if listed is None:
            listed = field_of(plain, "details", "top_tokens", 0)
        pairs = [_pair(it) for it in listed] if isinstance(listed, list) else []
    known = [(text, value) for text, found in pairs if (value := _number(found)) is not None]
    if any(value > _MOST_LOGPROB for _, value in known):
        return {}  # logits, which are of no use here
    known.sort(key=lambda pair: -pair[1])
    return {_hashed(text): min(value, 0.0) for text, value in reversed(known[:_MOST_TOKENS])}


def _pair(entry: object) -> tuple[str, object]:
    """Return a token of a list, spelled in the surest way that the entry has, and its logprob."""
    told = [field_of(entry, name) for name in ("bytes", "id", "token")]
    spelled = next((it for it in told if it not in (None, [], "")), "")
    return str(spelled), field_of(entry, "logprob")


def _number(value: object) -> float | None:
    """Return what may be a logprob, None for what stands for a token that cannot be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value > _LEAST_LOGPROB else None


def _hashed(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
