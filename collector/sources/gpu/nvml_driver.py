"""One hold on NVIDIA's management library, and one look through it at all wanted devices.

Blocking, and used by one thread at a time. The library counts who holds it, so sources of several
targets each hold it for themselves. Where anything is lost the hold is let go after the look: only
when nobody holds the library does it forget the dead device and find the one that came back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pynvml

from collector.sources.gpu.nvml_reads import (
    BOARD_READS,
    LOST,
    UNIT_READS,
    DeviceLostError,
    Handle,
    Look,
)

MAX_DEVICES: Final = 64
MAX_EVENTS: Final = 256  # a look


@dataclass(frozen=True, slots=True)
class _Unit:
    """A device or MIG instance; `board` is the device that it is on, or itself."""

    label: str
    uuid: str
    handle: Handle
    board: str
    board_handle: Handle


class NvmlDriver:
    """The library as one source holds it."""

    def __init__(self, wanted: Sequence[str]) -> None:
        """Make a hold that is not taken yet.

        Args:
            wanted: Indices (`0`, `0/1` for a MIG instance) or UUIDs; empty means all devices.
        """
        self._wanted = tuple(wanted)
        self._held = False
        self._events: Handle | None = None
        self._watched: dict[int | None, str] = {}  # address of a handle to its label
        self._labels: dict[str, str] = {}  # uuid to label, for as long as the source lives
        self._nameless: set[str] = set()  # indices that were lost before they told their uuid

    def look(self) -> Look:
        """Ask the driver for everything that is wanted; its trouble is in the look, not raised."""
        out = Look()
        try:
            if not self._held:
                pynvml.nvmlInit()
                self._held = True
            self._survey(out)
        except pynvml.NVMLError as error:
            out.trouble = (error.value, str(error))
            self.release()
        if out.broken:
            self.release()
        return out

    def release(self) -> None:
        """Let the library go; the next look takes it again."""
        if not self._held:
            return
        self._held = False
        for end in (self._forget_events, pynvml.nvmlShutdown):
            try:
                end()
            except pynvml.NVMLError:
                continue  # it is gone already

    def _survey(self, out: Look) -> None:
        units = self._units(out)
        out.present = [f"{unit.label} ({unit.uuid})" for unit in units]
        chosen = self._chosen(units, out)
        boards: dict[str, Handle] = {}
        for unit in chosen:
            if self._read_all(out, unit.label, unit.handle, UNIT_READS):
                boards.setdefault(unit.board, unit.board_handle)
        for label, handle in boards.items():
            self._read_all(out, label, handle, BOARD_READS)
        out.broken = out.broken or bool(out.lost)
        self._take_events(out, boards)

    def _read_all(
        self, out: Look, label: str, handle: Handle, reads: Sequence[Callable[..., None]]
    ) -> bool:
        """Read a device; one that is lost on the way leaves nothing but its name."""
        try:
            for read in reads:
                read(out, label, handle)
        except DeviceLostError:
            for parts in out.values.values():
                parts.pop(label, None)
            out.rows = [row for row in out.rows if row.device != label]
            out.lost.append(label)
            return False
        return True

    def _units(self, out: Look) -> list[_Unit]:
        """Return all devices and MIG instances there are; note what is lost or blocked."""
        found: list[_Unit] = []
        for index in range(min(pynvml.nvmlDeviceGetCount(), MAX_DEVICES)):
            try:
                found += self._units_of(index)
            except pynvml.NVMLError as error:
                if error.value in LOST:
                    self._nameless.add(str(index))
                elif error.value == pynvml.NVML_ERROR_NO_PERMISSION:
                    out.blocked.append(str(index))
                else:
                    raise
        there = {unit.board for unit in found}
        self._nameless -= {*self._labels.values(), *there}
        gone = sorted({*self._labels.values(), *self._nameless} - there)
        out.broken = bool(gone)
        out.lost += [label for label in gone if self._wants_lost(label)]
        return found

    def _units_of(self, index: int) -> list[_Unit]:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        instances = _instances(handle)
        label = self._label(index, uuid)
        units = [_Unit(label, uuid, handle, label, handle)]
        for place, (instance, name) in instances.items():
            units.append(_Unit(f"{label}/{place}", name, instance, label, handle))
        return units

    def _label(self, index: int, uuid: str) -> str:
        """Return the label of a device: the index at first sight, kept when others shift."""
        known = self._labels.get(uuid)
        if known is not None:
            return known
        taken = set(self._labels.values())
        free = (str(it) for it in range(index, index + MAX_DEVICES + 1) if str(it) not in taken)
        label = next(free, str(index))
        if len(self._labels) < MAX_DEVICES:
            self._labels[uuid] = label
        return label

    def _wants_lost(self, label: str) -> bool:
        if not self._wanted:
            return True
        names = {label, *(uuid for uuid, it in self._labels.items() if it == label)}
        return any(it in names or it.startswith(f"{label}/") for it in self._wanted)

    def _chosen(self, units: Sequence[_Unit], out: Look) -> list[_Unit]:
        """Return the wanted units; of a device that is split, all means its instances."""
        if not self._wanted:
            split = {unit.board for unit in units if unit.label != unit.board}
            return [unit for unit in units if unit.label not in split]
        chosen = [unit for unit in units if not {unit.label, unit.uuid}.isdisjoint(self._wanted)]
        met = {name for unit in chosen for name in (unit.label, unit.uuid)}
        for name in self._wanted:
            label = self._labels.get(name, name)
            if name not in met and label.partition("/")[0] not in (*out.lost, *out.blocked):
                out.missing.append(name)
        return chosen

    def _take_events(self, out: Look, boards: dict[str, Handle]) -> None:
        """Collect the XID events since the look before."""
        for label, handle in boards.items():
            if label not in self._watched.values() and not self._watch(label, handle):
                return
        if self._events is None:
            return
        out.xids_watched = True
        try:
            for _ in range(MAX_EVENTS):
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                label = self._watched.get(_address(event.device), "")
                out.xids.append((label, int(event.eventData)))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_TIMEOUT:  # that one says: no more of them
                out.broken = True

    def _watch(self, label: str, handle: Handle) -> bool:
        try:
            if self._events is None:
                self._events = pynvml.nvmlEventSetCreate()
            kind = pynvml.nvmlEventTypeXidCriticalError
            pynvml.nvmlDeviceRegisterEvents(handle, kind, self._events)
        except pynvml.NVMLError:
            self._forget_events()
            return False
        self._watched[_address(handle)] = label
        return True

    def _forget_events(self) -> None:
        events, self._events = self._events, None
        self._watched.clear()
        if events is not None:
            pynvml.nvmlEventSetFree(events)


def _instances(handle: Handle) -> dict[int, tuple[Handle, str]]:
    """Return the MIG instances of a device by their places: handle and uuid."""
    found: dict[int, tuple[Handle, str]] = {}
    try:
        if pynvml.nvmlDeviceGetMigMode(handle)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return found
        places = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError as error:
        if error.value in LOST:
            raise
        return found  # it cannot be split
    for place in range(min(places, MAX_DEVICES)):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
            found[place] = (instance, pynvml.nvmlDeviceGetUUID(instance))
        except pynvml.NVMLError as error:
            if error.value in LOST:
                raise  # else the place is empty
    return found


def _address(handle: Handle) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
