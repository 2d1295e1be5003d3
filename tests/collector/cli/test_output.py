"""Tables on a terminal, plain lines elsewhere; files that cannot be written; the demo's options."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import click
import pytest

from collector.cli.output import show_table, write_file
from collector.demo import command
from collector.demo.command import DemoOptions
from tests.collector.cli.world import a_world


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_rows_are_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)

    show_table("target", ("name", "why"), [["chat/b", "[bold]up[/bold] \x1b[31m"]])

    assert "target" in terminal.getvalue().splitlines()[0]
    assert "[bold]up[/bold]" in terminal.getvalue()
    assert "\x1b[31m" not in terminal.getvalue()


def test_rows_are_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("target", ("name", "why"), [["chat/b", "up"], ["chat/c", ""]])

    assert capsys.readouterr().out == "target: name=chat/b  why=up\ntarget: name=chat/c\n"


def test_a_file_that_cannot_be_written_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(click.exceptions.Exit) as caught:
        write_file(tmp_path / "file" / "x.txt", "text")

    assert caught.value.exit_code == 2
    assert "name another place" in capsys.readouterr().err


def test_the_demo_gets_its_options_and_gives_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[DemoOptions] = []

    async def played(options: DemoOptions) -> int:
        seen.append(options)
        return 1

    monkeypatch.setattr(command, "run", played)

    done = a_world(tmp_path, store=False).run("demo", "--stay", "--folder", str(tmp_path))

    assert done.exit_code == 1
    assert seen == [DemoOptions(stay=True, folder=tmp_path)]
