"""Trouble that people met with real engines' pages, each with what Fusewire makes of it."""

from __future__ import annotations

import pytest

from collector.sources.engine.engines import ENGINES
from collector.sources.engine.translation import Translation
from collector.sources.engine.understanding import Moment, Understanding, absences, offered
from collector.sources.engine.workers import MAX_WORKERS, Workers
from collector.sources.page.page import Page
from detectors.records import Absence, Level, Verdict
from detectors.stalled import StalledConfig
from tests.builders import a_reading
from tests.collector.sources.reading_pages import Scraped, body, page_of
from tests.detectors.recordings import judged

LORA_AT = 1_739_557_580.0  # just after the recorded page was made


class Target:
    """A target whose pages are taken in one after the other, as a source does."""

    def __init__(self) -> None:
        self.pages = Understanding(ENGINES)
        self.seconds = 0.0

    def read(self, text: str | bytes, *, after: float = 5.0, unix: float = LORA_AT) -> Translation:
        self.seconds += after
        return self.pages.take(page_of(text), Moment(self.seconds, unix), {})


def codes(found: Translation) -> set[str]:
    return {it.code for it in found.findings}


def a_tgi(*, queue: float, decoded: float, made: float = 2200.0, taken: float = 10_043.0) -> str:
    """Return the recorded page of a TGI that has worked, with other numbers on it."""
    text = body("tgi-1.4-loaded-then-idle-no-help.txt").decode()
    for old, new in {
        "tgi_queue_size 0": f"tgi_queue_size {queue}",
        "tgi_batch_current_size 0": "tgi_batch_current_size 4",
        'tgi_batch_inference_count{method="decode"} 300': (
            f'tgi_batch_inference_count{{method="decode"}} {decoded}'
        ),
        "tgi_request_generated_tokens_sum 2200": f"tgi_request_generated_tokens_sum {made}",
        "tgi_request_input_length_sum 10043": f"tgi_request_input_length_sum {taken}",
    }.items():
        assert text.count(f"\n{old}\n") == 1, old
        text = text.replace(f"\n{old}\n", f"\n{new}\n")
    return text


def stalls(pages: list[str]) -> Verdict:
    scraped = Scraped()
    readings = [
        a_reading(scraped.read(page).values, seconds=5.0 * place)
        for place, page in enumerate(pages)
    ]
    return judged(StalledConfig().build(), readings)[-1]


def test_a_tgi_whose_queue_grows_while_no_batch_is_called_is_stuck() -> None:
    verdict = stalls([a_tgi(queue=i, decoded=300, taken=10_043 + 50 * i) for i in range(15)])

    assert verdict.level is Level.CRITICAL
    assert verdict.reason == "no step for 70 s with 4 running, 14 waiting; limit 60 s"


def test_a_tgi_whose_queue_gauge_is_never_pulled_down_while_it_works_is_not() -> None:
    verdict = stalls([a_tgi(queue=100 * i, decoded=300 + 80 * i) for i in range(15)])

    assert verdict.level is Level.OK


STEPS = ("tgi_request_validation_duration", "tgi_request_queue_duration")


def timed(*, requests: int, validation: float, queue: float, prefills: int, prefill: float) -> str:
    """Return a TGI page with means of these seconds since its start."""
    lines = [
        f"# TYPE {family} histogram\n{family}_sum {mean * requests}\n{family}_count {requests}\n"
        for family, mean in zip(STEPS, (validation, queue), strict=True)
    ]
    for method, calls, mean in (("prefill", prefills, prefill), ("decode", 9_000, 0.02)):
        family = "tgi_batch_inference_duration"
        label = f'{{method="{method}"}}'
        lines.append(f"{family}_sum{label} {mean * calls}\n{family}_count{label} {calls}\n")
    return "".join(lines)


def test_the_time_to_first_token_of_tgi_is_approximated_over_the_last_minute() -> None:
    target = Target()
    first = target.read(timed(requests=100, validation=9, queue=9, prefills=50, prefill=9))
    now = timed(requests=40, validation=0.2, queue=0.2, prefills=30, prefill=0.3)

    # ten of each since, whose sums are what the page grew by
    grown = target.read(
        timed(requests=100, validation=9, queue=9, prefills=50, prefill=9)
        .replace("_sum 900", "_sum 902")
        .replace("_count 100", "_count 110")
        .replace('_sum{method="prefill"} 450', '_sum{method="prefill"} 453')
        .replace('_count{method="prefill"} 50', '_count{method="prefill"} 60')
    )
    restarted = target.read(now)

    assert first.absent["ttft_estimate_seconds"] is Absence.TOO_FEW
    assert grown.values["ttft_estimate_seconds"] == pytest.approx(0.2 + 0.2 + 0.3)
    assert "tgi_request_queue_duration" in grown.aliases["ttft_estimate_seconds"]
    assert "ttft_seconds" not in grown.histograms
    assert "ttft_p50_seconds" not in grown.values
    assert restarted.values["ttft_estimate_seconds"] == pytest.approx(0.2 + 0.2 + 0.3)


