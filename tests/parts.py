"""Real programs that tests use: found, or skipped with the way to install them (fails in CI)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


def need_program(name: str, *, install: str) -> str:
    """Return the path of the program `name`; without it skip, or fail where CI is set.

    Args:
        name: The program's file name, looked up on PATH.
        install: The command that installs it, for the message.
    """
    path = shutil.which(name)
    if path is not None:
        return path
    message = f"{name} is not installed; get it with: {install}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def need_installed(name: str, environment: str, *, install: str) -> str:
    """Return the path of a program in an environment of its own beside the sources.

    Args:
        name: The program's file name.
        environment: The folder of the virtual environment (`.venv-litellm`), git-ignored.
        install: The commands that make it, for the message.
    """
    path = Path(__file__).parents[1] / environment / "bin" / name
    if path.exists():
        return str(path)
    return need_program(name, install=install)
