"""What stands against trusting a comparison: what forbids a pass, and what weakens one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collector.shadow.aligning import Misfit, Way
from collector.shadow.comparing import Compared, Totals

MOST_HIDDEN_RATIO = 0.05
# Answers may be cut otherwise: both cuts can be drawn, and one scored as text is cut anew (a third
# of those of a weak model)
MOST_MISFIT_RATIO = 0.5
MOST_DISJOINT_RATIO = 0.01
_MISFITS = {
    Misfit.DIFFERENT_TOKENS: (
        "have the same text in other tokens and are used up to there; have the candidate score "
        "token ids in place of text; if it is most of them, the tokenizers differ"
    ),
    Misfit.DIFFERENT_IDS: "number tokens of the same text differently: the vocabularies differ",
    Misfit.IDS_AND_TEXTS: (
        "name tokens by number on one side and by text on the other: log both sides with or "
        "both without return_tokens_as_token_ids"
    ),
}


@dataclass(frozen=True, slots=True)
class Remark:
    """A fact about a comparison.

    One that `forbids` leaves neither pass nor fail, one that `forbids_pass` no pass.
    """

    code: str
    words: str
    forbids: bool = False
    forbids_pass: bool = False


def remarks_of(compared: Compared) -> list[Remark]:
    """Return what is to be said about a comparison, the gravest first."""
    found = [*_meaning(compared.totals), *_tokens(compared.totals), *_files(compared)]
    return sorted(found, key=lambda one: (not one.forbids, not one.forbids_pass))


def _meaning(totals: Totals) -> Iterator[Remark]:
    """Yield what changes the meaning of the logprobs."""
    if totals.other_modes:
        words = (
            f"{totals.other_modes:,} pairs have another logprobs_mode on each side: their logprobs "
            "do not mean the same; serve both with --logprobs-mode raw_logprobs"
        )
        yield Remark("other_modes", words, forbids=True)
    if totals.tempered:
        words = (
            f"{totals.tempered:,} answers of production were drawn at a temperature other than 1: "
            "the figure compares the models on these texts, it is no KL of what was sampled"
        )
        yield Remark("temperature", words)
    if totals.clamped:
        words = (
            f"{totals.clamped:,} tokens have no chance at all on one side (clamped logprobs), as "
            "under top-p or top-k of processed logprobs: they are left out or counted as hidden; "
            "serve both sides with --logprobs-mode raw_logprobs"
        )
        yield Remark("clamped", words)


def _tokens(totals: Totals) -> Iterator[Remark]:
    """Yield what is wrong with the tokens of the pairs."""
    pairs = totals.ks.total()
    for misfit, words in _MISFITS.items():
        count = totals.misfits[misfit]
        if count:
            grave = count > MOST_MISFIT_RATIO * pairs
            yield Remark(misfit.value, f"{count:,} of {pairs:,} pairs {words}", forbids=grave)
    if totals.hidden:
        words = (
            f"{totals.hidden:,} of {totals.tokens:,} tokens of production are not scored by the "
            "candidate and count as little as they can; make it score production's text "
            "(prompt_logprobs over prompt and answer) for all of them"
        )
        much = totals.hidden > MOST_HIDDEN_RATIO * totals.tokens
        yield Remark("hidden_tokens", words, forbids_pass=much)
    if totals.disjoint > MOST_DISJOINT_RATIO * totals.listed:
        words = (
            f"{totals.disjoint:,} of {totals.listed:,} positions have candidates without any "
            "common token"
        )
        yield Remark("disjoint_support", words)
    others = sum(count for (left, right), count in totals.ks.items() if left != right)
    if totals.listed and others:
        words = (
            f"{others:,} pairs list another number of candidates on each side: the common are used"
        )
        yield Remark("different_k", words)


def _files(compared: Compared) -> Iterator[Remark]:
    """Yield what of the files was not compared."""
    totals = compared.totals
    texts = totals.misfits[Misfit.DIFFERENT_TEXT] + totals.misfits[Misfit.DIFFERENT_REQUEST]
    if texts:
        words = f"another text or request on each side: {texts:,} of {totals.ks.total():,} pairs"
        yield Remark("different_text", words)
    for name, side in (("reference", compared.reference), ("candidate", compared.candidate)):
        alone = side.left_over + side.dropped
        if alone:
            words = f"{alone:,} of {side.lines:,} lines of the {name} found no partner"
            if side.dropped:
                words += f", {side.dropped:,} of them waited too long: bring the files in one order"
            yield Remark(f"{name}_alone", words)
        if side.refused.total():
            first = "; ".join(f"line {number}: {why}" for number, why in side.examples)
            words = f"{side.refused.total():,} lines of the {name} cannot be used ({first})"
            yield Remark(f"{name}_refused", words)
    if totals.ways[Way.SCORED]:
        words = (
            f"{totals.ways[Way.SCORED]:,} pairs are texts that both sides scored, not answers of "
            "production: a distance on these texts, not a KL of what production writes"
        )
        yield Remark("scored_text", words)
