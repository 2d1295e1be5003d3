"""A real LiteLLM proxy with Fusewire's hook: plain and streamed answers arrive with logprobs."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from collector.cli.embeds import EMBEDS
from tests.e2e.harness import CALM, answers, configure, engine, serving, until
from tests.e2e.openai_server import Upstream, an_upstream
from tests.parts import need_installed
from tests.programs import free_port

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

INSTALL = "python3 -m venv .venv-litellm && .venv-litellm/bin/pip install 'litellm[proxy]==1.108.7'"
START_SECONDS = 150.0  # the first start after an install compiles for minutes
KEY = "sk-" + "0123456789abcdef" * 4
CONFIG = """
model_list:
- model_name: chat
  litellm_params: {{model: openai/tiny, api_base: "{upstream}/v1", api_key: x}}
litellm_settings: {{callbacks: fusewire_litellm_hook.fusewire, num_retries: 0, drop_params: true}}
general_settings: {{disable_spend_logs: true}}
"""


@contextlib.contextmanager
def a_proxy(folder: Path, upstream: Upstream, environ: Mapping[str, str]) -> Iterator[str]:
    """Run LiteLLM with the hook as it is rendered; yields its address."""
    litellm = need_installed("litellm", ".venv-litellm", install=INSTALL)
    for name, text in EMBEDS["litellm-hook"].texts().items():
        (folder / name).write_text(text)
    (folder / "litellm.yaml").write_text(CONFIG.format(upstream=upstream.url))
    port = free_port()
    command = [litellm, "--config", "litellm.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "litellm.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--telemetry", "False"],
            cwd=folder,
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                "LITELLM_MASTER_KEY": KEY,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "PYTHONPATH": "",
                **environ,
            },
        )
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        if process.poll() is not None:
            raise AssertionError((folder / "litellm.log").read_text()[-3000:])
        return answers(f"{url}/health/liveliness")

    try:
        until(ready, seconds=START_SECONDS)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def asked(url: str, **more: Any) -> str:
    body = {"model": "chat", "messages": [{"role": "user", "content": "one two three"}], **more}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions",
        data=json.dumps(body).encode(),
        headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: bytes = answer.read()
    return found.decode()


def accepted(page: str) -> float:
    found = [
        it for it in page.splitlines() if it.startswith("fusewire_generations_accepted_total{")
    ]
    return sum(float(it.rpartition(" ")[2]) for it in found)


def test_plain_and_streamed_answers_arrive_once_each_with_their_logprobs(tmp_path: Path) -> None:
    with engine(CALM) as one, an_upstream() as upstream:
        configure(tmp_path, [one])
        with (
            serving(tmp_path) as service,
            a_proxy(tmp_path, upstream, {"FUSEWIRE_URL": service.url}) as url,
        ):
            top = {"logprobs": True, "top_logprobs": 3}
            plain = json.loads(asked(url, **top))
            streamed = asked(url, stream=True, **top)
            until(lambda: accepted(service.text("/metrics")) >= 2, seconds=30)
            page = service.text("/metrics")

    assert plain["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.5
    assert streamed.count('"content":"') == 3
    assert accepted(page) == 2
    assert "no_logprobs" not in page


def test_a_proxy_whose_fusewire_is_gone_answers_all_the_same(tmp_path: Path) -> None:
    with an_upstream() as upstream:
        nobody = f"http://127.0.0.1:{free_port()}"
        environ = {"FUSEWIRE_URL": nobody, "FUSEWIRE_ASK_TOP_LOGPROBS": "2"}
        with a_proxy(tmp_path, upstream, environ) as url:
            answers_ = [json.loads(asked(url)) for _ in range(3)]

    assert [it["choices"][0]["message"]["content"] for it in answers_] == ["alpha beta gamma"] * 3
    assert [it["top_logprobs"] for it in upstream.asked] == [2, 2, 2]
