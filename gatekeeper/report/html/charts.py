"""The charts: inline SVG that needs no script, fits any width and takes its colours from the page.

Horizontal positions are in percent of the width, so text keeps its size on a phone; vertical ones are in pixels. Lines
are in an inner drawing that is stretched, while their strokes are not.

Not Vega-Lite: inlined, its runtime adds 0.9 MB to every page and an 84 MB package to every installation, it needs the
right to evaluate strings, and it draws nothing where scripts are forbidden, as in the artifact viewers of CI systems.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gatekeeper.core.judgement import Check
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.units import show
from gatekeeper.report.data.objective_rows import show_measurement
from gatekeeper.report.html.markup import Markup, el, join
from gatekeeper.report.phrases import bound

Points = Sequence[tuple[float, float]]
STRIP = 50
"""Pixels of an interval against its bound: a line of text above and below the bar."""
LABEL = 0.14
"""The share of a phone's plot that the label of a tick takes."""
AT_END = 0.97
"""The share of a plot from which the label of a tick ends at it."""
CLOCK = (5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0)
"""Steps of a time axis, in seconds."""
LOG_FROM = 12.0
"""Values that span more than this factor are drawn on a logarithmic axis."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to shares of a length."""

    lo: float
    hi: float
    log: bool = False

    def share(self, value: float) -> float:
        """Return the position of *value*, from 0 at the low end to 1 at the high end; values outside are clamped."""
        if self.log:
            value = max(value, self.lo)
            share = math.log(value / self.lo) / math.log(self.hi / self.lo)
        else:
            share = (value - self.lo) / (self.hi - self.lo)
        return min(1.0, max(0.0, share))

    def percent(self, value: float) -> str:
        """Return the share as SVG writes it."""
        return f"{100 * self.share(value):.2f}%"

    def ticks(self, most: int = 5, *, seconds: bool = False) -> list[float]:
        """Return round values inside the scale; for *seconds* those of a clock, such as 30, 60 and 300."""
        if seconds and not self.log:
            step = next((step for step in CLOCK if (self.hi - self.lo) / step <= most), 0.0)
            if step:
                first, last = math.ceil(self.lo / step), math.floor(self.hi / step)
                return [number * step for number in range(first, last + 1)]
        return _log_ticks(self.lo, self.hi, most) if self.log else _round_ticks(self.lo, self.hi, most)


def scale(values: Iterable[float], *, pad: float = 0.06, floor: float | None = None, log: bool | None = None) -> Scale:
    """Return a scale that contains *values*, logarithmic where they span a wide range; *floor* is always inside."""
    finite = [value for value in (*values, *([] if floor is None else [floor])) if math.isfinite(value)]
    lo, hi = min(finite, default=0.0), max(finite, default=1.0)
    if log is None:
        log = lo > 0 and hi / lo > LOG_FROM
    if log:
        room = (hi / lo) ** pad if hi > lo else 1.5
        return Scale(max(lo / room, sys.float_info.min), hi * room, log=True)  # a logarithm needs a low end above 0
    room = pad * (hi - lo) or abs(hi) * 0.2 or 1.0
    return Scale(lo if floor is not None and lo == floor else lo - room, hi + room)


def _round_ticks(lo: float, hi: float, most: int) -> list[float]:
    step = 10.0 ** math.floor(math.log10((hi - lo) / most))
    step = next(step * factor for factor in (1, 2, 5, 10) if (hi - lo) / (step * factor) <= most)
    first = math.ceil(lo / step - 1e-9)
    return [number * step for number in range(first, math.floor(hi / step + 1e-9) + 1)]


