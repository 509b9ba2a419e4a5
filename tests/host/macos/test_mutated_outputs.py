"""Outputs that were cut, lost a line or have numbers in another form: a value is what was printed, or it is missing."""

import re
from collections.abc import Callable, Iterator

import pytest

from gatekeeper.host.macos import (
    ioreg,
    macmon,
    pmset,
    powermetrics,
    ps,
    vm_stat,
)
from gatekeeper.host.sources import Status, Values
from gatekeeper.host.tool_commands import Output
from tests.builders import mac_tools

Reading = Callable[[bytes], list[Values]]
LONGEST = 30
"""Digits of a number that no Mac prints."""


def tool(parse: Callable[[Output], Values]) -> Reading:
    return lambda raw: [parse(Output(0, raw))]


def sleep(output: Output) -> Values:
    return {"sleep": seconds} if (seconds := pmset.parse_sleep(output)) is not None else {}


PMSET = "System-wide power settings:\n standby 1\n powermode 1\n sleep 10 (sleep prevented by caffeinate)\n"
OUTPUTS: dict[str, tuple[Reading, str]] = {
    "vm_stat": (tool(vm_stat.parse), mac_tools.vm_stat()),
    "ioreg": (tool(ioreg.parse), mac_tools.ioreg(resets=3)),
    "pmset -g batt": (tool(pmset.parse_battery), "Now drawing from 'AC Power'\n"),
    "pmset -g": (tool(pmset.parse_mode), PMSET),
    "pmset -g, sleep": (tool(sleep), PMSET),
    "ps": (tool(ps.parse), " 25.5 /usr/libexec/mdworker_shared\n"),
    "powermetrics": (
        lambda raw: powermetrics.PlistDecoder().feed(raw),
        "\0".join(mac_tools.powermetrics(gpu=gpu, cpu=gpu, combined=gpu) for gpu in (9100.25, 700.5)),
    ),
    "macmon": (
        lambda raw: macmon.LineDecoder().feed(raw),
        "".join(mac_tools.macmon_line(version).decode() for version in ("0.5", "0.6", "0.8")),
    ),
}


def cut(raw: bytes) -> Iterator[bytes]:
    yield from (raw[:end] for end in range(len(raw)))


def without_a_line(raw: bytes) -> Iterator[bytes]:
    lines = raw.splitlines(keepends=True)
    yield from (b"".join(lines[:at] + lines[at + 1 :]) for at in range(len(lines)))


def with_a_longer_number(raw: bytes) -> Iterator[bytes]:
    """Repeat the digits of each number before its point: behind it, more digits are the same number or another one."""
    for number in re.finditer(rb"(?<![\d.])[1-9]\d*", raw):
        digits = (number.group() * LONGEST)[:LONGEST]
        yield raw[: number.start()] + digits + raw[number.end() :]


def with_a_number_in_another_form(raw: bytes) -> Iterator[bytes]:
    """Make a number negative or none, or group its digits as another language does."""
    for number in re.finditer(rb"(?<![\d.])\d+(?:\.\d+)?", raw):
        digits = number.group()
        for form in (
            b"-" + digits,
            b"nan",
            b"inf",
            b"",
            b"-",
            digits[:1] + b"," + digits[1:],
            digits[:1] + b" " + digits[1:],
        ):
            yield raw[: number.start()] + form + raw[number.end() :]


def in_other_bytes(raw: bytes) -> Iterator[bytes]:
    text = raw.decode()
    yield from (text.encode("utf-16"), b"\xef\xbb\xbf" + raw, raw.replace(b"\n", b"\r\n"), raw.replace(b" ", b"\0"))
    yield from (
        raw.replace(b"M ", b"G "),
        raw.replace(b" B ", b" GB "),
        raw.replace(b".", b","),
        b"",
        bytes(range(256)),
    )


MUTATIONS = {
    "cut": cut,
    "without a line": without_a_line,
    "with a longer number": with_a_longer_number,
    "with a number in another form": with_a_number_in_another_form,
    "in other bytes": in_other_bytes,
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_mutated_output_gives_its_value_or_none(name: str, mutation: str) -> None:
    """Each value that is read of a mutated output is one that is read of the whole output."""
    read, text = OUTPUTS[name]
    items_of_whole = [
        item for values in read(text.encode()) for item in values.items() if not isinstance(item[1], Status)
    ]
    assert items_of_whole

    for raw in MUTATIONS[mutation](text.encode()):
        values = [item for values in read(raw) for item in values.items() if not isinstance(item[1], Status)]

        assert [] == [item for item in values if item not in items_of_whole], raw
