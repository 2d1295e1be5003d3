"""Real parts of tests: found, or skipped with the way to get them; in CI they must be there."""

from __future__ import annotations

import os
import shutil
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest


def lacking(message: str) -> NoReturn:
    """Skip the test for want of a part, or fail it where CI is set."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def need_module(name: str, *, install: str) -> ModuleSpec:
    """Return where the module `name` is, without importing it.

    Args:
        name: The module's name.
        install: The command that installs it, for the message.
    """
    found = find_spec(name)
    if found is None:
        lacking(f"{name} is not installed; get it with: {install}")
    return found


def need_path(path: str) -> Path:
    """Return a path of this machine's kernel."""
    found = Path(path)
    if not found.exists():
        lacking(f"there is no {path} here; run this test on Linux")
    return found


def need_program(name: str, *, install: str) -> str:
    """Return the path of the program `name`; without it skip, or fail where CI is set.

    Args:
        name: The program's file name, looked up on PATH.
        install: The command that installs it, for the message.
    """
    path = shutil.which(name)
    if path is not None:
        return path
    lacking(f"{name} is not installed; get it with: {install}")


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
