"""Engines as rows of data: which family of which engine feeds which canonical signal.

A row lists aliases, newest name first; the first whose families are on the page wins. Names are in
normal form (`vllm_x` for `vllm:x`, `ray_vllm_x`, `kserve_vllm:x`). A new engine is only new rows.
Sources of the names: the engines' own code and pages, checked against the recorded fixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from collector.sources.families import Role, WantedFamilies, compile_families, normal_name
from detectors.signals import SIGNALS

Take: TypeAlias = Literal["value", "sum", "histogram"]
Across: TypeAlias = Literal["sum", "max", "mean"]
Filter: TypeAlias = tuple[tuple[str, frozenset[str]], ...]  # label, values

PROCESS_START: Final = "process_start_time_seconds"
_ALL: Final[Filter] = ()
_ROLES: Final[Mapping[Take, tuple[Role, ...]]] = MappingProxyType(
    {"value": ("value",), "sum": ("sum",), "histogram": ("bucket", "sum", "count")}
)


@dataclass(frozen=True, slots=True)
class Term:
    """Samples of one family: which ones, what of them, and under which part they count.

    `take` is the sample's value, the `_sum` of a histogram, or the whole histogram. `keep` and
    `drop` filter by label. `part_label` names the label whose value is the part, `part` a fixed
    one. With `factors` the number is the product of those labels' values, not the sample's.
    """

    family: str
    take: Take = "value"
    keep: Filter = _ALL
    drop: Filter = _ALL
    part: str = ""
    part_label: str = ""
    factors: tuple[str, ...] = ()
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Alias:
    """One way to get a signal: the sum of `terms`, over `over` or another signal, times `scale`."""

    terms: tuple[Term, ...]
    over: tuple[Term, ...] = ()
    over_signal: str = ""
    scale: float = 1.0

    @property
    def name(self) -> str:
        """The families that feed it, for reports."""
        return " + ".join(term.family for term in self.terms)


@dataclass(frozen=True, slots=True)
class Row:
    """A canonical signal, its aliases in order, and how series of several engines combine."""

    signal: str
    aliases: tuple[Alias, ...]
    across: Across = "sum"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A family (or a label value on it) that only versions of some span have; ends included."""

    family: str
    since: str = ""
    until: str = ""
    label: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of engine, or of any other page; an empty `prefix` knows the page by its rows."""

    name: str
    prefix: str
    rows: tuple[Row, ...]
    evidence: tuple[Evidence, ...] = ()


def _plain(signal: str, *families: str, across: Across = "sum") -> Row:
    return Row(signal, tuple(Alias((Term(family),)) for family in families), across)


def _histogram(signal: str, *families: str, method: str = "") -> Row:
    keep: Filter = (("method", frozenset({method})),) if method else _ALL
    aliases = (Alias((Term(family, take="histogram", keep=keep),)) for family in families)
    return Row(signal, tuple(aliases))


def _quotient(over: str, of: str) -> Alias:
    return Alias((Term(over),), over=(Term(of),))


_KV_USAGE = ("vllm_kv_cache_usage_perc", "vllm_gpu_cache_usage_perc")
_CONFIG = "vllm_cache_config_info"
_SUCCESS = "vllm_request_success_total"
_TPOT = "vllm_time_per_output_token_seconds"
_THROUGHPUT = "vllm_avg_generation_throughput"

VLLM: Final = Engine(
    name="vllm",
    prefix="vllm",
    rows=(
        _plain("requests_running", "vllm_num_requests_running"),
        Row(
            "requests_waiting",
            (
                Alias(
                    (
                        Term("vllm_num_requests_waiting"),
                        Term("vllm_num_requests_swapped", optional=True),  # V0: they wait too
                    )
                ),
            ),
        ),
        _plain("kv_cache_usage_ratio", *_KV_USAGE, across="max"),
        _plain("kv_cache_usage_mean_ratio", *_KV_USAGE, across="mean"),
        Row(
            "kv_cache_capacity_tokens",
            (
                Alias((Term(_CONFIG, factors=("kv_cache_size_tokens",)),)),  # right for hybrids
                Alias((Term(_CONFIG, factors=("num_gpu_blocks", "block_size")),)),
            ),
        ),
        _plain("preemptions_total", "vllm_num_preemptions_total"),
        _plain("prompt_tokens_total", "vllm_prompt_tokens_total"),
        _plain("generation_tokens_total", "vllm_generation_tokens_total"),
        _plain("generation_tokens_per_second", f"{_THROUGHPUT}_toks_per_s", _THROUGHPUT),
        Row("requests_finished_total", (Alias((Term(_SUCCESS, part_label="finished_reason"),)),)),
        _plain("requests_rejected_total", "vllm_admission_rejections_total"),
        Row(
            "requests_failed_total",
            (Alias((Term(_SUCCESS, keep=(("finished_reason", frozenset({"error"})),)),)),),
        ),
        _plain("corrupted_requests_total", "vllm_corrupted_requests_total"),
        _histogram("ttft_seconds", "vllm_time_to_first_token_seconds"),
        _histogram("inter_token_seconds", "vllm_inter_token_latency_seconds", _TPOT),
        _histogram(
            "queue_seconds", "vllm_request_queue_time_seconds", "vllm_time_in_queue_requests"
        ),
        _histogram("e2e_seconds", "vllm_e2e_request_latency_seconds"),
        _histogram("prefill_seconds", "vllm_request_prefill_time_seconds"),
        _histogram("decode_seconds", "vllm_request_decode_time_seconds"),
        Row(
            "prefix_cache_hit_ratio",
            (
                _quotient("vllm_prefix_cache_hits_total", "vllm_prefix_cache_queries_total"),
                _quotient(
                    "vllm_gpu_prefix_cache_hits_total", "vllm_gpu_prefix_cache_queries_total"
                ),
                Alias((Term("vllm_gpu_prefix_cache_hit_rate"),)),  # V0; -1 means off
            ),
            across="max",
        ),
        Row(
            "spec_decode_acceptance_ratio",
            (
                _quotient(
                    "vllm_spec_decode_num_accepted_tokens_total",
                    "vllm_spec_decode_num_draft_tokens_total",
                ),
                Alias((Term("vllm_spec_decode_draft_acceptance_rate"),)),
            ),
            across="max",
        ),
    ),
    evidence=(
        Evidence("vllm_avg_prompt_throughput_toks_per_s", until="0.6.6"),
        Evidence("vllm_avg_generation_throughput_toks_per_s", until="0.6.6"),
        Evidence("vllm_request_params_best_of", since="0.4.2", until="0.6.2"),
        Evidence("vllm_num_requests_swapped", until="0.9.0"),
        Evidence("vllm_cpu_cache_usage_perc", until="0.9.0"),
        Evidence("vllm_cpu_prefix_cache_hit_rate", since="0.5.5", until="0.9.0"),
        Evidence("vllm_num_preemptions_total", since="0.4.3"),
        Evidence("vllm_request_queue_time_seconds", since="0.6.4"),
        Evidence("vllm_gpu_prefix_cache_queries_total", since="0.7.3", until="0.11.2"),
        Evidence("vllm_gpu_cache_usage_perc", until="0.11.2"),
        Evidence("vllm_kv_cache_usage_perc", since="0.9.2"),
        Evidence("vllm_inter_token_latency_seconds", since="0.10.2"),
        Evidence(_TPOT, until="0.14.0"),
        Evidence("vllm_request_time_per_output_token_seconds", since="0.11.0"),
        Evidence("vllm_external_prefix_cache_queries_total", since="0.11.1"),
        Evidence("vllm_request_prefill_kv_computed_tokens", since="0.13.0"),
        Evidence(_SUCCESS, since="0.14.0", label="finished_reason", value="error"),
        Evidence(_SUCCESS, since="0.18.0", label="finished_reason", value="repetition"),
        Evidence("vllm_prompt_tokens_by_source_total", since="0.16.0"),
        Evidence("vllm_prompt_tokens_recomputed_total", since="0.16.0", until="0.19.1"),
        Evidence("vllm_num_requests_waiting_by_reason", since="0.20.0"),
        Evidence(_CONFIG, since="0.24.0", label="kv_cache_size_tokens"),
        Evidence("vllm_request_num_preemptions", since="0.30.0"),
        Evidence("vllm_admission_rejections_total", since="0.32.0"),
        Evidence("vllm_prompt_tokens_cached_by_source_total", since="0.32.0"),
    ),
)

_FAILURE = "tgi_request_failure"
_REFUSED = frozenset({"overloaded"})
_NOT_OURS = frozenset({"overloaded", "validation", "template", "dropped"})  # the client's doing
_FORWARD = "tgi_batch_forward_duration"

TGI: Final = Engine(
    name="tgi",
    prefix="tgi",
    rows=(
        _plain("requests_running", "tgi_batch_current_size"),
        _plain("requests_waiting", "tgi_queue_size"),
        _plain("batch_tokens", "tgi_batch_current_max_tokens"),
        _plain("batch_token_budget", "tgi_batch_max_total_tokens"),
        Row(
            "kv_cache_usage_ratio",
            (Alias((Term("tgi_batch_current_max_tokens"),), over_signal="batch_token_budget"),),
        ),
        Row(
            "kv_cache_usage_mean_ratio",
            (Alias((Term("tgi_batch_current_max_tokens"),), over_signal="batch_token_budget"),),
        ),
        _plain("kv_cache_capacity_tokens", "tgi_batch_max_total_tokens"),
        Row("prompt_tokens_total", (Alias((Term("tgi_request_input_length", take="sum"),)),)),
        Row(
            "generation_tokens_total", (Alias((Term("tgi_request_generated_tokens", take="sum"),)),)
        ),
        Row(
            "requests_finished_total",
            (
                Alias(
                    (
                        Term("tgi_request_success", part="success", optional=True),
                        Term(_FAILURE, part_label="err", optional=True),
                    )
                ),
            ),
        ),
        Row("requests_rejected_total", (Alias((Term(_FAILURE, keep=(("err", _REFUSED),)),)),)),
        Row("requests_failed_total", (Alias((Term(_FAILURE, drop=(("err", _NOT_OURS),)),)),)),
        _histogram("inter_token_seconds", "tgi_batch_inference_duration", method="decode"),
        _histogram("queue_seconds", "tgi_request_queue_duration"),
        _histogram("e2e_seconds", "tgi_request_duration"),
        _histogram("prefill_seconds", _FORWARD, method="prefill"),
    ),
    evidence=(Evidence("tgi_batch_max_total_tokens", since="2.3.1"),),
)

ENGINES: Final[tuple[Engine, ...]] = (VLLM, TGI)


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


def wanted_families(engines: tuple[Engine, ...]) -> WantedFamilies:
    """Compile what the rows and the version evidence of `engines` read from a page."""
    families: dict[str, tuple[Role, ...]] = {PROCESS_START: ("value",)}
    for engine in engines:
        for term in _terms(engine):
            roles = families.get(term.family, ())
            families[term.family] = tuple(dict.fromkeys((*roles, *_ROLES[term.take])))
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
    """Return the engines' names that `signal_named` knows, as their pages write them."""
    return frozenset(family.replace("vllm_", "vllm:", 1) for family, _ in _one_to_one())


def _one_to_one() -> Iterator[tuple[str, str]]:
    """Yield each family that is a signal by itself, not a part of a quotient or product."""
    for engine in ENGINES:
        for row in engine.rows:
            for alias in row.aliases:
                main = alias.terms[0]
                if not (alias.over or alias.over_signal or main.factors):
                    yield main.family, row.signal


def _terms(engine: Engine) -> Iterator[Term]:
    for row in engine.rows:
        for alias in row.aliases:
            yield from alias.terms
            yield from alias.over
