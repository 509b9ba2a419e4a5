"""Raw readings: what each source of the host printed once, and what its parser made of it."""

import os
import re
import shutil
import time
from typing import Any

from gatekeeper.core.system.system_names import this_platform
from gatekeeper.host.macos import facts, ps
from gatekeeper.host.sampling.poller import dead_counters, platform_sources
from gatekeeper.host.sources import DirectSource, Source, Status, Stream, Tool, Values
from gatekeeper.host.tool_commands import Output, run_for

MOST_TEXT = 20_000
"""Characters of one output that are kept, half of them from its end: a sample of powermetrics has about 7,000."""
STREAM_S = 4.0
"""Seconds for which a stream is followed: it prints once a second, powermetrics not before the second one."""
PAUSE_S = 0.2
"""Seconds between two readings of a source that needs two, as an energy counter does."""
FACTS = Tool("facts", facts.KEYS, lambda: facts.ARGV, lambda output: {**facts.read_keys(output)})
"""What the manifest says of a Mac; nothing of it identifies the machine."""


def raw_readings() -> list[dict[str, Any]]:
    """Return for each source of this host its values with their status; of a program also what it printed.

    The process tree is that of this process.
    """
    sources = platform_sources(None, lambda: [os.getpid()])
    return [_reading(source) for source in (*sources, *([FACTS] if this_platform() == "macos" else []))]


def _reading(source: Source) -> dict[str, Any]:
    reading: dict[str, Any] = {"source": source.name}
    try:
        values = _read(source, reading)
    except Exception as error:  # noqa: BLE001  an output that breaks its parser is what the reading is to show
        reading["error"] = f"{type(error).__name__}: {error}"
        failed = Status.ABSENT if isinstance(error, OSError) else Status.PARSE_ERROR
        values = dict.fromkeys(source.provides, Status.DENIED if isinstance(error, PermissionError) else failed)
    values = (
        dict.fromkeys(source.provides, Status.ABSENT) | values | dict.fromkeys(dead_counters(values), Status.ABSENT)
    )
    missing = {name: value.value for name, value in values.items() if isinstance(value, Status)}
    return {**reading, "values": {name: values[name] for name in values if name not in missing}, "missing": missing}


def _read(source: Source, reading: dict[str, Any]) -> Values:
    """Return the values of a source; what a program printed for them goes into *reading*."""
    if isinstance(source, DirectSource):
        values = source.read()
        if Status.STALE in values.values():
            time.sleep(PAUSE_S)
            values = source.read()
        return values
    argv = source.argv()
    if argv is None or shutil.which(argv[0]) is None:
        raise FileNotFoundError(f"{argv[0] if argv else source.name}: nothing to run, or not on PATH")
    output = run_for(argv, source.limit if isinstance(source, Tool) else STREAM_S)
    out, err = (stream.decode("utf-8", "replace") for stream in (output.out, output.err))
    out = _system_jobs(out) if source is ps.TOOL else out
    reading |= {"argv": list(argv), "code": output.code, "out": _cut(out), "err": _cut(err)}
    return _parse_output(source, output)


def _parse_output(source: Tool | Stream, output: Output) -> Values:
    if isinstance(source, Tool):
        return source.parse(output)
    samples = source.decoder().feed(output.out)
    if samples:
        return samples[-1]
    return dict.fromkeys(source.provides, source.permanent_failure(output) or Status.STALE)


def _system_jobs(out: str) -> str:
    """Return the rows of ps that are programs of the system: what the user runs is left out."""
    rows = re.findall(r".+\n?", out)
    system_rows = [row for row in rows if re.match(r"\s*\S+\s+/(?:System|usr|Library/Apple)/", row)]
    return "".join(system_rows) + f"({len(rows) - len(system_rows)} further rows are left out)\n"


def _cut(text: str) -> str:
    half = MOST_TEXT // 2
    return text if len(text) <= MOST_TEXT else f"{text[:half]}\n(cut)\n{text[-half:]}"