def _log_ticks(lo: float, hi: float, most: int) -> list[float]:
    for heads in ((1, 2, 5), (1, 3), (1,)):
        ticks = [
            head * 10.0**decade
            for decade in range(math.floor(math.log10(lo)), math.ceil(math.log10(hi)) + 1)
            for head in heads
            if lo <= head * 10.0**decade <= hi
        ]
        if len(ticks) <= most:
            return ticks
    return ticks[:: -(-len(ticks) // most)]


def interval(check: Check) -> Markup:
    """Draw a measured interval against its bound, on a scale with figures; the side that passes is shaded."""
    figures = [value for value in (check.lo, check.center, check.hi) if value is not None]
    metric = BY_NAME.get(check.metric)
    reference = [1.0] if metric is not None and metric.speed_ratio else []
    across = scale([*figures, *reference, check.threshold], pad=0.2, log=False)
    bound_percent = 100 * across.share(check.threshold)
    passing = (bound_percent, 100 - bound_percent) if check.bound == "at_least" else (0.0, bound_percent)
    write = metric.show if metric is not None else lambda value: show(value, check.unit)
    parts = [
        el("rect", class_="track", x="0", y="22", width="100%", height="8", rx="2"),
        el("rect", class_="passing", x=f"{passing[0]:.2f}%", y="22", width=f"{passing[1]:.2f}%", height="8", rx="2"),
        _draw_interval(check, across),
        el("line", class_="bound", x1=f"{bound_percent:.2f}%", x2=f"{bound_percent:.2f}%", y1="16", y2="36"),
        _label(across, check.threshold, f"bound {bound(check)}", 11, "word"),
        *_ticks(across, write, speed_ratio=bool(reference)),
    ]
    required = f"{check.bound.replace('_', ' ')} {show(check.threshold, check.unit)}"
    return _strip(parts, f"{check.outcome.word}: {show_measurement(check)}, objective {required}")


def _ticks(across: Scale, write: Callable[[float], str], *, speed_ratio: bool) -> Iterator[Markup]:
    """Label a scale below its bar; a *speed_ratio* always has 1x, which is plain decoding."""
    ticks = [tick for tick in across.ticks(3) if not speed_ratio or abs(across.share(tick) - across.share(1.0)) > LABEL]
    for tick in [*ticks, *([1.0] if speed_ratio else [])]:
        yield el("line", class_="tick", x1=across.percent(tick), x2=across.percent(tick), y1="31", y2="35")
        yield _label(across, tick, "1x = plain" if speed_ratio and tick == 1.0 else write(tick), 46)


def _label(across: Scale, value: float, text: str, y: int, kind: str | None = None) -> Markup:
    """Write a word at a value of a scale, within the drawing."""
    share = across.share(value)
    anchor = "start" if share < 0.2 else "end" if share > 0.8 else "middle"
    return el("text", text, class_=kind, x=across.percent(value), y=y, text_anchor=anchor)


def _draw_interval(check: Check, across: Scale) -> Markup:
    if check.center is None:
        return Markup("")
    lo = across.percent(check.lo) if check.lo is not None else "0%"
    hi = across.percent(check.hi) if check.hi is not None else "100%"
    kind = check.outcome.word
    bar = el("line", class_=f"span {kind}", x1=lo, x2=hi, y1="26", y2="26")
    return join(bar, el("circle", class_=f"center {kind}", cx=across.percent(check.center), cy="26", r="4.5"))


def speedup(center: float, lo: float, hi: float, across: Scale, kind: str) -> Markup:
    """Draw a ratio to plain decoding on a scale that workloads share; 1x is plain decoding."""
    plain = across.percent(1.0)
    begin, end = sorted((100 * across.share(1.0), 100 * across.share(center)))
    parts = [
        el("line", class_="axis", x1="0", x2="100%", y1="26", y2="26"),
        el("rect", class_=f"gain {kind}", x=f"{begin:.2f}%", y="21", width=f"{end - begin:.2f}%", height="10"),
        el("line", class_=f"whisker {kind}", x1=across.percent(lo), x2=across.percent(hi), y1="26", y2="26"),
        el("line", class_="bound", x1=plain, x2=plain, y1="16", y2="36"),
        *_ticks(across, lambda value: f"{value:g}x", speed_ratio=True),
    ]
    return _strip(parts, f"{center:.3g} times plain decoding, between {lo:.3g} and {hi:.3g}")


def bars(values: Mapping[str, float], label: str) -> Markup:
    """Draw values as bars from 0, one below the other, each under its name."""
    most = max(values.values(), default=0.0) or 1.0
    parts = []
    for number, (name, value) in enumerate(values.items()):
        top = 26 * number
        parts.append(el("text", name, x="0", y=top + 10))
        parts.append(el("rect", class_="passing", x="0", y=top + 14, width=f"{100 * value / most:.2f}%", height="8"))
    return _svg(*parts, height=26 * len(values), class_="strip", role="img", aria_label=label)


def _strip(parts: Sequence[Markup], label: str) -> Markup:
    return _svg(*parts, height=STRIP, class_="strip", role="img", aria_label=label)


@dataclass(frozen=True, slots=True)
class Line:
    """A path through points of a plot."""

    points: Points
    kind: str
    step: bool = False


def plot(
    x: Scale,
    y: Scale,
    *,
    height: int,
    x_show: Callable[[float], str] | None,
    y_show: Callable[[float], str],
    lines: Sequence[Line] = (),
    over: Sequence[Markup] = (),
    y_ticks: Sequence[float] | None = None,
    most: int = 4,
    clock: bool = False,
    label: str = "",
    read: tuple[Points, str] | None = None,
    names: Sequence[str] = (),
) -> Markup:
    """Return a plot: lines, the marks *over* them, labels of y at the side, and of x below unless *x_show* is None.

    *read* holds the points and the unit that hovering shows; where y counts levels, *names* are their names.
    """
    up = [(tick, height * (1 - y.share(tick))) for tick in (y.ticks(most) if y_ticks is None else y_ticks)]
    side = [
        el("text", y_show(tick), x="100%", dx="-6", dy="0.32em", y=f"{row:.1f}", text_anchor="end") for tick, row in up
    ]
    grid = [level(row, "grid") for _, row in up]
    foot: list[Markup] = []
    if x_show is not None:
        for tick in _apart(x, x.ticks(6 if clock else most + 1, seconds=clock)):
            grid.append(rule(x.percent(tick), height, "grid"))
            anchor = "start" if x.share(tick) < 0.03 else "end" if x.share(tick) > AT_END else "middle"
            foot.append(el("text", x_show(tick), x=x.percent(tick), y=height + 15, text_anchor=anchor))
    drawn = (_path(line, x, y, height) for line in lines)
    paths = _svg(*drawn, height=height, viewBox=f"0 0 1000 {height}", preserveAspectRatio="none", aria_hidden="true")
    reading: dict[str, str] = {"data_names": json.dumps(list(names))} if names else {}
    if read is not None:
        points = [[round(100 * x.share(across), 2), value] for across, value in read[0]]
        reading |= {"data_read": json.dumps(points), "data_unit": read[1]}
    full_height = height + (20 if x_show is not None else 2)
    area = _svg(*grid, paths, *over, *foot, height=full_height, class_="area", role="img", aria_label=label, **reading)
    return el("div", _svg(*side, height=full_height, class_="side", aria_hidden="true"), area, class_="plot")


def _svg(*parts: Markup, height: int, **attributes: str) -> Markup:
    return el("svg", *parts, width="100%", height=height, **attributes)


def _apart(across: Scale, ticks: Sequence[float]) -> list[float]:
    """Drop the ticks whose labels would touch on a narrow screen; that at the right end stands before its tick."""
    spaced: list[float] = []
    for tick in ticks:
        room = LABEL if across.share(tick) <= AT_END else 1.5 * LABEL
        if not spaced or across.share(tick) - across.share(spaced[-1]) >= room:
            spaced.append(tick)
    return spaced


def _path(line: Line, x: Scale, y: Scale, height: int) -> Markup:
    placed = [(1000 * x.share(across), height * (1 - y.share(up))) for across, up in line.points]
    if not placed:
        return Markup("")
    words = [f"M{placed[0][0]:.1f} {placed[0][1]:.1f}"]
    words += [f"H{column:.1f}V{row:.1f}" if line.step else f"L{column:.1f} {row:.1f}" for column, row in placed[1:]]
    return el("path", class_=f"line {line.kind}", d="".join(words))


def dot(x: str, y: float, kind: str, *, tip: str, **more: str) -> Markup:
    """Return a dot that shows *tip* on hover."""
    return el("circle", class_=f"dot {kind}", cx=x, cy=f"{y:.1f}", r="2.5", data_tip=tip, **more)


def rule(x: str, height: int, kind: str) -> Markup:
    """Return a vertical line."""
    return el("line", class_=kind, x1=x, x2=x, y1="0", y2=height)


def level(y: float, kind: str = "bound") -> Markup:
    """Return a horizontal line, for example a bound."""
    return el("line", class_=kind, x1="0", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}")
