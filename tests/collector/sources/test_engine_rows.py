"""Rows of the engines beside vLLM and TGI, on pages written by hand where no recording shows it."""

from __future__ import annotations

import json

import pytest

from collector.sources.engine.engines import ENGINES, engines_named
from collector.sources.engine.translate import Translation
from collector.sources.page.page import Skip
from detectors.records import Absence
from tests.collector.sources.reading_pages import Scraped, body


def first(text: bytes | str, **configured: float) -> Translation:
    """Return the signals of a page at its first scrape."""
    return Scraped(configured=configured).read(text)


def codes(found: Translation) -> list[str]:
    return [finding.code for finding in found.findings]


def test_workers_of_a_scheduler_count_once_and_schedulers_add_up() -> None:
    lines = [
        f'sglang:num_running_reqs{{dp_rank="{dp}",tp_rank="{tp}",pp_rank="{pp}"}} {dp + 1}'
        for dp in (1, 0)  # in no order
        for tp in (10, 9, 2)
        for pp in (1, 0)
    ]

    found = first("\n".join(lines) + "\n")

    assert found.values["requests_running"] == 3.0


def test_of_a_scheduler_the_lowest_rank_speaks_also_where_ranks_go_on_over_schedulers() -> None:
    found = first(
        'sglang:token_usage{dp_rank="0",tp_rank="0"} 0.2\n'
        'sglang:token_usage{dp_rank="0",tp_rank="1"} 0.9\n'
        'sglang:token_usage{dp_rank="1",tp_rank="2"} 0.6\n'
    )

    assert found.values["kv_cache_usage_ratio"] == 0.6
    assert found.values["kv_cache_usage_mean_ratio"] == pytest.approx(0.4)


def test_requests_wait_in_all_queues_of_prefill_and_decode_apart() -> None:
    found = first(
        "sglang:num_queue_reqs 1\nsglang:num_grammar_queue_reqs 2\n"
        "sglang:num_prefill_bootstrap_queue_reqs 4\nsglang:num_decode_prealloc_queue_reqs 8\n"
        "sglang:num_decode_transfer_queue_reqs 16\nsglang:num_prefill_inflight_queue_reqs 32\n"
    )

    assert found.values["requests_waiting"] == 31.0


def test_the_throughput_of_sglang_is_not_its_gauge_that_outlives_the_work() -> None:
    target = Scraped()
    page = "sglang:gen_throughput 86.5\nsglang:generation_tokens_total 100\n"
    target.read(page)

    found = target.read(page)

    assert found.values["generation_tokens_per_second"] == 0.0


def test_stages_of_sglang_requests_are_told_apart() -> None:
    family = "sglang:per_stage_req_latency_seconds"
    found = first(
        "".join(
            f'{family}_bucket{{stage="{stage}",le="+Inf"}} {n}\n'
            f'{family}_sum{{stage="{stage}"}} {n * 2}\n{family}_count{{stage="{stage}"}} {n}\n'
            for stage, n in (("prefill_forward", 3), ("decode_forward", 5), ("tokenize", 7))
        )
    )

    assert found.histograms["prefill_seconds"].total == 3.0
    assert found.histograms["decode_seconds"].total == 5.0


def test_a_percentage_in_a_fractions_place_is_not_used_and_told() -> None:
    found = first(body("sglang-2024-09-wip-percent-hit-rate.txt"))

    assert found.absent["prefix_cache_hit_ratio"] is Absence.UNUSABLE
    assert codes(found) == ["ratio_above_one"]
    assert found.skipped[Skip.UNUSABLE] == 1


def test_a_quotient_above_one_is_no_percentage() -> None:
    found = first(
        "vllm:spec_decode_num_accepted_tokens_total 40\n"
        "vllm:spec_decode_num_draft_tokens_total 10\n"
    )

    assert found.values["spec_decode_acceptance_ratio"] == 4.0
    assert codes(found) == []


def test_one_family_of_triton_with_many_meanings_is_read_by_its_label() -> None:
    found = first(body("triton-trtllm-23.11-full.txt"))

    assert found.values["requests_waiting"] == 1.0
    assert found.values["request_slots"] == 512.0
    assert found.values["kv_cache_capacity_tokens"] == 6239.0 * 64.0
    assert found.values["kv_cache_usage_ratio"] == pytest.approx(1.0 / 6239.0)


def test_each_model_of_triton_has_a_cache_of_its_own_and_the_fullest_counts() -> None:
    block = "nv_trt_llm_kv_cache_block_metrics"
    found = first(
        "".join(
            f'{block}{{kv_cache_block_type="{kind}",model="{model}"}} {value}\n'
            for model, used, most in (("a", 90, 100), ("b", 10, 1000))
            for kind, value in (("used", used), ("max", most), ("tokens_per", 64))
        )
    )

    assert found.values["kv_cache_usage_ratio"] == 0.9
    assert found.values["kv_cache_usage_mean_ratio"] == pytest.approx(0.455)
    assert found.values["kv_cache_capacity_tokens"] == 70_400.0


