"""Numbers of one generation that need no arithmetic over positions: input side, output side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from collector.ingest.answers import Answer, Listing, Spoken
from collector.ingest.prompts import TEXT_SIGNALS, Prompt
from collector.ingest.records import Missing
from collector.ingest.scores import mean_score, own_scores
from collector.ingest.shapes import Line, Request
from detectors.features import compression_of, read_bytes, token_ratios

INPUT_SIGNALS = (
    "prompt_tokens",
    *TEXT_SIGNALS,
    "prompt_logprob_mean_nats",
    "temperature",
    "max_tokens",
    "request_seconds",
)
OUTPUT_SIGNALS = (
    "output_tokens",
    "output_length_capped",
    "output_distinct_ratio",
    "output_compression_ratio",
    "output_scored",
)
NAN = math.nan
NO_INPUTS = (NAN,) * len(INPUT_SIGNALS)
_MILLISECONDS = 1000.0


class Turn(msgspec.Struct, frozen=True, gc=False):
    """One line, and the prompts and answers in it."""

    line: Line
    spoken: Spoken
    prompts: Sequence[Prompt]

    @property
    def lone_answer(self) -> bool:
        return len(self.spoken.answers) == 1

    def owner(self, index: int) -> int:
        """Return the number of the prompt that choice `index` answers: n choices a prompt."""
        each = max(self.line.request.n or 1, 1)
        return max(0, min(index // each, len(self.prompts) - 1))

    def prompt(self, index: int) -> Prompt | None:
        return self.prompts[self.owner(index)] if self.prompts else None


def input_values(
    turn: Turn, answer: Answer, prompt: Prompt | None, missing: set[Missing]
) -> tuple[float, ...]:
    """Return the values of `INPUT_SIGNALS`; what is lacking is added to `missing`."""
    request = turn.line.request
    text = (NAN,) * len(TEXT_SIGNALS) if prompt is None else prompt.features()
    if prompt is None:
        missing.add(Missing.NO_PROMPT)
    tgi = request.parameters
    return (
        prompt_tokens(turn, answer, prompt),
        *text,
        _prompt_score(turn, answer, missing),
        first_known(request.temperature, tgi.temperature if tgi else None),
        first_known(
            request.max_tokens,
            request.max_completion_tokens,
            request.max_output_tokens,
            tgi.max_new_tokens if tgi else None,
        ),
        _latency(turn.line, missing),
    )


def prompt_tokens(turn: Turn, answer: Answer, prompt: Prompt | None) -> float:
    """Return the number of tokens of this answer's prompt, NaN if nothing tells it."""
    usage = turn.spoken.prompt_tokens if len(turn.prompts) <= 1 else None
    if usage is not None and usage >= 0:
        return float(usage)
    ids = answer.prompt_ids or turn.spoken.prompt_ids
    positions = answer.positions or turn.spoken.positions
    return first_known(
        prompt.tokens if prompt is not None and not math.isnan(prompt.tokens) else None,
        answer.input_tokens,
        *(float(len(known)) for known in (ids, positions, answer.scored) if known),
    )


def output_values(turn: Turn, answer: Answer, missing: set[Missing]) -> tuple[float, ...]:
    """Return the values of `OUTPUT_SIGNALS`, then the loop window's ratio of distinct 4-grams."""
    tokens = first_known(
        0.0 if turn.line.request.max_tokens == 0 else None,  # engines count the one they drop
        answer.generated_tokens,
        turn.spoken.completion_tokens if turn.lone_answer else None,
        float(len(answer.sampled)) if answer.sampled else None,
    )
    scored = 1.0 if answer.sampled else NAN  # without a token there is nothing to score
    if not answer.sampled and tokens != 0:
        missing.add(Missing.NO_LOGPROBS)
        scored = 0.0
    if not answer.finish:
        missing.add(Missing.UNFINISHED)
        capped = NAN
    else:
        capped = 1.0 if answer.finish == "length" else 0.0
    distinct, window = token_ratios(answer.tokens)
    compression = compression_of(read_bytes("".join(answer.texts)))
    return tokens, capped, distinct, compression, scored, window


class Candidates(msgspec.Struct, frozen=True, gc=False):
    """How the lists of candidates of an answer are to be read.

    The `k` largest of each list are surely the k largest of the position; a list of fewer than
    `full` entries is short. With `added`, a list longer than k says that the sampled token is not
    one of the k largest.
    """

    k: int = 0
    full: int = 0
    added: bool = False


NO_CANDIDATES = Candidates()


def candidates_of(answer: Answer, request: Request, missing: set[Missing]) -> Candidates:
    """Return how to read the lists of `answer`; what is lacking is added to `missing`."""
    lengths = set(answer.counts)
    most = max(lengths, default=0)
    asked = asked_for(request)
    if answer.listing is Listing.COMPLETIONS and asked is not None:
        k = min(asked, most)
        found = Candidates(k, k, added=True)
    elif answer.listing is Listing.TGI:
        given = min(lengths - {0}, default=0)
        k = given if asked is None else min(asked, most)
        found = Candidates(k, k)
    elif answer.listing is Listing.COMPLETIONS:
        found = Candidates(max(most - 1, 0), max(most - 1, 0))  # k not said: one may be added
    else:
        found = Candidates(max(most - 1, 0), most)  # one of them may be the sampled token's
    if answer.sampled and found.k == 0:
        missing.add(Missing.NO_CANDIDATES)
    elif answer.sampled and min(lengths) < found.full:
        missing.add(Missing.SHORT_CANDIDATES)
    return found


def asked_for(request: Request) -> int | None:
    """Return how many candidates a position the request asked for, None if it does not say."""
    if request.top_logprobs is not None:
        return max(request.top_logprobs, 0)
    if request.logprobs is not None and not isinstance(request.logprobs, bool):
        return max(request.logprobs, 0)
    tgi = request.parameters
    return None if tgi is None or tgi.top_n_tokens is None else max(tgi.top_n_tokens, 0)


def _prompt_score(turn: Turn, answer: Answer, missing: set[Missing]) -> float:
    """Return the mean logprob of the prompt's tokens; NaN if not told."""
    if answer.scored is not None:
        return mean_score(answer.scored)
    positions = answer.positions or turn.spoken.positions
    if not positions:
        return NAN
    ids = answer.prompt_ids or turn.spoken.prompt_ids or _given_ids(turn.line.request)
    scores = own_scores(positions, turn.line.request.prompt_logprobs, ids)
    if scores is None:
        missing.add(Missing.PROMPT_ORDER)
        return NAN
    return mean_score(scores)


def _given_ids(request: Request) -> list[int] | None:
    """Return the token ids of a prompt that was sent as ids."""
    if not isinstance(request.prompt, list):
        return None
    ids = [item for item in request.prompt if isinstance(item, int)]
    return ids if len(ids) == len(request.prompt) else None


def _latency(line: Line, missing: set[Missing]) -> float:
    seconds = line.latency_seconds
    if seconds is None and line.ms is not None:
        seconds = line.ms / _MILLISECONDS
    if seconds is not None and seconds < 0:
        missing.add(Missing.BAD_LATENCY)
        return NAN
    return NAN if seconds is None else seconds


def first_known(*values: float | None) -> float:
    """Return the first value that is there and not negative, NaN if none is."""
    for value in values:
        if value is not None and value >= 0:
            return float(value)
    return NAN
