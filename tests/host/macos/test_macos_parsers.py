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
BAD = Status.PARSE_ERROR


def printed(text: str, code: int = 0, err: str = "") -> Output:
    return Output(code, text.encode(), err.encode())


@pytest.mark.parametrize("width", [30, 35])
@pytest.mark.parametrize("page", [4096, PAGE])
def test_headroom_is_free_plus_file_backed_plus_purgeable(width: int, page: int) -> None:
    """Headroom counts what needs no compression, in the page size of the header, in both label widths."""
    values = vm_stat.parse(printed(mac_tools.vm_stat(page, width)))

    assert (90_000 + 250_000 + 15_000) * page == values["memory_headroom"]
    assert (210_000 + 550_000 + 300_000) * page == values["memory_uncompressed_demand"]
    assert (210_000 * page, 110_000 * page) == (values["memory_wired"], values["memory_compressed"])
    assert (321 * page, 654 * page) == (values["swapin_bytes"], values["swapout_bytes"])


def test_rows_for_tagged_memory_change_nothing() -> None:
    """Systems that append rows, one of them in bytes, give the same values."""
    text = mac_tools.vm_stat()
    more = "".join(f"{name + ':':<35}{value:>16}.\n" for name, value in mac_tools.TAGGED_ROWS.items())

    assert vm_stat.parse(printed(text)) == vm_stat.parse(printed(text + more))


def test_a_torn_reading_of_vm_stat_is_no_reading() -> None:
    """File-backed plus anonymous pages must be active plus inactive plus speculative; else all values are parse
    errors.
    """
    values = vm_stat.parse(printed(mac_tools.vm_stat(Pages_active=100_000)))

    assert {BAD} == set(values.values())


@given(cut=st.integers(0, len(mac_tools.vm_stat())))
def test_truncating_vm_stat_never_invents_a_value(cut: int) -> None:
    """Every value read from a truncated output is the value of the whole one."""
    untruncated = vm_stat.parse(printed(mac_tools.vm_stat()))

    values = vm_stat.parse(printed(mac_tools.vm_stat()[:cut]))

    assert all(value in (BAD, untruncated[name]) for name, value in values.items())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\n",
        "Statistiken des virtuellen Speichers: (16384 Bytes)\n" + mac_tools.vm_stat().split("\n", 1)[1],
        mac_tools.vm_stat().replace("Pages free", "Pages\0free"),
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


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Now drawing from 'AC Power'\n", "ac"),
        ("Now drawing from 'Battery Power'\n -InternalBattery-0 (id=1)\t80%; discharging; 3:10 remaining\n", "battery"),
        ("Now drawing from 'UPS Power'\n -UPS (id=2)\t90%\n", "battery"),
        ("Now drawing from 'AC Pow", BAD),
        ("Netzbetrieb\n", BAD),
        ("", BAD),
    ],
)
def test_power_comes_from_mains_or_a_battery(text: str, source: str | Status) -> None:
    """A UPS is a battery; anything else is not understood."""
    assert {"power_source": source} == pmset.parse_battery(printed(text))


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("System-wide power settings:\nCurrently in use:\n standby  1\n powermode            2\n", "high"),
        ("Currently in use:\n lowpowermode         1\n", "low"),
        ("Currently in use:\n lowpowermode         0\n", "automatic"),
        ("Currently in use:\n standby  1\n", Status.ABSENT),
        ("Currently in use:\n powermode  7\n", BAD),
    ],
)
def test_power_mode_is_automatic_low_or_high(text: str, mode: str | Status) -> None:
    """Newer systems print powermode, older ones lowpowermode, some none."""
    assert {"power_mode": mode} == pmset.parse_mode(printed(text))


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


def test_ioreg_memory_is_the_exact_key() -> None:
    """The driver's own memory has a key that begins alike."""
    values = ioreg.parse(printed(mac_tools.ioreg(busy=41, memory=626_000_000, resets=3)))

    assert values == {"gpu_active": 0.41, "gpu_memory": 626_000_000.0, "gpu_memory_allocated": 1.7e9, "gpu_resets": 3.0}


@given(cut=st.integers(0, len(mac_tools.ioreg())))
def test_truncating_ioreg_never_invents_a_value(cut: int) -> None:
    """A number without what follows it may have lost digits."""
    untruncated = ioreg.parse(printed(mac_tools.ioreg()))

    values = ioreg.parse(printed(mac_tools.ioreg()[:cut]))

    assert all(isinstance(value, Status) or value == untruncated[name] for name, value in values.items())