def test_a_cache_whose_size_is_not_told_has_no_usage() -> None:
    block = "nv_trt_llm_kv_cache_block_metrics"
    found = first(
        f'{block}{{kv_cache_block_type="used",model="a"}} 9\n'
        f'{block}{{kv_cache_block_type="used",model="b"}} 9\n'
        f'{block}{{kv_cache_block_type="max",model="a"}} 10\n'
    )
    empty = first(
        f'{block}{{kv_cache_block_type="used",model="a"}} 9\n'
        f'{block}{{kv_cache_block_type="max",model="a"}} 0\n'
    )

    assert found.absent["kv_cache_usage_ratio"] is Absence.UNUSABLE
    assert empty.absent["kv_cache_usage_ratio"] is Absence.UNUSABLE


def test_a_request_through_a_pipeline_counts_once() -> None:
    found = first(body("triton-ensemble-zero-counts.txt"))
    alone = first(body("triton-vllm-backend-failure-reasons.txt"))

    assert found.values["requests_finished_total"] == 59.0
    assert alone.parts["requests_finished_total"] == {
        "success": 20.0, "CANCELED": 0.0, "REJECTED": 0.0, "BACKEND": 0.0, "OTHER": 0.0
    }  # fmt: skip


def test_failures_of_triton_are_told_apart_by_whose_fault_they_are() -> None:
    found = first(
        'nv_inference_request_failure{model="m",reason="REJECTED"} 1\n'
        'nv_inference_request_failure{model="m",reason="CANCELED"} 2\n'
        'nv_inference_request_failure{model="m",reason="BACKEND"} 4\n'
        'nv_inference_request_failure{model="m",reason="OTHER"} 8\n'
    )

    assert found.values["requests_rejected_total"] == 1.0
    assert found.values["requests_failed_total"] == 12.0


def test_microseconds_and_a_count_make_a_histogram_without_buckets() -> None:
    found = first(
        'nv_inference_request_success{model="m"} 4\n'
        'nv_inference_queue_duration_us{model="m"} 10000000\n'
        'nv_inference_queue_duration_us{model="uncounted"} 7\n'
    )

    queue = found.histograms["queue_seconds"]
    assert (queue.bounds, queue.counts, queue.total, queue.sum) == ((), (), 4.0, 10.0)
    assert found.skipped[Skip.UNUSABLE] == 1


def test_milliseconds_and_buckets_without_their_suffix_are_read() -> None:
    family = "nv_inference_first_response_histogram_ms"
    found = first(
        f"# TYPE {family} histogram\n"
        f'{family}_count{{model="m"}} 3\n{family}_sum{{model="m"}} 900\n'
        f'{family}{{model="m",le="100"}} 1\n{family}{{model="m",le="500"}} 3\n'
        f'{family}{{model="m",le="+Inf"}} 3\n'
    )

    ttft = found.histograms["ttft_seconds"]
    assert (ttft.bounds, ttft.counts, ttft.sum) == ((0.1, 0.5), (1.0, 3.0), 0.9)


def test_tensorrt_llm_tells_its_cache_by_blocks() -> None:
    found = first(
        'trtllm_num_requests_running{model_name="m",engine_type="trt"} 3\n'
        'trtllm_kv_cache_utilization{model_name="m"} 0.75\n'
        'trtllm_kv_cache_max_blocks{model_name="m"} 100\n'
        'trtllm_kv_cache_tokens_per_block{model_name="m"} 32\n'
        'trtllm_request_error_total{model_name="m"} 2\n'
        'trtllm_request_success_total{model_name="m",finished_reason="stop"} 5\n'
    )

    assert found.identity.engine == "trtllm"
    assert found.values["kv_cache_usage_ratio"] == 0.75
    assert found.values["kv_cache_capacity_tokens"] == 3200.0
    assert found.values["requests_failed_total"] == 2.0
    assert found.parts["requests_finished_total"] == {"stop": 5.0}


@pytest.mark.parametrize("page", ["llamacpp-2026.txt", "llamacpp-2025-ik-fork.txt"])
def test_a_page_that_is_a_json_string_means_what_is_in_it(page: str) -> None:
    plain = body(page)
    quoted = json.dumps(plain.decode()).encode()

    found = first(quoted)

    assert quoted.startswith(b'"#')
    assert found.identity.engine == "llamacpp"
    assert found.values == first(plain).values