def test_an_old_minute_falls_out_of_the_approximation() -> None:
    target = Target()
    for count in (0, 10):
        target.read(timed(requests=count, validation=5, queue=5, prefills=count, prefill=5))
    idle = timed(requests=10, validation=5, queue=5, prefills=10, prefill=5)

    found = [target.read(idle) for _ in range(13)][-1]

    assert found.absent["ttft_estimate_seconds"] is Absence.TOO_FEW


@pytest.mark.parametrize("lost", [*STEPS, "tgi_batch_inference_duration"])
def test_without_one_of_its_steps_nothing_is_approximated(lost: str) -> None:
    target = Target()
    pages = [
        timed(requests=count, validation=1, queue=1, prefills=count, prefill=1)
        for count in (0, 10, 20)
    ]

    found = [
        target.read("".join(it for it in page.splitlines(keepends=True) if lost not in it))
        for page in pages
    ][-1]

    assert "ttft_estimate_seconds" not in found.values
    assert found.absent["ttft_estimate_seconds"] is Absence.NO_FAMILY


def test_an_engine_that_tells_its_time_to_first_token_gets_no_approximation() -> None:
    found = Target().read(body("vllm-0.32.0-load.txt"))

    why = absences(found, offered(ENGINES))["ttft_estimate_seconds"]
    assert why is Absence.NOT_IN_VERSION


def test_of_adapters_the_newest_series_counts() -> None:
    found = Target().read(body("vllm-lora-info-three-series.txt"))

    assert found.values["lora_adapters_active"] == 1.0
    assert found.aliases["lora_adapters_active"] == "vllm_lora_requests_info"


def lora(running: str, waiting: str, value: float) -> str:
    labels = f'max_lora="4",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
    return f"vllm:lora_requests_info{{{labels}}} {value}\n"


def test_adapters_that_run_and_wait_are_one_set_and_an_older_set_is_past() -> None:
    page = lora("a,b", "b,c", LORA_AT) + lora("d,e,f,g,h", "", LORA_AT - 1)

    assert Target().read(page).values["lora_adapters_active"] == 3.0


def test_times_that_several_servers_added_up_are_passed_over() -> None:
    added = lora("a", "", 2 * LORA_AT)

    mixed = Target().read(added + lora("", "", LORA_AT - 30))
    alone = Target().read(added)

    assert mixed.values["lora_adapters_active"] == 0.0
    assert alone.absent["lora_adapters_active"] is Absence.UNUSABLE


def test_a_family_of_adapters_without_series_is_known_and_has_no_sample() -> None:
    found = Target().read(body("vllm-0.32.0-rust-idle.txt"))

    assert found.absent["lora_adapters_active"] is Absence.NO_SAMPLE


def ray(worker: str, *, running: float, tokens: float, usage: float = 0.0) -> str:
    label = f'{{WorkerId="{worker}",ReplicaId="r"}}'
    return (
        f"ray_vllm:num_requests_running{label} {running}\n"
        f"ray_vllm:num_requests_waiting{label} 0\n"
        f"ray_vllm:gpu_cache_usage_perc{label} {usage}\n"
        f"ray_vllm:generation_tokens_total{label} {tokens}\n"
    )


HEAD = (
    "# TYPE ray_vllm:num_requests_running gauge\n# TYPE ray_vllm:generation_tokens_total counter\n"
)


@pytest.mark.parametrize("head", [HEAD, ""])
def test_gauges_of_a_dead_ray_worker_leave_the_sums_after_ten_minutes(head: str) -> None:
    target = Target()
    dead = ray("dead", running=7, tokens=900, usage=0.9)

    *_, before, found = (
        target.read(head + dead + ray("live", running=2, tokens=100 * n, usage=0.2), after=60.0)
        for n in range(11)
    )

    assert before.values["requests_running"] == 9.0
    assert "dead_workers" not in codes(before)
    assert found.values["requests_running"] == 2.0
    assert found.values["kv_cache_usage_ratio"] == 0.2
    assert found.values["generation_tokens_total"] == 1_900.0  # what it counted stays counted
    assert "dead_workers" in codes(found)


