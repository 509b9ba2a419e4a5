"""What `gatekeeper selftest` shows: ten lines on what works here, what does not, and what to do; then the sources."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gatekeeper.core.text import one_line, some
from gatekeeper.core.units import percent, show_bytes, show_number, show_seconds
from gatekeeper.report.commands import JsonObject
from gatekeeper.report.shown_document import Document, Note, Table

WORKS, FAILS, OPEN = "ok", "no", "?"
"""The first word of a line: it works here, it does not, or that is not decided."""
MOST_TEXT = 120
"""Characters of what a line says was found; the file has all of it."""
SLOWER = 1.25
"""The 99 % quantile of the gaps with sampling, relative to without, up to which sampling does not show. Above it, it
shows where each block with sampling is slower than all without: one chance in 70 that luck does it."""
COLD = 2.0
"""The time to the first token after a pause, relative to one without, from which a line says that pauses show."""
AGAIN = "run gatekeeper selftest again on a quiet machine"
REPORT = "please attach the file to an issue"
DAMAGED = "written by another version of gatekeeper, or damaged"
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What reading a document of another shape raises."""

MOST_PARTS = 100
"""Parts, and readings of the host, that are shown of a file; one that `selftest` writes has a fifth of it."""

Row = tuple[str, str, str]
"""Of a part: whether it works, what was found, and what to do. Of a source: its name, and a value with its name."""


def selftest_document(answer: JsonObject, path: object, *, sources: bool = False) -> Document:
    """Return a line for each part and one on the file; with *sources* also what each source of the host gave."""
    rows = []
    for name in answer["planned"][:MOST_PARTS]:
        word = name.partition(" ")[0]
        if word in SUMMARIES:
            mark, text, advice = _row(answer["sections"].get(name), SUMMARIES[word])
            short = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"
            rows.append((mark, name, f"{short}{f' -> {advice}' if advice else ''}"))
    values = _list_values(answer["sections"]) if sources else []
    parts = (Table(("", "", ""), rows), Note(f"all of it: {path}; {REPORT}"), Table(("", "", ""), values))
    return Document("selftest", "", parts)


def _row(section: Mapping[str, Any] | None, summary: Callable[[Any], Row]) -> Row:
    if section is None:
        return OPEN, "not reached", "run gatekeeper selftest again"
    try:
        if section["error"] is not None:
            mark = OPEN if section.get("out_of_time") else FAILS
            return mark, one_line(section["error"]), one_line(section.get("hint", ""))
        mark, text, advice = summary(section["result"])
    except UNREADABLE:
        return OPEN, DAMAGED, ""
    return mark, one_line(text), one_line(advice)


def _versions(versions: Mapping[str, str | None]) -> Row:
    missing = [name for name, version in versions.items() if version is None]
    text = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return (FAILS, f"{text}; not {', '.join(missing)}", "gatekeeper doctor") if missing else (WORKS, text, "")


def _device(device: Mapping[str, Any]) -> Row:
    info = device["info"]
    if not device["metal"]:
        return OPEN, f"MLX computes on {info.get('device_name', 'the processor')}, without Metal", ""
    room = info.get("max_recommended_working_set_size")
    return WORKS, f"Metal on {info.get('device_name')}{f', {show_bytes(room)} for its models' if room else ''}", ""


def _telemetry(readings: Sequence[Mapping[str, Any]]) -> Row:
    silent = [
        # A source of one value by the value's name, which is shorter.
        f"{[*reading['missing'], reading['source']][0 if len(reading['missing']) == 1 else -1]} "
        f"({', '.join(sorted({*reading['missing'].values()})) or 'nothing'})"
        for reading in readings
        if not reading["values"]
    ]
    unread = [reading["source"] for reading in readings if "parse_error" in reading["missing"].values()]
    text = f"{len(readings) - len(silent)} of {len(readings)} sources give values"
    text += f"; not {some(silent, 8)}" if silent else ""
    if unread:
        return FAILS, f"unknown output of {some(unread)}; {text}", REPORT
    return (WORKS, text, "") if len(silent) < len(readings) else (FAILS, text, "gatekeeper doctor")


def _doctor(document: Mapping[str, Any]) -> Row:
    objectives = [item for item in document["items"] if item["kind"] == "host"]
    lacking = [item for item in objectives if item["found"] is None]
    text = f"{len(objectives) - len(lacking)} of {len(objectives)} objectives on the host can be measured"
    if not lacking:
        return (WORKS if objectives else OPEN), text, ""
    names = some([item["needed_for"].removeprefix("objective ") for item in lacking])
    return FAILS, f"{text}; not {names}", lacking[0]["fix"] or ""


def _make_verdict_row(verdict: Mapping[str, Any]) -> Row:
    text = f"{verdict['outcome']}: {verdict['because']}"
    return (OPEN, text, AGAIN) if verdict["exit_code"] == 3 else (WORKS, text, "")


def _sampling(tails: Mapping[str, Any]) -> Row:
    without, sampled = tails["without"], tails["with"]
    text = (
        f"99 % of gaps within {show_seconds(without['p99'])} without sampling, {show_seconds(sampled['p99'])} with it"
    )
    if min(sampled["p99_of_blocks"]) > max(without["p99_of_blocks"]):
        return FAILS, text, REPORT
    return (WORKS, text, "") if sampled["p99"] <= SLOWER * without["p99"] else (OPEN, text, AGAIN)


def _pause(times: Mapping[str, Any]) -> Row:
    following, paused = times["following"], times["after_pause"]
    text = f"first token after {show_seconds(following)}, after a pause {show_seconds(paused)}"
    return (OPEN, text, "keep idle gaps constant when you compare") if paused > COLD * following else (WORKS, text, "")


def _widths(counts: Mapping[str, Any]) -> Row:
    tokens, flips = counts["tokens"], {int(width): count for width, count in counts["flips"].items()}
    shares = ", ".join(f"{percent(count / tokens, '.2g')} {width} at once" for width, count in flips.items())
    text = f"of {tokens} tokens change: {shares}"
    return (FAILS, text, f"one pass is not repeatable: {REPORT}") if flips[1] else (WORKS, text, "")


SUMMARIES: Mapping[str, Callable[[Any], Row]] = {
    "versions": _versions, "device": _device, "telemetry": _telemetry, "doctor": _doctor, "certify": _make_verdict_row,
    "sampling": _sampling, "pause": _pause, "widths": _widths,
}  # fmt: skip
"""What a line says of a part, by the first word of its name."""


def _list_values(sections: Mapping[str, Any]) -> list[Row]:
    """Return a row for each value of each source."""
    try:
        return [row for reading in sections["telemetry"]["result"][:MOST_PARTS] for row in _values(reading)]
    except UNREADABLE:
        return []


def _values(reading: Mapping[str, Any]) -> Iterator[Row]:
    for name, value in {**reading["values"], **reading["missing"]}.items():
        yield reading["source"], name, show_number(value, 6) if isinstance(value, float) else str(value)
    if error := reading.get("error"):
        yield reading["source"], "", error
