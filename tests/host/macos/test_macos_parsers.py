"""The parsers of macOS's tools, on outputs written from their grammars."""

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.host.macos import (
    facts,
    ioreg,
    macmon,
    pmset,
    powermetrics,
    ps,
    vm_stat,
)
from gatekeeper.host.sources import Decoder, Status, Values
from gatekeeper.host.tool_commands import Output
from tests.builders import mac_tools

PAGE = 16384
ENERGY = "<dict><key>gpu_energy</key><integer>9</integer></dict>"
BAD = Status.PARSE_ERROR


def printed(text: str, code: int = 0, err: str = "") -> Output:
    return Output(code, text.encode(), err.encode())


TAGGED = "".join(f"{name + ':':<35}{value:>16}.\n" for name, value in mac_tools.TAGGED_ROWS.items())


@pytest.mark.parametrize("width", [30, 35])
@pytest.mark.parametrize("page", [4096, PAGE])
def test_headroom_is_free_plus_file_backed_plus_purgeable(width: int, page: int) -> None:
    """Headroom counts what needs no compression, in the page size of the header, in both label widths, also of a system
    that appends rows.
    """
    values = vm_stat.parse(printed(mac_tools.vm_stat(page, width)))

    assert (90_000 + 250_000 + 15_000) * page == values["memory_headroom"]
    assert (210_000 + 550_000 + 300_000) * page == values["memory_uncompressed_demand"]
    assert (210_000 * page, 110_000 * page) == (values["memory_wired"], values["memory_compressed"])
    assert (321 * page, 654 * page) == (values["swapin_bytes"], values["swapout_bytes"])
    assert values == vm_stat.parse(printed(mac_tools.vm_stat(page, width) + TAGGED))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n",
        "Statistiken des virtuellen Speichers: (16384 Bytes)\n" + mac_tools.vm_stat().split("\n", 1)[1],
        mac_tools.vm_stat().replace("Pages free", "Pages\0free"),
        # File-backed plus anonymous pages must be active plus inactive plus speculative: this reading is torn.
        mac_tools.vm_stat(Pages_active=100_000),
        # Interval mode: columns, not rows.
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n    free   active\n   47687  1116540\n",
    ],
)
def test_unknown_output_of_vm_stat_is_a_parse_error(text: str) -> None:
    """Another locale, another mode, a NUL or nothing at all yields no number."""
    assert {BAD} == set(vm_stat.parse(printed(text)).values())


FACTS = "".join(f"{key}: {mac_tools.SYSCTL[key]}\n" for key in facts.KEYS)


def test_each_fact_is_the_line_that_names_its_key() -> None:
    """Lines may come in any order and with others; a key that this system lacks has none."""
    reversed_lines = "".join(reversed(FACTS.splitlines(keepends=True)))
    without_limit = FACTS.replace("iogpu.wired_limit_mb: 0\n", "")

    read = facts.read_keys(printed(FACTS))

    assert read == {key: mac_tools.SYSCTL[key] for key in facts.KEYS}
    assert read == facts.read_keys(printed(f"hw.cpufamily: 1\n{reversed_lines}"))
    lacking = facts.read_keys(printed(without_limit, 1, "sysctl: unknown oid 'iogpu.wired_limit_mb'\n"))
    assert read == lacking | {"iogpu.wired_limit_mb": "0"}


@given(cut=st.integers(0, len(FACTS)))
def test_truncating_sysctl_never_invents_a_fact(cut: int) -> None:
    """A line without its end may have lost digits of a memory size, and is left out."""
    assert facts.read_keys(printed(FACTS[:cut])).items() <= facts.read_keys(printed(FACTS)).items()


