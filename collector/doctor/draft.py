"""A first `fusewire.yaml` from what was found: complete, commented, observing only."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Final

from collector.doctor.examine import Examination
from collector.doctor.other_kinds import Addition

_HEAD: Final = """\
# Written by `fusewire init`. Every key is in docs/configuration.md; check with
# `fusewire check-config`, run with `fusewire serve`.

mode: observe          # nothing is sent outward; `enforce` lets breakers shed and eject
store: sqlite:///fusewire.db
"""
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_NAME: Final = 64


def draft(
    found: Sequence[Examination],
    *,
    tier: str = "",
    keys: Mapping[str, str | bool] = MappingProxyType({}),
) -> str:
    """Return the text of a configuration that reads every page of `found`.

    A page that is no engine's is a source of the one target, or stands beside the one tier; where
    there are several, a comment says what to add to the one that it belongs to.

    Args:
        found: What `examine` returned, in the order of the targets; at least one.
        tier: Name of the one tier; empty makes a tier of each model.
        keys: What every target says beside what was found: where its credentials are.
    """
    targets = [it for it in found if it.addition is None]
    others = [it.addition for it in found if it.addition is not None]
    if not targets:  # there is no tier without a target
        targets, others = list(found), []
    tiers: dict[str, list[Examination]] = {}
    for one in targets:
        tiers.setdefault(tier or tier_name(one.model), []).append(one)
    own = [it for it in others if it.where == "sources"]
    beside = [it for it in others if it.where == "neighbours"]
    lines = [_HEAD, *_unplaced(own, len(targets)), *_unplaced(beside, len(tiers)), "tiers:"]
    for name, members in tiers.items():
        lines += [f"  {_text(name)}:", "    targets:"]
        for one in members:
            lines += [
                *_target(one),
                *(f"        {key}: {json.dumps(it)}" for key, it in keys.items()),
            ]
            if len(targets) == 1:
                lines += _sources(own)
        if len(tiers) == 1:
            lines += _neighbours(beside)
    return "\n".join(lines) + "\n"


def tier_name(model: str) -> str:
    """Return a tier's name for a model: its last part, in letters that names may have.

    >>> tier_name("meta-llama/Llama-3.1-8B-Instruct"), tier_name("")
    ('Llama-3.1-8B-Instruct', 'chat')
    """
    name = _ODD.sub("-", PurePosixPath(model).name)[:_LONGEST_NAME].strip("._-")
    return name or "chat"


def _target(one: Examination) -> Iterator[str]:
    about = " ".join(filter(None, (one.engine or "no engine recognised", one.version)))
    yield f"      # {_comment(about)}" + (f", {_comment(one.model)}" if one.model else "")
    if one.addition is not None:
        yield f"      # its page is for '{one.addition.line}'; put an engine's url here"
    yield f"      - url: {_text(one.url)}"
    if one.engine:
        yield f"        engine: {one.engine}"
    missing = {it.signal for it in one.signals if it.missing}
    if "request_slots" in missing and one.engine == "vllm":
        yield "        # request_slots: 256   # most requests at once: vLLM's --max-num-seqs"
    if one.engine in {"tgi", "lorax"} and "batch_token_budget" in missing:
        yield "        # batch_token_budget: 32768   # from the log: Setting max batch total tokens"
    for report in one.signals:
        if report.needed and report.missing:
            yield f"        # missing {report.signal}: {_comment(report.why)}"


def _unplaced(others: Sequence[Addition], places: int) -> Iterator[str]:
    """Say what is to be added where, when there are several places for it."""
    if places > 1:
        for one in others:
            what = "the target" if one.where == "sources" else "the tier"
            yield f"# {_comment(one.kind)} found; add to {what} that it belongs to:"
            yield f"#   {one.line}"


def _sources(others: Sequence[Addition]) -> Iterator[str]:
    if others:
        yield "        sources:"
    for one in others:
        yield f"          - {one.item}"


def _neighbours(others: Sequence[Addition]) -> Iterator[str]:
    if others:
        yield "    neighbours:            # beside the tier: read and judged, without a breaker"
    names: Counter[str] = Counter()
    for one in others:
        names[one.kind] += 1
        number = f"-{names[one.kind]}" if names[one.kind] > 1 else ""
        yield f"      {one.kind}{number}: {one.item}"


def _text(value: str) -> str:
    """Return text as a YAML scalar that is surely read as text."""
    return json.dumps(value, ensure_ascii=False)


def _comment(text: str) -> str:
    return " ".join("".join(it if it.isprintable() else " " for it in text).split())
