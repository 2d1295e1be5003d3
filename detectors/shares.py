"""How full something is: a gauge over another, of several devices the fullest."""

from __future__ import annotations

import math
from dataclasses import dataclass

from detectors.records import Reading


@dataclass(frozen=True, slots=True)
class Share:
    """`value` = `used` / `whole`, in the signals' unit; `device` is empty where there is one."""

    value: float
    used: float
    whole: float
    device: str = ""

    def words(self) -> str:
        """Say how full, and where if there are several devices."""
        return f"{self.value:.3g} on device {self.device}" if self.device else f"{self.value:.3g}"


def fullest(reading: Reading, signal: str, divisor: str | None) -> Share | None:
    """Return the fullest device's share, else that of the whole.

    Args:
        reading: A reading with usable values of both signals.
        signal: What is in use.
        divisor: What there is; None if the signal is a share itself.

    Returns:
        None if what there is is not above 0.
    """
    whole = reading.values[divisor] if divisor else 1.0
    used_by, whole_by = reading.parts.get(signal, {}), reading.parts.get(divisor or "", {})
    shares = [
        Share(used / whole_by[device], used, whole_by[device], device)
        for device, used in sorted(used_by.items())
        if math.isfinite(used) and whole_by.get(device, 0.0) > 0
    ]
    if shares:
        return max(shares, key=lambda share: share.value)
    used = reading.values[signal]
    return Share(used / whole, used, whole) if whole > 0 else None
