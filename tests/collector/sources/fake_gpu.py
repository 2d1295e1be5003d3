"""Our stand-in for NVIDIA's library, compiled, and the text file that says what it tells."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.parts import need_program

SOURCE = Path(__file__).parents[2] / "fixtures" / "gpu" / "fake_nvml.c"
SONAME = "libnvidia-ml.so.1"
GIB = 2**30
TWO_GPUS = f"""\
count 2
0.uuid GPU-aaaa
0.total {80 * GIB}
0.reserved {GIB}
0.used {30 * GIB}
0.busy 97
0.celsius 71
0.milliwatts 412500
0.reasons 0
0.ecc 2
1.uuid GPU-bbbb
1.total {80 * GIB}
1.used {10 * GIB}
1.busy 4
1.celsius 40
1.milliwatts 90000
1.reasons 0
1.ecc 0
"""


def compile_fake(folder: Path, *options: str, soname: bool = False) -> Path:
    """Compile the stand-in into `folder`.

    Args:
        folder: Where to put it.
        options: Switches of the source: `-DOLD`, `-DNO_EVENTS`.
        soname: Whether to give it the real library's name, for LD_LIBRARY_PATH in another process;
            without it, loading it by path leaves this process as it was.
    """
    gcc = need_program("gcc", install="apt-get install gcc libc6-dev")
    path = folder / SONAME
    named = [f"-Wl,-soname,{SONAME}"] if soname else []
    switches = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(
        [gcc, *switches, *options, *named, "-o", str(path), str(SOURCE)],
        check=True,
        capture_output=True,
    )
    return path


@dataclass
class FakeGpus:
    """The file that the stand-in reads at each call."""

    path: Path
    text: str = TWO_GPUS
    library: ctypes.CDLL | None = None
    more: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.write()

    def write(self) -> None:
        beside = self.path.with_suffix(".new")
        beside.write_text(self.text + "".join(f"{line}\n" for line in self.more))
        beside.rename(self.path)

    def set(self, **values: int | str) -> None:
        """Set keys, `_` for the dots: `set(_0_celsius=90)`; the first of a key counts."""
        for name, value in values.items():
            key = name.strip("_").replace("_", ".")
            lines = [it for it in self.text.splitlines(keepends=True) if it.split()[0] != key]
            self.text = f"{key} {value}\n" + "".join(lines)
        self.write()

    def processes(self, device: str, *rows: tuple[int, int]) -> None:
        """List processes, (pid, bytes), on a device or MIG place (`0`, `0.1`)."""
        self.more = [it for it in self.more if not it.startswith(f"{device}.process ")]
        self.more += [f"{device}.process {pid} {used}" for pid, used in rows]
        self.write()

    @property
    def holders(self) -> int:
        assert self.library is not None
        return int(self.library.fake_holders())
