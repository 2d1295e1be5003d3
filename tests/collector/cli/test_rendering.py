"""`render`: what is made from the code is what lies in the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.cli.embeds import EMBEDS
from collector.cli.reference import command_page, contexts
from tests.collector.cli.world import a_world

ROOT = Path(__file__).parents[3]
MADE = {
    "rules": ["alerts/generated/fusewire.rules.yaml", "docs/metrics.md"],
    "dashboards": ["dashboards/generated/tier.json"],
    "reference": ["docs/configuration.md", "docs/cli.md"],
}


@pytest.mark.parametrize("kind", sorted(MADE))
def test_what_is_written_is_what_lies_in_the_repository(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_world(tmp_path, store=False)
    monkeypatch.chdir(tmp_path)

    done = world.run("render", kind, "--write")

    assert done.exit_code == 0
    for name in MADE[kind]:
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert text == (ROOT / name).read_text(encoding="utf-8"), f"fusewire render {kind} --write"


def test_rules_take_their_threshold_from_a_configuration(tmp_path: Path) -> None:
    detector = (
        "{kind: limit, signal: kv_cache_usage_ratio, trip: 0.77, clear: 0.7, "
        "cause: kv_cache_saturated}"
    )
    extra = f"  slow:\n    targets: [http://127.0.0.1:8009]\n    detectors: [{detector}]\n"
    world = a_world(tmp_path, store=False, extra=extra)

    standard = world.run("render", "rules")
    own = world.run("render", "rules", "--config", str(world.config))

    assert (standard.exit_code, own.exit_code) == (0, 0)
    assert "0.77" in own.stdout
    assert "0.77" not in standard.stdout


def test_boards_are_written_to_a_folder(tmp_path: Path) -> None:
    done = a_world(tmp_path, store=False).run("render", "dashboards", "--out", str(tmp_path / "b"))

    assert done.exit_code == 0
    assert json.loads((tmp_path / "b" / "tier.json").read_text(encoding="utf-8"))["title"]


def test_everything_to_embed_is_listed_and_what_is_one_file_prints_and_compiles(
    tmp_path: Path,
) -> None:
    world = a_world(tmp_path, store=False)
    listed = world.run("render", "embed").stdout.splitlines()

    assert [line.split()[0] for line in listed] == sorted(EMBEDS)
    assert listed
    for name in (name for name, embed in EMBEDS.items() if embed.alone):
        text = world.run("render", "embed", name).stdout
        compile(text, name, "exec")


@pytest.mark.parametrize("name", sorted(EMBEDS))
def test_everything_to_embed_is_written_to_a_folder(name: str, tmp_path: Path) -> None:
    world = a_world(tmp_path, store=False)

    done = world.run("render", "embed", name, "--out", str(tmp_path / "out"))

    assert done.exit_code == 0
    written = {it.name: it.read_text(encoding="utf-8") for it in (tmp_path / "out").iterdir()}
    assert written == EMBEDS[name].texts()


def test_a_package_is_not_printed_and_the_way_is_said(tmp_path: Path) -> None:
    done = a_world(tmp_path, store=False).run("render", "embed", "vllm-probe")

    assert done.exit_code == 2
    assert "--out" in done.stderr


def test_an_unknown_embedded_module_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    done = a_world(tmp_path, store=False).run("render", "embed", "nonsense")

    assert done.exit_code == 2
    assert min(EMBEDS) in done.stderr


def test_the_page_of_commands_is_what_the_commands_say() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

    assert page == command_page(), "run: fusewire render reference --write"


def test_every_command_and_option_says_what_it_does() -> None:
    for context in contexts():
        assert context.command.help, context.command_path
        for parameter in context.command.params:
            record = parameter.to_info_dict()
            if record["param_type_name"] == "option":
                assert record["help"], (context.command_path, parameter.name)
