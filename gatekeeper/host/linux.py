"""The sources of a Linux host: files in /proc and /sys."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gatekeeper.core.parse import ParseError, integer
from gatekeeper.host.process_tree import ProcessTree
from gatekeeper.host.sources import DirectSource, Status, Values, number, scale_value

PROC = Path("/proc")
SYS = Path("/sys")

_ROW = re.compile(r"^([A-Za-z0-9_()]+):?[ \t]+(\d{1,18})( kB)?[ \t]*\n", re.MULTILINE)

_COUNTED = re.compile(r"^(pswpin|pswpout|oom_kill)[ \t]+(\d{1,18})( kB)?[ \t]*\n", re.MULTILINE)
"""The rows we need of the two hundred in /proc/vmstat: reading all of them takes four times as long."""


def fields(text: str, rows: re.Pattern[str] = _ROW) -> dict[str, int]:
    """Read `Name:   123 kB` and `name 123` rows as whole numbers, kB as bytes; an unfinished last row is left out."""
    return {name: int(count) * (1024 if kilo else 1) for name, count, kilo in rows.findall(text)}


def _sum(row: Mapping[str, int], *names: str) -> float | Status:
    return float(sum(row[name] for name in names)) if all(name in row for name in names) else Status.PARSE_ERROR


class Meminfo(DirectSource):
    """Memory from /proc/meminfo. Headroom is MemAvailable: what can be allocated without swapping."""

    name = "/proc/meminfo"
    provides = (
        "memory_total", "memory_headroom", "memory_wired", "memory_compressed", "memory_uncompressed_demand",
        "swap_used",
    )  # fmt: skip

    def __init__(self, proc: Path = PROC) -> None:
        self._path = proc / "meminfo"

    def read(self) -> Values:
        """Return the memory values.

        Wired is what cannot be reclaimed: Unevictable + SUnreclaim + KernelStack + PageTables. Demand adds AnonPages
        and the swap in use, zswap and zram included, at the size it had before it was compressed.
        """
        row = fields(self._path.read_text("ascii"))
        wired = _sum(row, "Unevictable", "SUnreclaim", "KernelStack", "PageTables")
        swap = row["SwapTotal"] - row["SwapFree"] if {"SwapTotal", "SwapFree"} <= row.keys() else None
        swapped = number(swap) if swap is not None else Status.PARSE_ERROR
        anonymous = _sum(row, "AnonPages")
        lacks = [part for part in (wired, swapped, anonymous) if isinstance(part, Status)]
        return {
            "memory_total": _sum(row, "MemTotal"),
            "memory_headroom": _sum(row, "MemAvailable"),
            "memory_wired": wired,
            "memory_compressed": float(row["Zswap"]) if "Zswap" in row else Status.ABSENT,
            "memory_uncompressed_demand": lacks[0]
            if lacks
            else sum(part for part in (wired, swapped, anonymous) if not isinstance(part, Status)),
            "swap_used": swapped,
        }


class Vmstat(DirectSource):
    """Pages swapped since boot, from /proc/vmstat, as bytes."""

    name = "/proc/vmstat"
    provides = ("swapin_bytes", "swapout_bytes", "oom_kills")

    def __init__(self, proc: Path = PROC) -> None:
        self._path = proc / "vmstat"
        self._page = os.sysconf("SC_PAGE_SIZE")

    def read(self) -> Values:
        """Return the cumulative counters."""
        row = fields(self._path.read_text("ascii"), _COUNTED)
        return {
            "swapin_bytes": scale_value(_sum(row, "pswpin"), self._page),
            "swapout_bytes": scale_value(_sum(row, "pswpout"), self._page),
            "oom_kills": float(row["oom_kill"]) if "oom_kill" in row else Status.ABSENT,
        }


class Pressure(DirectSource):
    """Memory pressure from the kernel's stall information, as a level."""

    name = "/proc/pressure/memory"
    provides = ("memory_pressure_level",)

    def __init__(self, proc: Path = PROC) -> None:
        self._path = proc / "pressure" / "memory"

    def read(self) -> Values:
        """Return 4 when full avg10 is at least 10 %, 2 when some avg10 is, else 1. Another scale than macOS's."""
        averages = dict(re.findall(r"^(some|full) avg10=(\d{1,3}\.\d\d) ", self._path.read_text("ascii"), re.MULTILINE))
        if set(averages) != {"some", "full"}:
            return {"memory_pressure_level": Status.PARSE_ERROR}
        partial, complete = float(averages["some"]), float(averages["full"])
        return {"memory_pressure_level": 4.0 if complete >= 10.0 else 2.0 if partial >= 10.0 else 1.0}


COST_MOST = 1 / 1000
"""Largest share of the time spent walking the server's page tables: the walk holds a lock that the server needs."""


