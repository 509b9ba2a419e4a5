"""The chart of a route over the day: tokens per second, drafted and plain, and its requests below."""

from collections.abc import Sequence

from gatekeeper.core.text import counted
from gatekeeper.core.units import show_seconds
from gatekeeper.live.page.live_day import DRAFTED, HOUR_S, PART_S, PLAIN, DayPart, decoding, requests
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, el

SPEEDS, COUNTS = 84, 36
"""Pixels of the two drawings."""
Placed = Sequence[tuple[float, float, DayPart]]
"""Parts of the day with their beginning and their end, in seconds from now."""
LINES = {DRAFTED: "candidate", PLAIN: "plain"}
WORDS = {DRAFTED: "drafted", PLAIN: "plain"}


def chart(name: str, parts: Sequence[DayPart], span_s: float, now_ns: int) -> Markup | None:
    """Draw the last *span_s* seconds of a route, which end at *now_ns*; None where it had no request."""
    if not parts:
        return None
    across = Scale(-span_s, 0.0)
    begun = [(part.begun_ns - now_ns) / 1e9 for part in parts]
    placed = [(begin, min(0.0, begin + PART_S), part) for begin, part in zip(begun, parts, strict=True)]
    timed = [server for server in LINES if decoding(parts, server).tok_s is not None]
    keys = [*((LINES[server], f"{WORDS[server]} tok/s") for server in timed)]
    keys.append(("bar", f"requests in {show_seconds(PART_S)}"))
    legend = [el("span", el("i", class_=f"key {kind}"), f" {word}") for kind, word in keys]
    drawings = [*([_speeds(name, placed, across)] if timed else []), _requests(name, placed, across)]
    return el("figure", el("figcaption", *legend, class_="legend"), *drawings, class_="lane")


def _speeds(name: str, placed: Placed, across: Scale) -> Markup:
    speeds = {
        server: [
            ((begin + end) / 2, speed)
            for begin, end, part in placed
            if (speed := part.decoding[server].tok_s) is not None
        ]
        for server in LINES
    }
    up = charts.scale([speed for points in speeds.values() for _, speed in points], floor=0.0, log=False)
    dots = [
        charts.dot(across.percent(at), SPEEDS * (1 - up.share(speed)), LINES[server], tip=f"{speed:.1f} tok/s")
        for server, points in speeds.items()
        for at, speed in points
    ]
    return charts.plot(
        across,
        up,
        height=SPEEDS,
        x_show=None,
        y_show=lambda value: f"{value:g}",
        lines=[Line(points, LINES[server]) for server, points in speeds.items()],
        over=dots,
        most=3,
        label=f"{name}: tokens per second over the last {show_seconds(-across.lo)}, drafted and plain",
    )


def _requests(name: str, placed: Placed, across: Scale) -> Markup:
    up = charts.scale([part.requests for *_, part in placed], floor=0.0, log=False)
    bars = [
        el(
            "rect",
            class_="bar",
            x=across.percent(begin),
            y=f"{COUNTS * (1 - up.share(part.requests)):.1f}",
            width=f"{max(0.3, 90 * (across.share(end) - across.share(begin))):.2f}%",
            height=f"{COUNTS * up.share(part.requests):.1f}",
            data_tip=f"{counted(part.requests, 'request')} in {show_seconds(PART_S)}",
        )
        for begin, end, part in placed
    ]
    total = requests(part for *_, part in placed)
    return charts.plot(
        across,
        up,
        height=COUNTS,
        x_show=_ago,
        y_show=lambda value: f"{value:g}",
        over=bars,
        y_ticks=(0.0, max(part.requests for *_, part in placed)),
        clock=True,
        label=f"{name}: {counted(total, 'request')} over the last {show_seconds(-across.lo)}",
    )


def _ago(at: float) -> str:
    """Write a moment before now on the axis: -2 h, -45 min."""
    if not at:
        return "now"
    return f"-{-at / HOUR_S:g} h" if at % HOUR_S == 0 else f"-{-at / 60:g} min"