ON_BATTERY = "Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t80%; discharging; 3:10 remaining\n"
HIGH = "System-wide power settings:\nCurrently in use:\n standby  1\n powermode            2\n"
JOBS = " 12.5 /usr/libexec/mdworker_shared\n  7.5 mdworker_shared\n 99.0 /opt/caf\xe9\n130.0 photoanalysisd\n"
GPU = {"gpu_active": 0.41, "gpu_memory": 626_000_000.0, "gpu_memory_allocated": 1.7e9, "gpu_resets": 3.0}


@pytest.mark.parametrize(
    ("parser", "text", "values"),
    [
        (pmset.parse_battery, "Now drawing from 'AC Power'\n", {"power_source": "ac"}),
        (pmset.parse_battery, ON_BATTERY, {"power_source": "battery"}),
        (pmset.parse_battery, "Now drawing from 'UPS Power'\n -UPS (id=2)\t90%\n", {"power_source": "battery"}),
        *(
            (pmset.parse_battery, text, {"power_source": BAD})
            for text in ("Now drawing from 'AC Pow", "Netzbetrieb\n", "")
        ),
        # Newer systems print powermode, older ones lowpowermode, some none.
        (pmset.parse_mode, HIGH, {"power_mode": "high"}),
        (pmset.parse_mode, "Currently in use:\n lowpowermode         1\n", {"power_mode": "low"}),
        (pmset.parse_mode, "Currently in use:\n lowpowermode         0\n", {"power_mode": "automatic"}),
        (pmset.parse_mode, "Currently in use:\n standby  1\n", {"power_mode": Status.ABSENT}),
        (pmset.parse_mode, "Currently in use:\n powermode  7\n", {"power_mode": BAD}),
        # The driver's own memory has a key that begins alike.
        (ioreg.parse, mac_tools.ioreg(busy=41, memory=626_000_000, resets=3), GPU),
        # Spotlight's many workers are one load; other programs are not counted, whatever the bytes of their names.
        (ps.parse, JOBS, {"background_cpu": pytest.approx(1.5)}),
        (ps.parse, "12,5 mds\n", {"background_cpu": BAD}),
    ],
)
def test_what_a_tool_prints_is_its_values(parser: Callable[[Output], Values], text: str, values: Values) -> None:
    """In base units and our words; what is not understood is no value."""
    assert values == parser(Output(0, text.encode("latin-1")))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Currently in use:\n displaysleep         10\n sleep                1 (sleep prevented by sharingd)\n", 60.0),
        ("Currently in use:\n Sleep On Power Button 1\n sleep                0\n disksleep            10\n", 0.0),
        ("Currently in use:\n disksleep            10\n displaysleep         10\n", None),
        (" sleep 10\n sleep 1\n", None),
        ("", None),
    ],
)
def test_idle_sleep_is_not_that_of_disks_or_displays(text: str, seconds: float | None) -> None:
    """The minutes of the row `sleep`, also where sleep is prevented at the moment; 0 is never."""
    assert seconds == pmset.parse_sleep(printed(text))


@pytest.mark.parametrize(
    ("text", "display"),
    [
        ("\n", "none"),
        ("1\n", "asleep"),
        ("1 0\n", "on"),
        ("1 1", None),  # it may be a cut 1 1 0
        ("?\n", None),
        ("", None),
    ],
)
def test_a_display_is_on_asleep_or_missing(text: str, display: str | None) -> None:
    """One display that is awake is enough; a session that cannot tell is unknown."""
    assert display == facts.parse_display(printed(text))
    assert facts.parse_display(printed(text, code=1)) is None
    assert facts.parse_display(None) is None


@pytest.mark.parametrize(
    ("parser", "line", "changed"),
    [
        (pmset.parse_battery, "Now drawing from 'AC Power'\n", ("AC", "Battery")),
        (pmset.parse_mode, " powermode 1\n", ("1", "2")),
        (ioreg.parse, mac_tools.ioreg(), ('"recoveryCount"=0', '"recoveryCount"=0,"recoveryCount"=1')),
    ],
)
def test_lines_that_contradict_each_other_are_no_value(
    parser: Callable[[Output], Values], line: str, changed: tuple[str, str]
) -> None:
    """Twice the same is one value; of two values none is known to be the right one."""
    other = line.replace(*changed)

    assert BAD not in parser(printed(line + line)).values()
    assert BAD in parser(printed(other if "IOClass" in line else line + other)).values()


