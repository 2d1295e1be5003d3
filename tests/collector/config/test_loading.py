"""Reading a configuration: defaults, places of mistakes, secrets, files that are no files."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from collector.config import Config, ConfigError, Listen, Problem, load
from collector.config.document import MAX_BYTES
from detectors import default_detectors
from detectors.limit import LimitConfig

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"
TIERS = "tiers:\n  chat:\n    targets: [http://127.0.0.1:8000]\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "fusewire.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(path: Path, **environ: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        load(path, environ)
    return caught.value.problems


def test_the_smallest_file_has_working_defaults(fixtures: Path) -> None:
    path = fixtures / "config" / "good" / "smallest.yaml"

    config = load(path, {})

    (target,) = config.tiers["chat"].targets
    assert (target.id, target.url, target.engine) == (
        "127.0.0.1:8000",
        "http://127.0.0.1:8000",
        "auto",
    )
    assert config.listen == Listen("127.0.0.1", 9731)
    assert config.listen.loopback
    assert (config.scrape_interval, config.scrape_timeout, config.tick) == (5.0, 15.0, 5.0)
    assert config.mode_of("chat") == "observe"
    assert config.tiers["chat"].detectors == default_detectors()
    assert config.tiers["chat"].baseline.requests == 20_000
    assert config.store == f"sqlite:///{path.parent}/fusewire.db"
    assert config.snapshot == path.parent / "fusewire.snapshot"


def test_words_that_yaml_1_1_would_twist_stay_text(fixtures: Path) -> None:
    config = load(fixtures / "config" / "good" / "yaml-surprises-are-text.yaml", {})

    assert config.controller == "on"
    assert config.tiers["no"].segments == ("no", "yes", "12", "1.2.3", "2026-11-01")


def test_anchors_are_shared_and_the_environment_is_filled_in(fixtures: Path) -> None:
    path = fixtures / "config" / "good" / "anchors-and-environment.yaml"

    config = load(path, {"CONTROLLER": "eu-1"})

    assert config.controller == "eu-1"
    assert config.tiers["code"].breaker == config.tiers["chat"].breaker
    assert config.tiers["code"].breaker.ramp == (0.1, 0.5)
    assert config.tiers["code"].targets[0].url == "http://127.0.0.1:8001/${x}"
    assert config.tiers["code"].targets[1].engine == "tgi"


def test_the_example_loads_and_uses_every_top_level_key() -> None:
    example = Path(__file__).parents[3] / "fusewire.example.yaml"
    environ = {"FUSEWIRE_GATEWAY_SECRET": SECRET}

    config = load(example, environ)

    text = example.read_text(encoding="utf-8")
    assert [key for key in Config.model_fields if f"{key}:" not in text] == []
    assert config.webhooks["gateway"].secrets[0].get_secret_value() == SECRET


def test_signals_may_be_named_as_the_engine_names_them(fixtures: Path) -> None:
    config = load(fixtures / "config" / "good" / "engine-names-of-signals.yaml", {})

    throughput, batch = config.tiers["chat"].detectors
    assert isinstance(throughput, LimitConfig)
    assert isinstance(batch, LimitConfig)
    assert throughput.signal == "generation_tokens_per_second"
    assert throughput.build().name == "generation_tokens_per_second_limit"
    assert throughput.when is not None
    assert throughput.when.signal == "requests_waiting"
    assert (batch.signal, batch.divisor) == ("batch_tokens", "batch_token_budget")


def test_a_followed_file_is_entered_at_its_end_unless_told_otherwise(fixtures: Path) -> None:
    config = load(fixtures / "config" / "good" / "files-from-their-start.yaml", {})

    assert [file.read_from for file in config.ingest.files] == ["end", "start"]


def test_a_firing_alert_may_be_resent_every_five_minutes(tmp_path: Path) -> None:
    pushed = "alertmanager: {urls: ['http://127.0.0.1:9093'], resend: 5m}\n"

    config = load(written(tmp_path, TIERS + pushed), {})

    assert config.alertmanager is not None
    assert config.alertmanager.resend == 300.0


def test_every_mistake_is_reported_at_once_in_order_of_lines(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "mode: enforced\n"
        "tick: 5\n"
        "tiers:\n"
        "  chat:\n"
        "    targets: [ftp://x, {url: http://a, slots: 4}]\n"
        "    shadow_of: caht\n"
        "controller: ${NOT_SET}\n"
        "mode: observe\n",
    )

    found = problems(path)

    assert [problem.line for problem in found] == [2, 5, 5, 6, 7, 8]
    assert [problem.path for problem in found] == [
        "tick",
        "tiers.chat.targets[0].url",
        "tiers.chat.targets[1].slots",
        "tiers.chat.shadow_of",
        "controller",
        "mode",
    ]


def test_the_error_prints_file_count_and_every_problem(tmp_path: Path) -> None:
    path = written(tmp_path, TIERS + "tick: 5\nmode: enforced\n")

    with pytest.raises(ConfigError) as caught:
        load(path, {})

    lines = str(caught.value).splitlines()
    assert lines[0] == f"{path}: 2 problems"
    assert lines[1].startswith("  line 4: tick: got '5', expected a duration")
    assert lines[2].startswith("  line 5: mode: got 'enforced', expected one of")


def test_secrets_come_from_files_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "new.txt").write_text(SECRET + "\n", encoding="utf-8")
    (tmp_path / "old.txt").write_text(OLD_SECRET, encoding="utf-8")
    path = written(
        tmp_path,
        TIERS
        + "store: postgresql://fusewire:hunter2@127.0.0.1/fusewire\n"
        + "webhooks:\n  gateway:\n    url: https://gateway.example/x\n"
        + "    secret_file: new.txt\n    previous_secret_file: old.txt\n"
        + "    allow: [10.0.0.0/8]\n    timeout: 250ms\n",
    )

    config = load(path, {})

    webhook = config.webhooks["gateway"]
    assert [secret.get_secret_value() for secret in webhook.secrets] == [SECRET, OLD_SECRET]
    assert webhook.allow == (IPv4Network("10.0.0.0/8"),)
    assert webhook.timeout == 0.25
    assert "whsec_" not in config.model_dump_json()
    assert config.snapshot == tmp_path / "fusewire.snapshot"
    for text in (repr(config), str(config), repr(webhook)):
        assert "whsec_" not in text
        assert "hunter2" not in text


def test_a_wrong_secret_is_not_shown_in_the_error(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        TIERS + "store: mysql://u:hunter2@db/x\ncontroller: ${PASSWORD}\n"
        "webhooks:\n  gateway: {url: https://g.example, secret: '${HOOK}'}\n",
    )

    with pytest.raises(ConfigError) as caught:
        load(path, {"HOOK": "hunter2-hook", "PASSWORD": "hunter2/slash"})

    assert len(caught.value.problems) == 3
    assert "hunter2" not in str(caught.value)
    assert "got '${PASSWORD}'" in str(caught.value)


def test_a_secret_file_may_be_readable_but_not_writable_by_everyone(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text(SECRET, encoding="utf-8")
    hook = "webhooks:\n  g: {url: https://g.example, secret_file: secret.txt}\n"
    path = written(tmp_path, TIERS + hook)

    secret.chmod(0o644)
    assert load(path, {}).webhooks["g"].secrets[0].get_secret_value() == SECRET

    secret.chmod(0o666)
    (problem,) = problems(path)
    assert problem.expected == "a file that not everyone can write"
    assert problem.remedy == f"run: chmod o-w {secret}"


def test_a_token_file_with_a_short_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("0123456789abcdef\nshort\n", encoding="utf-8")
    path = written(tmp_path, TIERS + "token_file: tokens\n")

    (problem,) = problems(path)

    assert problem.path == "token_file"
    assert "short" not in str(problem).replace("shorten", "")


def test_a_snapshot_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    (problem,) = problems(written(tmp_path, TIERS + "snapshot: nowhere/x.snapshot\n"))

    assert problem.path == "snapshot"


def test_the_mode_of_a_tier_goes_before_the_mode_of_all(tmp_path: Path) -> None:
    text = "mode: enforce\n" + TIERS + "  code: {targets: [http://127.0.0.1:8001], mode: observe}\n"

    config = load(written(tmp_path, text), {})

    assert (config.mode_of("chat"), config.mode_of("code")) == ("enforce", "observe")


def test_a_file_that_is_not_there_is_named_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "nowhere.yaml"

    with pytest.raises(ConfigError) as caught:
        load(path, {})

    assert str(path) in str(caught.value)
    assert "No such file" in str(caught.value)


def test_a_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path)

    assert problem.expected == "cannot be read: Is a directory"


def test_a_path_that_cannot_be_walked_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    (problem,) = problems(tmp_path / "file" / "fusewire.yaml")

    assert problem.expected == "cannot be read: Not a directory"


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES * 1000)

    (problem,) = problems(path)

    assert "1,048,576 bytes" in problem.expected


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "fusewire.yaml"
    path.write_bytes(bytes(range(256)))

    (problem,) = problems(path)

    assert problem.expected.startswith("expected UTF-8 text")


def test_a_socket_is_refused_as_a_secret_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        path = written(tmp_path, TIERS + "token_file: s\n")

        (problem,) = problems(path)

    assert problem.expected == "a regular file"


def test_configuration_made_in_python_takes_seconds_as_numbers() -> None:
    config = Config.model_validate(
        {"tiers": {"chat": {"targets": [{"url": "http://a:1"}]}}, "scrape_interval": 0.5}
    )

    assert (config.scrape_interval, config.scrape_timeout) == (0.5, 15.0)