class Footprint(DirectSource):
    """Memory of the server's process tree: Pss + SwapPss of smaps_rollup, shared pages counted once."""

    name = "smaps_rollup"
    provides = ("subject_footprint",)
    max_reuse = 10.0

    def __init__(self, pids: Callable[[], Sequence[int]], proc: Path = PROC) -> None:
        self._tree = ProcessTree(pids)
        self._proc = proc
        self._due_ns = self._taken_ns = 0
        self._measured: list[int] = []
        self._kept: Values = {}

    def read(self) -> Values:
        """Return the sum over the tree; if one process cannot be read, the sum is unknown, not smaller."""
        pids = self._tree.pids()
        now = time.monotonic_ns()
        if pids == self._measured and now < self._due_ns:
            self.reused_age_ns = now - self._taken_ns
            return self._kept
        self._measured, self._kept, self.reused_age_ns = pids, {"subject_footprint": self._measure(pids)}, 0
        self._taken_ns = time.monotonic_ns()
        self._due_ns = now + min(round((self._taken_ns - now) / COST_MOST), round(self.max_reuse * 1e9))
        return self._kept

    def _measure(self, pids: Sequence[int]) -> float | Status:
        total, measured = 0.0, False
        for pid in pids:
            try:
                row = fields((self._proc / str(pid) / "smaps_rollup").read_text("ascii"))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            except PermissionError:
                return Status.DENIED
            if not row:
                continue  # a zombie holds no memory
            swap = row.get("SwapPss", row.get("Swap"))
            if "Pss" not in row or swap is None:
                return Status.PARSE_ERROR
            total, measured = total + row["Pss"] + swap, True
        return total if measured else Status.ABSENT


def _read_number(path: Path) -> int:
    try:
        return integer(path.read_text("ascii"))
    except ParseError as error:
        raise ValueError(f"{path}: {error}") from error


class Throttle(DirectSource):
    """Thermal throttling counted by the kernel for each core and package (Intel)."""

    name = "thermal_throttle"
    provides = ("throttle_total", "throttle_events")

    def __init__(self, sys: Path = SYS) -> None:
        self._counts: list[Path] = []
        self._times: list[Path] = []
        cpu = sys / "devices" / "system" / "cpu"
        counted: set[tuple[str, ...]] = set()
        for folder in sorted(cpu.glob("cpu[0-9]*/thermal_throttle")):
            package = _read_word(folder.parent / "topology" / "physical_package_id")
            core = _read_word(folder.parent / "topology" / "core_id")
            # Siblings of a core, and cores of a package, repeat the same counter: each is read once.
            for kind, unit in (("core", (package, core)), ("package", (package,))):
                if (kind, *unit) in counted or not (folder / f"{kind}_throttle_count").exists():
                    continue
                counted.add((kind, *unit))
                self._counts.append(folder / f"{kind}_throttle_count")
                if (folder / f"{kind}_throttle_total_time_ms").exists():
                    self._times.append(folder / f"{kind}_throttle_total_time_ms")

    def read(self) -> Values:
        """Return events and seconds since boot, summed over cores and packages: an upper bound of the wall time."""
        if not self._counts:
            return {}
        total = sum(map(_read_number, self._times)) / 1e3 if len(self._times) == len(self._counts) else Status.ABSENT
        return {"throttle_total": total, "throttle_events": float(sum(map(_read_number, self._counts)))}


def _read_word(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return path.parent.parent.name


class Fans(DirectSource):
    """Fan speed from hwmon: the fastest fan. Zero is a fan that stands still, or a sensor without a fan."""

    name = "hwmon"
    provides = ("fan_speed",)

    def __init__(self, sys: Path = SYS) -> None:
        self._paths = sorted((sys / "class" / "hwmon").glob("*/fan*_input"))

    def read(self) -> Values:
        """Return the speed of the fastest fan in rpm."""
        return {"fan_speed": float(max(map(_read_number, self._paths)))} if self._paths else {}


class PowerSupply(DirectSource):
    """Mains or battery, from /sys/class/power_supply."""

    name = "power_supply"
    provides = ("power_source",)

    def __init__(self, sys: Path = SYS) -> None:
        self._folder = sys / "class" / "power_supply"

    def read(self) -> Values:
        """Return "ac" if a mains adapter is online, else "battery" if there is a system battery."""
        mains, batteries = [], 0
        for supply in sorted(self._folder.glob("*")):
            kind = _read_word(supply / "type")
            if kind in ("Mains", "USB", "Wireless", "UPS") and (supply / "online").exists():
                mains.append(kind != "UPS" and _read_number(supply / "online") == 1)
            elif kind == "Battery" and _read_word(supply / "scope") != "Device":
                batteries += 1
        if any(mains):
            return {"power_source": "ac"}
        return {"power_source": "battery"} if batteries else {}


class Rapl(DirectSource):
    """Package power from the energy counters of Intel and AMD; on most kernels only root can read them."""

    name = "powercap"
    provides = ("package_power",)

    def __init__(self, sys: Path = SYS) -> None:
        zones = sorted((sys / "class" / "powercap").glob("intel-rapl:*"))
        self._zones = [zone for zone in zones if _read_word(zone / "name").startswith("package")]
        self._last: tuple[int, list[int]] | None = None

    def read(self) -> Values:
        """Return the mean power since the last reading; stale for the first reading and after a counter wrapped."""
        if not self._zones:
            return {}
        now, energies = time.monotonic_ns(), [_read_number(zone / "energy_uj") for zone in self._zones]
        last, self._last = self._last, (now, energies)
        if last is None or now <= last[0]:
            return {"package_power": Status.STALE}
        deltas = [new - old for new, old in zip(energies, last[1], strict=True)]
        if min(deltas) < 0:
            return {"package_power": Status.STALE}
        return {"package_power": sum(deltas) * 1e-6 / ((now - last[0]) * 1e-9)}


def sources(pids: Callable[[], Sequence[int]], proc: Path = PROC, sys: Path = SYS) -> list[DirectSource]:
    """Return every source of a Linux host."""
    memory = [Meminfo(proc), Vmstat(proc), Pressure(proc), Footprint(pids, proc)]
    return [*memory, Throttle(sys), Fans(sys), PowerSupply(sys), Rapl(sys)]