def test_the_processor_time_of_each_process_is_read_in_minutes() -> None:
    """By pid, with the name of the program, which may hold spaces; a row that is not understood is left out."""
    rows = (
        "    1   5:12.34 /sbin/launchd\n  412 123:07.50 /Applications/A.app/Google Chrome Helper\n   9 1-02:03:04 odd\n"
    )

    read = ps.processor_seconds(rows)

    assert {1: ("launchd", pytest.approx(312.34)), 412: ("Google Chrome Helper", 7387.5)} == read


PARSERS: list[Callable[[Output], Values]] = [
    vm_stat.parse,
    pmset.parse_battery,
    pmset.parse_mode,
    ioreg.parse,
    ps.parse,
]


@given(out=st.binary(max_size=300), code=st.integers(-15, 2), parser=st.sampled_from(PARSERS))
def test_garbage_yields_no_value(out: bytes, code: int, parser: Callable[[Output], Values]) -> None:
    """With random bytes and any exit code, every value is missing."""
    values = parser(Output(code, out))

    assert values
    assert all(isinstance(value, Status) for value in values.values())


@pytest.mark.parametrize("parser", PARSERS)
def test_a_tool_that_fails_is_absent_or_denied(parser: Callable[[Output], Values]) -> None:
    """Exit code 1 is absence; with the words of a refusal it is denial."""
    assert {Status.ABSENT} == set(parser(printed("", 1, "it broke")).values())
    assert {Status.DENIED} == set(parser(printed("", 1, "Operation not permitted")).values())


STREAMS: dict[str, tuple[Callable[[], Decoder], bytes]] = {
    "powermetrics": (
        powermetrics.PlistDecoder,
        b"\0".join(
            mac_tools.powermetrics(gpu=gpu, delta=delta, pressure=pressure).encode()
            for gpu, delta, pressure in [(1.5, False, "Nominal"), (9.5, True, "Heavy"), (8.5, True, "Odd")]
        ),
    ),
    "powermetrics with a cut sample": (
        powermetrics.PlistDecoder,
        mac_tools.powermetrics().encode()[:400] + b"\0" + mac_tools.powermetrics(gpu=7.5).encode(),
    ),
    "powermetrics with a NUL inside": (
        powermetrics.PlistDecoder,
        mac_tools.powermetrics().encode().replace(b"<dict>", b"<di\0ct>", 1) + mac_tools.powermetrics(gpu=6.5).encode(),
    ),
    "macmon": (macmon.LineDecoder, b"".join(map(mac_tools.macmon_line, ("0.5", "0.6", "0.8")))),
    "macmon with garbage": (
        macmon.LineDecoder,
        b'{"gpu_power": 1\n\xff\0\n[]\n' + mac_tools.macmon_line("0.8") + b'{"gpu',
    ),
}


def readings(decoder: Decoder, chunks: Sequence[bytes]) -> list[Values]:
    return [values for chunk in chunks for values in decoder.feed(chunk)]


@pytest.mark.parametrize("name", list(STREAMS))
@given(data=st.data())
def test_any_chunking_gives_the_same_samples(name: str, data: st.DataObject) -> None:
    """Where a stream is cut into chunks changes nothing, garbage and NULs included."""
    decoder, stream = STREAMS[name]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    samples = readings(decoder(), [stream])
    assert samples == readings(decoder(), chunks)
    # The samples of a truncated stream are the first samples of the whole one.
    first = readings(decoder(), chunks[:-1])
    assert samples[: len(first)] == first


