"""What runs in other people's processes, and can be written out: one line each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Embed:
    """One thing to embed: the files it is written out as, each with where its text lies."""

    help: str
    files: Mapping[str, str]

    @property
    def alone(self) -> str:
        """The name of its only file, empty if there are several: then it needs a folder."""
        return next(iter(self.files)) if len(self.files) == 1 else ""

    def texts(self) -> dict[str, str]:
        """Return the files, name to text."""
        return {name: _text(place) for name, place in self.files.items()}


def _one(name: str, place: str, text: str) -> Embed:
    return Embed(text, {name: place})


_PROBE: Final = "exporters.embed/allocator_probe.py"
_VLLM: Final = MappingProxyType(
    {
        "fusewire_vllm_probe.py": _PROBE,
        "pyproject.toml": "exporters.embed/vllm_plugin/pyproject.toml",
    }
)
EMBEDS: Final[Mapping[str, Embed]] = MappingProxyType(
    {
        "allocator-probe": _one("fusewire_allocator_probe.py", _PROBE, "PyTorch's allocator."),
        "batch-splitter": _one(
            "fusewire_batch_splitter.py", "exporters.embed/batch_splitter.py", "A batch, in pieces."
        ),
        "client-kit": _one(
            "fusewire_client_kit.py",
            "exporters.embed/client_kit.py",
            "A client's calls, in bounds.",
        ),
        "litellm-hook": _one(
            "fusewire_litellm_hook.py", "exporters.embed/litellm_hook.py", "LiteLLM's answers."
        ),
        "receiver": _one(
            "fusewire_receiver.py", "alerts.embed/receiver.py", "A gateway's breaker."
        ),
        "vllm-probe": Embed("The allocator probe as a plug-in of vLLM.", _VLLM),
    }
)


def _text(place: str) -> str:
    package, _, path = place.partition("/")
    return files(package).joinpath(path).read_text(encoding="utf-8")