def test_ps_counts_the_systems_own_jobs() -> None:
    """Spotlight's many workers are one load; other programs are not counted, whatever the bytes of their names."""
    rows = b" 12.5 /usr/libexec/mdworker_shared\n  7.5 mdworker_shared\n 99.0 /opt/caf\xe9\n130.0 photoanalysisd\n"

    assert {"background_cpu": pytest.approx(1.5)} == ps.parse(Output(0, rows))
    assert ps.parse(Output(0, b"12,5 mds\n")) == {"background_cpu": BAD}


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

    assert readings(decoder(), [stream]) == readings(decoder(), chunks)


@pytest.mark.parametrize("name", list(STREAMS))
@given(data=st.data())
def test_truncating_a_stream_never_invents_a_sample(name: str, data: st.DataObject) -> None:
    """The samples of a truncated stream are the first samples of the whole one."""
    decoder, stream = STREAMS[name]
    expected = readings(decoder(), [stream])

    samples = readings(decoder(), [stream[: data.draw(st.integers(0, len(stream)))]])

    assert expected[: len(samples)] == samples


@given(st.binary(max_size=600))
def test_garbage_in_a_stream_is_at_most_a_parse_error(garbage: bytes) -> None:
    """Random bytes before a sample never become values, and the sample after them is read."""
    frames = readings(powermetrics.PlistDecoder(), [garbage + mac_tools.powermetrics().encode()])
    lines = readings(macmon.LineDecoder(), [garbage + b"\n" + mac_tools.macmon_line("0.8")])

    assert (frames[-1]["gpu_power"], lines[-1]["gpu_power"]) == (9.10025, 8.5)
    assert all(value is BAD for values_read in (*frames[:-1], *lines[:-1]) for value in values_read.values())


def test_powermetrics_units_become_base_units() -> None:
    """Milliwatts, megahertz under the name freq_hz, idle residency and a word become W, Hz, a share and a level."""
    (values,) = powermetrics.PlistDecoder().feed(mac_tools.powermetrics(pressure="Heavy").encode())

    expected = {
        "cpu_power": 2.4005,
        "gpu_power": 9.10025,
        "package_power": 11.50075,
        "gpu_frequency": 1.38e9,
        "gpu_active": 0.97,
        "thermal_level_powermetrics": 2.0,
        "thermal_level": 2.0,
    }
    assert expected == values


def test_powermetrics_of_fewer_samplers_lacks_their_values() -> None:
    """Without the processor there is no power: the GPU's own energy counter is another quantity."""
    text = (
        mac_tools.PLIST_HEAD + "<key>is_delta</key><true/><key>gpu</key><dict><key>gpu_energy</key><integer>9</integer>"
    )

    (values,) = powermetrics.PlistDecoder().feed(f"{text}</dict></dict></plist>".encode())

    assert {Status.ABSENT} == set(values.values())


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("sudo: a password is required", Status.DENIED),
        ("sudo: a terminal is required to read the password; either use the -S option", Status.DENIED),
        ("sudo: Ein Passwort ist notwendig", Status.DENIED),
        ("ann ist nicht in der sudoers-Datei. Dieser Vorfall wird gemeldet.", Status.DENIED),
        ("Leider darf der Benutzer ann »/usr/bin/powermetrics -f plist« als root nicht ausführen.", Status.DENIED),
        ("powermetrics must be invoked as the superuser", Status.DENIED),
        ("powermetrics: unrecognized sampler: gpu_power", Status.ABSENT),
        ("powermetrics: unrecognized order: plist", Status.ABSENT),
        ("Bus error: 10", None),
    ],
)
@pytest.mark.parametrize("on_stdout", [False, True])
def test_powermetrics_that_can_never_work_differs_from_one_that_died(
    message: str, status: Status | None, on_stdout: bool
) -> None:
    """Refusals and unknown samplers end the attempts, on whichever stream they are printed; a crash does not."""
    output = Output(1, message.encode() if on_stdout else b"", b"" if on_stdout else message.encode())

    assert status is powermetrics.permanent_failure(output)


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
    """NaN, infinity, negative watts and what is no number at all are parse errors; of a line that is no JSON, all
    is.
    """
    line = json.dumps(mac_tools.macmon("0.8")).replace('"gpu_power": 8.5', f'"gpu_power": {odd}')

    (values,) = macmon.LineDecoder().feed(line.encode() + b"\n")

    assert (values["gpu_power"], values["cpu_power"]) == (BAD, BAD if odd in {"NaN", "1e999"} else 2.5)