def test_a_worker_that_counts_again_is_back() -> None:
    target = Target()
    for minute in range(12):
        target.read(
            ray("a", running=7, tokens=900) + ray("b", running=2, tokens=minute), after=60.0
        )
    found = target.read(ray("a", running=7, tokens=901) + ray("b", running=2, tokens=12))

    assert found.values["requests_running"] == 9.0
    assert "dead_workers" not in codes(found)


@pytest.mark.parametrize("running", [0.0, 7.0])
def test_workers_that_all_stand_still_or_have_nothing_to_do_are_believed(running: float) -> None:
    together, idle = Target(), Target()
    still = ray("a", running=running, tokens=900) + ray("b", running=running, tokens=5)
    first = ray("a", running=0, tokens=900)

    one = [together.read(still, after=60.0) for _ in range(20)][-1]
    other = [idle.read(first + ray("b", running=running, tokens=n), after=60.0) for n in range(20)][
        -1
    ]

    assert one.values["requests_running"] == 2 * running
    assert other.values["requests_running"] == running
    assert "dead_workers" not in codes(one) | codes(other)


def test_what_is_remembered_of_workers_is_bounded_and_forgotten_with_them() -> None:
    workers = Workers()

    def shown(names: range) -> Page:
        return page_of("".join(ray(f"w{n}", running=1, tokens=n) for n in names))

    workers.living(shown(range(3 * MAX_WORKERS)), 0.0)
    most = len(workers._known)
    workers.living(shown(range(2)), 5.0)

    assert (most, len(workers._known)) == (MAX_WORKERS, 2)


@pytest.mark.parametrize("odd", ["1e308", "NaN", "-1", "+Inf"])
def test_numbers_that_are_no_counts_leave_the_workers_countable(odd: str) -> None:
    page = ray("a", running=1, tokens=1)
    page += f'ray_vllm:prompt_tokens_total{{WorkerId="a"}} {odd}\n'
    page += f'ray_vllm:num_preemptions_total{{WorkerId="a"}} {odd}\n'

    assert Target().read(page).values["requests_running"] == 1.0


def test_a_page_without_workers_is_passed_on_as_it_is() -> None:
    page = page_of(body("vllm-0.32.0-load.txt"))

    assert Workers().living(page, 0.0) == (page, ())
    assert Workers().living(page, 0.0)[0] is page


def test_a_model_that_is_a_path_shows_its_last_part_and_a_hash() -> None:
    page = 'vllm:num_requests_running{model_name="/home/someone/secret-client/tiny"} 1\n'

    model = Target().read(page).identity.model

    assert model.startswith("tiny#")
    assert "secret" not in model


def test_a_process_that_began_anew_is_a_restart_though_no_counter_fell() -> None:
    def page(start: float, tokens: float, first: float) -> str:
        return (
            f"process_start_time_seconds {start}\nvllm:num_requests_running 1\n"
            f"vllm:generation_tokens_total {tokens}\n"
            f'vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {first}\n'
            f"vllm:time_to_first_token_seconds_sum {first}\n"
            f"vllm:time_to_first_token_seconds_count {first}\n"
        )

    target = Target()
    target.read(page(1_000, 50, 5))
    found = target.read(page(2_000, 60, 6))

    assert found.restarted
    assert found.values["generation_tokens_total"] == 110.0
    assert found.histograms["ttft_seconds"].total == 11.0


def test_counts_that_a_kept_directory_carries_over_a_restart_are_not_counted_twice() -> None:
    pages = [
        f'vllm:num_requests_running{{engine="0"}} 1\n'
        f'vllm:generation_tokens_total{{engine="0"}} {tokens}\n'
        for tokens in (50, 60, 70)  # the process in the middle was another; nothing says so
    ]
    target = Target()

    found = [target.read(page) for page in pages]

    assert [it.restarted for it in found] == [False, False, False]
    assert found[-1].values["generation_tokens_total"] == 70.0
    assert "several_processes" in codes(found[-1])


def test_an_idle_engine_is_told_from_one_that_says_nothing() -> None:
    target = Target()
    idle = body("vllm-0.32.0-after-load.txt")

    found = [target.read(idle) for _ in range(3)][-1]

    assert found.values["requests_running"] == 0.0
    assert found.values["generation_tokens_per_second"] == 0.0
    assert found.absent["ttft_p50_seconds"] is Absence.TOO_FEW
