"""Engines as rows of data: which family of which engine feeds which canonical signal.

A row lists aliases, newest name first; the first whose families are on the page wins. Names are in
normal form (`vllm_x` for `vllm:x`, `ray_vllm_x`, `kserve_vllm:x`). A new engine is only new rows:
a file in `engine_rows/` and its name below. Sources of the names: the engines' own code and pages,
checked against the recorded fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from collector.sources.engine.engine_rows.dynamo import DYNAMO
from collector.sources.engine.engine_rows.jetstream import JETSTREAM
from collector.sources.engine.engine_rows.llamacpp import LLAMACPP
from collector.sources.engine.engine_rows.sglang import SGLANG
from collector.sources.engine.engine_rows.tensorrt import TENSORRT
from collector.sources.engine.engine_rows.tgi import LORAX, TGI
from collector.sources.engine.engine_rows.triton import TRITON
from collector.sources.engine.engine_rows.vllm import VLLM
from collector.sources.engine.rows import (
    ROLES,
    Across,
    Alias,
    Engine,
    Evidence,
    Filter,
    Row,
    Take,
    Term,
)
from collector.sources.page.families import Role, WantedFamilies, compile_families, normal_name
from detectors.signals import SIGNALS

__all__ = [
    "ENGINES",
    "PROCESS_START",
    "TGI",
    "VLLM",
    "Across",
    "Alias",
    "Engine",
    "Evidence",
    "Filter",
    "Row",
    "Take",
    "Term",
    "engine_names",
    "engines_named",
    "signal_named",
    "wanted_families",
]

PROCESS_START: Final = "process_start_time_seconds"
ENGINES: Final[tuple[Engine, ...]] = (
    *(VLLM, TGI, SGLANG, TENSORRT, LLAMACPP, LORAX, JETSTREAM),
    *(TRITON, DYNAMO),  # in front of engines
)


def engines_named(name: str) -> tuple[Engine, ...]:
    """Return the engine `name`, or all of them for `auto`.

    Raises:
        ValueError: If there is no such engine.
    """
    if name == "auto":
        return ENGINES
    found = tuple(engine for engine in ENGINES if engine.name == name)
    if not found:
        known = ", ".join(engine.name for engine in ENGINES)
        msg = f"engine {name!r}: expected auto or one of {known}"
        raise ValueError(msg)
    return found


@lru_cache(maxsize=32)  # a thousand targets of one kind share one
def wanted_families(engines: tuple[Engine, ...]) -> WantedFamilies:
    """Compile what the rows and the version evidence of `engines` read from a page."""
    families: dict[str, tuple[Role, ...]] = {PROCESS_START: ("value",)}
    for engine in engines:
        for term in engine.terms():
            roles = families.get(term.family, ())
            families[term.family] = tuple(dict.fromkeys((*roles, *ROLES[term.take])))
        for evidence in engine.evidence:
            families.setdefault(evidence.family, ())
    return compile_families(families, (engine.prefix for engine in engines if engine.prefix))


def signal_named(name: str) -> str | None:
    """Return the canonical signal that a name stands for: its own, or a family of an engine.

    >>> signal_named("vllm:avg_generation_throughput")
    'generation_tokens_per_second'
    >>> signal_named("vllm:gpu_cache_usage_perc")
    'kv_cache_usage_ratio'
    """
    if name in SIGNALS:
        return name
    normal = normal_name(name)
    return next((signal for family, signal in _one_to_one() if family == normal), None)


def engine_names() -> frozenset[str]:
    """Return the families that `signal_named` knows, as the engines' pages write them."""
    return frozenset(_as_written(family) for family, _ in _one_to_one())


def _as_written(family: str) -> str:
    prefix, _, rest = family.partition("_")
    colon = prefix in {"vllm", "sglang", "llamacpp"}
    return f"{prefix}:{rest}" if colon else family


def _one_to_one() -> Iterator[tuple[str, str]]:
    """Yield each family that is a signal by itself, not a part of a quotient or product."""
    for engine in ENGINES:
        for row in engine.rows:
            for alias in row.aliases:
                if alias.over or alias.over_signal or alias.times or alias.same_as:
                    continue
                main = alias.terms[0]
                if not main.factors and not main.keep:
                    yield main.family, row.signal
