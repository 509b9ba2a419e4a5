"""The sources of a Linux host: on the real files where there are any, on written ones for the rest."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.host import linux, process_tree
from gatekeeper.host.sources import Status, Values

BAD = Status.PARSE_ERROR

MEMINFO = {
    "MemTotal": 24_000_000,
    "MemFree": 9_000_000,
    "MemAvailable": 17_000_000,
    "SwapTotal": 8_000_000,
    "SwapFree": 7_500_000,
    "Zswap": 120_000,
    "AnonPages": 5_000_000,
    "Unevictable": 1_000,
    "SUnreclaim": 300_000,
    "KernelStack": 20_000,
    "PageTables": 40_000,
    "HugePages_Total": 0,
}


def meminfo(**changed: int) -> str:
    return "".join(f"{name + ':':<16}{value:>9} kB\n" for name, value in (MEMINFO | changed).items())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder that replaces /proc and /sys."""
    put(tmp_path, "meminfo", meminfo())
    put(tmp_path, "vmstat", "nr_free_pages 100\npswpin 7\npswpout 9\noom_kill 2\n")
    put(tmp_path, "pressure/memory", pressure(0.0, 0.0))
    return tmp_path


def put(root: Path, name: str, text: str) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def pressure(some_share: float, full: float) -> str:
    return "".join(
        f"{kind} avg10={value:.2f} avg60=0.00 avg300=0.00 total=12345\n"
        for kind, value in (("some", some_share), ("full", full))
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads the running kernel's own files")
def test_this_kernel_is_understood() -> None:
    """On the Linux that runs this test memory, swap and the footprint of this process are numbers."""
    values: Values = {}
    for source in linux.sources(lambda: [os.getpid()]):
        if source.name in ("/proc/meminfo", "/proc/vmstat", "smaps_rollup"):
            values |= source.read()

    missing = {name for name, value in values.items() if isinstance(value, Status)}
    assert missing <= {"memory_compressed", "oom_kills"}
    assert os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") == pytest.approx(values["memory_total"])
    assert isinstance(values["subject_footprint"], float)
    assert values["subject_footprint"] > 1e6


def test_memory_is_bytes(root: Path) -> None:
    """Headroom is MemAvailable; demand counts anonymous memory at the size it had before swap or compression."""
    wired = (1_000 + 300_000 + 20_000 + 40_000) * 1024.0

    expected = {
        "memory_total": 24_000_000 * 1024.0,
        "memory_headroom": 17_000_000 * 1024.0,
        "memory_wired": wired,
        "memory_compressed": 120_000 * 1024.0,
        "memory_uncompressed_demand": wired + (5_000_000 + 500_000) * 1024.0,
        "swap_used": 500_000 * 1024.0,
    }
    assert expected == linux.Meminfo(root).read()


@given(cut=st.integers(0, len(meminfo())))
def test_truncating_meminfo_never_invents_a_value(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """A row without its end is no row."""
    folder = tmp_path_factory.getbasetemp() / "meminfo"
    folder.mkdir(exist_ok=True)
    put(folder, "meminfo", meminfo())
    untruncated = linux.Meminfo(folder).read()

    put(folder, "meminfo", meminfo()[:cut])
    truncated = linux.Meminfo(folder).read()

    assert all(isinstance(value, Status) or value == untruncated[name] for name, value in truncated.items())


def test_swap_counters_are_bytes_since_boot(root: Path) -> None:
    """Pages become bytes by this machine's page size."""
    page = os.sysconf("SC_PAGE_SIZE")

    assert linux.Vmstat(root).read() == {"swapin_bytes": 7 * page, "swapout_bytes": 9 * page, "oom_kills": 2.0}


@pytest.mark.parametrize(
    ("some_share", "full", "level"),
    [(0.0, 0.0, 1.0), (9.99, 0.0, 1.0), (10.0, 0.0, 2.0), (50.0, 9.99, 2.0), (10.0, 10.0, 4.0), (90.0, 80.0, 4.0)],
)
def test_pressure_levels_begin_at_ten_per_cent(root: Path, some_share: float, full: float, level: float) -> None:
    """Critical is full avg10 of at least 10 %, warning is some avg10 of at least 10 %."""
    put(root, "pressure/memory", pressure(some_share, full))

    assert {"memory_pressure_level": level} == linux.Pressure(root).read()


@pytest.mark.parametrize(
    "text", ["", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n", "some avg10=nan \nfull avg10=x"]
)
def test_half_a_pressure_file_is_no_pressure(root: Path, text: str) -> None:
    """Without both rows there is no level, and certainly not "normal"."""
    put(root, "pressure/memory", text)

    assert linux.Pressure(root).read() == {"memory_pressure_level": BAD}


@pytest.fixture
def written_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the processes that a test wrote for running ones, without descendants."""
    monkeypatch.setattr(process_tree, "list_tree", sorted)


def process(root: Path, pid: int, pss: int | None = 100, swap: int = 10) -> None:
    rows = "" if pss is None else f"Rss:  999 kB\nPss:  {pss} kB\nPss_Dirty:  1 kB\nSwap:  77 kB\nSwapPss:  {swap} kB\n"
    put(root, f"{pid}/smaps_rollup", "55-7f ---p 00000000 00:00 0    [rollup]\n" + rows)


@pytest.mark.usefixtures("written_processes")
def test_the_footprint_is_the_trees_pss_and_swap(root: Path) -> None:
    """Each process counts, shared pages in shares; a zombie, or what has ended meanwhile, not at all."""
    process(root, 10)
    process(root, 11, pss=200, swap=0)
    put(root, "12/smaps_rollup", "")

    footprint = linux.Footprint(lambda: [10, 11, 12, 13], root).read()

    assert footprint == {"subject_footprint": (110 + 200) * 1024.0}
    # A process that has ended, or none at all, has an absent footprint; without Pss there is none, Rss or not.
    put(root, "14/smaps_rollup", "Rss:  999 kB\nSwap:  1 kB\n")
    for pids, status in (([999_999], Status.ABSENT), ([], Status.ABSENT), ([14], BAD)):
        assert linux.Footprint(lambda roots=pids: roots, root).read() == {"subject_footprint": status}  # type: ignore[misc]


@pytest.mark.usefixtures("written_processes")
def test_a_reused_footprint_has_its_age(root: Path) -> None:
    """The page tables are not walked again at once, and the reading has its age; a new process is measured at once."""
    process(root, 10)
    process(root, 20, pss=500)
    roots = [10]
    source = linux.Footprint(lambda: roots, root)
    first = source.read()
    process(root, 10, pss=900)

    again, age = source.read(), source.reused_age_ns
    roots[0] = 20
    moved_root = source.read()

    assert first == again
    assert age > 0
    assert (moved_root, source.reused_age_ns) == ({"subject_footprint": 510 * 1024.0}, 0)


def cpu(root: Path, number: int, core: int, count: int, milliseconds: int | None) -> None:
    folder = f"devices/system/cpu/cpu{number}"
    put(root, f"{folder}/topology/physical_package_id", "0\n")
    put(root, f"{folder}/topology/core_id", f"{core}\n")
    put(root, f"{folder}/thermal_throttle/core_throttle_count", f"{count}\n")
    put(root, f"{folder}/thermal_throttle/package_throttle_count", "3\n")
    if milliseconds is not None:
        put(root, f"{folder}/thermal_throttle/core_throttle_total_time_ms", f"{milliseconds}\n")
        put(root, f"{folder}/thermal_throttle/package_throttle_total_time_ms", "250\n")


def test_throttling_is_counted_once_for_siblings(root: Path) -> None:
    """Two threads of a core repeat its counter, all cores repeat the package's."""
    cpu(root, 0, 0, 4, 1000)
    cpu(root, 1, 0, 4, 1000)
    cpu(root, 2, 1, 5, 500)

    assert linux.Throttle(root).read() == {"throttle_total": 1.75, "throttle_events": 12.0}


def test_old_kernels_count_events_without_their_time(root: Path) -> None:
    """The time is absent then, not zero."""
    cpu(root, 0, 0, 4, None)

    assert linux.Throttle(root).read() == {"throttle_total": Status.ABSENT, "throttle_events": 7.0}


def supply(root: Path, name: str, **files: str) -> None:
    for key, value in files.items():
        put(root, f"class/power_supply/{name}/{key}", value + "\n")


def test_power_comes_from_mains_when_an_adapter_is_online(root: Path) -> None:
    """An adapter decides; a mouse's battery is not the host's; a desktop without either is absent."""
    source = linux.PowerSupply(root)
    nothing = source.read()
    supply(root, "hidpp_battery_0", type="Battery", scope="Device")
    mouse = source.read()
    supply(root, "BAT0", type="Battery")
    supply(root, "AC", type="Mains", online="0")
    battery = source.read()
    supply(root, "AC", online="1")

    expected = [{}, {}, {"power_source": "battery"}, {"power_source": "ac"}]
    assert expected == [nothing, mouse, battery, source.read()]


def test_fans_and_energy_are_read_where_they_are(root: Path) -> None:
    """The fastest fan counts; power needs two readings of the counter, and a counter that wrapped gives none."""
    put(root, "class/hwmon/hwmon0/fan1_input", "900\n")
    put(root, "class/hwmon/hwmon1/fan2_input", "1400\n")
    put(root, "class/powercap/intel-rapl:0/name", "package-0\n")
    energy = put(root, "class/powercap/intel-rapl:0/energy_uj", "1000000\n")
    rapl = linux.Rapl(root)

    first = rapl.read()
    energy.write_text("3000000\n")
    second = rapl.read()
    energy.write_text("5\n")

    assert linux.Fans(root).read() == {"fan_speed": 1400.0}
    assert {"package_power": Status.STALE} == first == rapl.read()
    assert isinstance(second["package_power"], float)
    assert second["package_power"] > 0


def test_a_small_virtual_machine_lacks_sensors(root: Path) -> None:
    """Without throttle counters, fans, supplies or energy counters those values are not given at all."""
    assert [kind(root).read() for kind in (linux.Throttle, linux.Fans, linux.PowerSupply, linux.Rapl)] == [{}] * 4


@pytest.fixture
def family() -> Iterator[tuple[int, int]]:
    """Start a process with a child, and return both ids."""
    script = "import subprocess,sys; c=subprocess.Popen(['sleep','600']); print(c.pid, flush=True); c.wait()"
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    yield parent.pid, child
    os.kill(child, 9)
    parent.wait()
    parent.stdout.close()


def test_a_real_tree_is_found_from_its_root(family: tuple[int, int]) -> None:
    """A parent leads to its child; what has ended, or was never there, leads nowhere."""
    assert sorted(family) == process_tree.list_tree([family[0], 999_999_999])
