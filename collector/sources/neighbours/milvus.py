"""Milvus beside a tier: the time of a search, and the share of vectors that are deleted.

The names are those of Milvus' own metrics code, by version: `sq_lantency` is how 2.0 spelt it,
`l0_delete_entries_num` came with the level-zero segments of 2.4. Milvus counts in milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from collector.sources.engine.engines import Alias, Engine, Filter, Row, Term
from collector.sources.other_pages import page_source
from collector.sources.protocols import Place, Source, Tools
from collector.values import HttpUrl, Seconds

_SECONDS: Final = 0.001
_SEARCH: Final[Filter] = (("query_type", frozenset({"search", "hybrid_search"})),)
_LEADER: Final[Filter] = (*_SEARCH, ("scope", frozenset({"OnLeader"})))


def _latency(family: str, keep: Filter) -> Alias:
    return Alias((Term(family, take="histogram", keep=keep),), scale=_SECONDS)


MILVUS: Final = Engine(
    name="milvus",
    prefix="",
    rows=(
        Row(
            "vector_search_seconds",
            (
                _latency("milvus_proxy_sq_latency", _SEARCH),
                _latency("milvus_proxy_sq_lantency", _SEARCH),
                _latency("milvus_querynode_sq_req_latency", _LEADER),  # a query node's own page
                _latency("milvus_querynode_sq_req_latency", _SEARCH),  # before 2.3: no scope
            ),
        ),
        Row(
            "vector_deleted_ratio",
            (
                Alias(
                    (Term("milvus_datacoord_l0_delete_entries_num"),),
                    over=(Term("milvus_datacoord_stored_rows_num"),),
                ),
                Alias(
                    (Term("milvus_proxy_delete_vectors_count"),),
                    over=(
                        Term("milvus_proxy_insert_vectors_count"),
                        Term("milvus_proxy_upsert_vectors_count", optional=True),
                    ),
                ),
            ),
        ),
        Row("memory_rss_bytes", (Alias((Term("process_resident_memory_bytes"),)),)),
    ),
)


class MilvusConfig(BaseModel):
    """A Milvus whose searches the tier's prompts wait for, by its metrics page."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: Literal["milvus"] = "milvus"
    url: HttpUrl = Field(description="Address of the page; port 9091 of Milvus by default.")
    match: Mapping[str, str] = Field(
        default_factory=dict,
        description="Labels that a series must carry to be read, such as `collection_name`.",
    )
    interval: Seconds = Field(default=15.0, description="Time between reads.")

    def build(self, place: Place, tools: Tools) -> Source:
        """Return the source; nothing is opened."""
        return page_source(MILVUS, place, tools, url=str(self.url), match=self.match)