@given(st.binary(max_size=600))
def test_garbage_in_a_stream_is_at_most_a_parse_error(garbage: bytes) -> None:
    """Random bytes before a sample never become values, and the sample after them is read."""
    frames = readings(powermetrics.PlistDecoder(), [garbage + mac_tools.powermetrics().encode()])
    lines = readings(macmon.LineDecoder(), [garbage + b"\n" + mac_tools.macmon_line("0.8")])

    assert (frames[-1]["gpu_power"], lines[-1]["gpu_power"]) == (9.10025, 8.5)
    assert all(value is BAD for values_read in (*frames[:-1], *lines[:-1]) for value in values_read.values())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            mac_tools.powermetrics(pressure="Heavy"),
            {
                "cpu_power": 2.4005, "gpu_power": 9.10025, "package_power": 11.50075, "gpu_frequency": 1.38e9,
                "gpu_active": 0.97, "thermal_level_powermetrics": 2.0, "thermal_level": 2.0,
            },
        ),
        # Without the processor there is no power: the GPU's own energy counter is another quantity.
        (f"{mac_tools.PLIST_HEAD}<key>is_delta</key><true/><key>gpu</key>{ENERGY}</dict></plist>", {}),
    ],
)  # fmt: skip
def test_powermetrics_units_become_base_units(text: str, expected: Values) -> None:
    """Milliwatts, megahertz under the name freq_hz, idle residency and a word become W, Hz, a share and a level."""
    (values,) = powermetrics.PlistDecoder().feed(text.encode())

    assert (expected or dict.fromkeys(values, Status.ABSENT)) == values


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("sudo: a password is required", Status.DENIED),
        ("sudo: Ein Passwort ist notwendig", Status.DENIED),
        ("ann ist nicht in der sudoers-Datei. Dieser Vorfall wird gemeldet.", Status.DENIED),
        ("powermetrics must be invoked as the superuser", Status.DENIED),
        ("powermetrics: unrecognized sampler: gpu_power", Status.ABSENT),
        ("powermetrics: unrecognized order: plist", Status.ABSENT),
        ("Bus error: 10", None),
    ],
)
def test_powermetrics_that_can_never_work_differs_from_one_that_died(message: str, status: Status | None) -> None:
    """Refusals and unknown samplers end the attempts, on whichever stream they are printed; a crash does not."""
    for streams in ((message.encode(), b""), (b"", message.encode())):
        assert status is powermetrics.permanent_failure(Output(1, *streams))


@pytest.mark.parametrize(
    ("version", "frequency", "active", "fan"),
    [
        ("0.5", 1.38e9, 0.875, Status.ABSENT),
        ("0.6", 1.38e9, 0.875, Status.ABSENT),
        ("0.8", 1.39e9, 0.96875, 1320.0),
    ],
)
def test_macmon_of_every_version(version: str, frequency: float, active: float, fan: float | Status) -> None:
    """Powers are watts throughout; 0.8 adds fans and a true activity."""
    (values,) = macmon.LineDecoder().feed(mac_tools.macmon_line(version))

    expected = {
        "cpu_power": 2.5,
        "gpu_power": 8.5,
        "package_power": 11.0,
        "system_power": 19.75,
        "gpu_frequency": frequency,
        "gpu_active": active,
        "fan_speed": fan,
    }
    assert expected == values


@pytest.mark.parametrize("odd", ["NaN", "-1.0", "1e999", '"8.5"', "null", "true", "[8.5]"])
def test_macmon_numbers_must_be_possible(odd: str) -> None:
    """NaN, infinity, negative watts and what is no number are parse errors."""
    line = json.dumps(mac_tools.macmon("0.8")).replace('"gpu_power": 8.5', f'"gpu_power": {odd}')

    (values,) = macmon.LineDecoder().feed(line.encode() + b"\n")

    assert (values["gpu_power"], values["cpu_power"]) == (BAD, BAD if odd in {"NaN", "1e999"} else 2.5)