def test_the_old_cache_usage_of_llama_cpp_is_read_while_it_is_there() -> None:
    assert first("llamacpp:kv_cache_usage_ratio 0.5\n").values["kv_cache_usage_ratio"] == 0.5
    absent = first(body("llamacpp-2026.txt")).absent
    assert absent["kv_cache_usage_ratio"] is Absence.NOT_IN_VERSION


def test_lorax_is_tgi_under_another_name() -> None:
    page = body("tgi-3.3-full-2025-09.txt")

    found = first(page.replace(b"tgi_", b"lorax_"))

    assert found.identity.engine == "lorax"
    assert found.values == first(page).values
    assert found.histograms == first(page).histograms


def test_the_front_of_dynamo_counts_its_requests_and_tokens() -> None:
    sequence = "dynamo_frontend_output_sequence_tokens"
    found = first(
        'dynamo_frontend_inflight_requests{model="m"} 12\n'
        'dynamo_frontend_queued_requests{model="m"} 2\n'
        'dynamo_frontend_requests_total{model="m",status="success"} 40\n'
        'dynamo_frontend_requests_total{model="m",status="error"} 3\n'
        'dynamo_frontend_model_total_kv_blocks{model="m"} 1000\n'
        'dynamo_frontend_model_kv_cache_block_size{model="m"} 16\n'
        f'{sequence}_sum{{model="m"}} 5000\n{sequence}_count{{model="m"}} 40\n'
    )

    assert found.identity.engine == "dynamo"
    assert found.identity.model == "m"
    assert found.values["requests_running"] == 12.0
    assert found.values["requests_finished_total"] == 43.0
    assert found.values["requests_failed_total"] == 3.0
    assert found.values["kv_cache_capacity_tokens"] == 16_000.0
    assert found.values["generation_tokens_total"] == 5000.0


def test_an_engine_behind_a_front_is_the_engine_however_few_its_families() -> None:
    front = (
        'dynamo_component_inflight_requests{dynamo_component="w"} 1\n'
        "dynamo_component_kvstats_gpu_cache_usage_percent 0.4\n"
        "dynamo_component_requests_total 9\n"
    )

    alone = first(front)
    both = first(front + "vllm:num_requests_running 3\n")

    assert alone.identity.engine == "dynamo"
    assert alone.values["kv_cache_usage_ratio"] == 0.4
    assert both.identity.engine == "vllm"
    assert both.values["requests_running"] == 3.0


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
@pytest.mark.parametrize("before", ["", "ray_", "kserve_"])
@pytest.mark.parametrize("mark", [":", "_"])
def test_an_engine_is_known_by_every_form_of_its_prefix(
    engine: object, before: str, mark: str
) -> None:
    name = next(it for it in ENGINES if it is engine)
    row = next(row for row in name.rows if row.signal == "requests_waiting")
    term = row.aliases[0].terms[0]
    labels = "".join(f'{label}="{min(values)}"' for label, values in term.keep)
    written = before + term.family.replace("_", mark, 1)

    found = Scraped(engines=engines_named(name.name)).read(f"{written}{{{labels}}} 7\n")

    assert found.identity.engine == name.name
    assert found.values["requests_waiting"] == 7.0


def test_the_capacity_of_tgi_is_the_budget_that_is_configured_or_told() -> None:
    page = "tgi_batch_current_max_tokens 3000\n"

    configured = first(page, batch_token_budget=12_000.0)
    over = first(page, batch_token_budget=1000.0)

    assert configured.values["kv_cache_capacity_tokens"] == 12_000.0
    assert configured.aliases["kv_cache_capacity_tokens"] == "batch_token_budget"
    assert over.absent["kv_cache_usage_ratio"] is Absence.UNUSABLE
    assert "set too low" in over.findings[0].text
    assert first(page).absent["kv_cache_capacity_tokens"] is Absence.NOT_IN_VERSION


def test_a_summary_gives_its_sum_and_count_and_no_buckets() -> None:
    found = first(body("tgi-0.4-summaries-expired-window.txt"))

    e2e = found.histograms["e2e_seconds"]
    assert (e2e.bounds, e2e.total, e2e.sum) == ((), 31.0, 21.0418)


def test_answers_of_the_server_stand_for_failures_where_the_engine_counts_none() -> None:
    answers = (
        'http_requests_total{handler="/v1/completions",method="POST",status="5xx"} 4\n'
        'http_requests_total{handler="/health",method="GET",status="5xx"} 9\n'
        'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 90\n'
    )
    counted = 'vllm:request_success_total{finished_reason="error"} 1\n'

    assert first("vllm:num_requests_running 1\n" + answers).values["requests_failed_total"] == 4.0
    assert first(counted + answers).values["requests_failed_total"] == 1.0
