"""What a manifest says about how a tier will die."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.doctor.manifest import ManifestError, read_manifests
from collector.doctor.manifest_checks import manifest_findings

FIXTURES = Path(__file__).parents[2] / "fixtures" / "manifests"


def codes(*names: str) -> list[str]:
    manifest = read_manifests([FIXTURES / name for name in names])
    return [finding.code for finding in manifest_findings(manifest)]


def test_every_known_risk_is_found_once_where_it_stands() -> None:
    found = manifest_findings(read_manifests([FIXTURES / "risky.yaml"]))

    chat, chat_b = "Deployment chat, container vllm", "Deployment chat, container vllm-b"
    assert [(it.code, it.text.partition(":")[0]) for it in found] == [
        ("no_memory_limit", chat),
        ("no_queue_cap", chat),
        ("no_prompt_ceiling", chat),
        ("expandable_segments_with_max_split_size", chat),
        ("probes_only_check_http", chat),
        ("fewer_gpus_than_shards", chat),
        ("no_probes", chat_b),
        ("no_gpu_limit", chat_b),
        ("several_engines_in_a_pod", "Deployment chat"),
        ("no_autoscaler", "Deployment chat"),
        ("liveness_kills_a_full_server", "StatefulSet batch, container tgi"),
        ("gpu_quota_below_scale", "ResourceQuota gpus"),
        ("hpa_min_equals_max", "HorizontalPodAutoscaler batch"),
    ]


def test_a_sound_manifest_has_no_findings() -> None:
    assert codes("sound.yaml") == []


def test_flags_are_read_from_lists_equals_signs_and_a_shells_line() -> None:
    manifest = read_manifests([FIXTURES / "risky.yaml", FIXTURES / "sound.yaml"])

    options = [dict(it.options) for load in manifest.workloads for it in load.containers]
    assert options[0] == {"model": "tiny", "tensor-parallel-size": "2"}
    assert options[1] == {"max-model-len": "4096", "max-num-queued-reqs": "64"}
    assert options[3]["enable-prefix-caching"] == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [("a: [", "not YAML on line 1"), ("{{ .Values.x }}: - y", "rendered first")],
    ids=["torn", "template"],
)
def test_what_is_not_yaml_is_told(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "m.yaml").write_text(content)

    with pytest.raises(ManifestError, match=words):
        read_manifests([tmp_path / "m.yaml"])


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read"):
        read_manifests([tmp_path / "m.yaml"])


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "template", "containers", "args", "env", "resources", "name"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(TREES)
def test_no_shape_of_a_manifest_is_more_than_findings(
    tmp_path_factory: pytest.TempPathFactory, tree: object
) -> None:
    path = tmp_path_factory.mktemp("m") / "m.yaml"
    path.write_text(json.dumps({"kind": "Deployment", "spec": {"template": {"spec": tree}}}))

    manifest_findings(read_manifests([path]))
