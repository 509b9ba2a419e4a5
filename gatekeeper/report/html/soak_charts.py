"""The charts of a soak over time: speed, acceptance, the host's values, and the list of its events."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gatekeeper.core.metrics import DECODE_RATIO
from gatekeeper.core.text import describe_setting, join_names
from gatekeeper.core.units import show, show_number, show_ratio, show_seconds
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.data.page_data import PageData
from gatekeeper.report.data.timeline import HostLane, Mark, Timeline, Unsampled
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.markup import Markup, el, join
from gatekeeper.report.shown_document import Chart, Fold, Section

ARMS = {"candidate": "drafting", "plain": "plain"}
LANES = {
    "memory_headroom": "Memory headroom",
    "subject_footprint": "Memory of the system under test",
    "swap_used": "Swap used",
    "memory_pressure_level": "Memory pressure",
    "thermal_level": "Thermal level",
    "fan_speed": "Fan speed",
}
ALWAYS_DRAWN = frozenset({"memory_pressure_level", "swap_used"})
"""Values that are drawn while they are constant, too: that they did not move is what a reader looks for."""
LEVELS = {
    "memory_pressure_level": {1.0: "normal", 2.0: "warning", 4.0: "critical"},
    "thermal_level": {0.0: "nominal", 1.0: "moderate", 2.0: "heavy", 3.0: "trapping", 4.0: "sleeping"},
}
"""The names of the host's levels (kernel pressure levels, OSThermalNotification)."""
LEVEL_HEIGHT = 16
"""Pixels of a level: the names of two adjacent levels do not touch."""

COLOURS = 6
"""Colours of workloads; a seventh one has the first colour again."""
LINE = 12
"""Pixels of a line of text."""
CLOSE = 0.05
"""The share of a phone's plot within which the numbers of two events would touch."""
LATE = 0.95
"""Beyond this share of a plot a number stands to the left of its line."""

Rules = Callable[[int], Sequence[Markup]]
"""The events as vertical lines of a given height."""


def legend() -> Markup:
    """Return the legend: the colour of each arm."""
    keys = [el("span", el("span", class_=f"key {arm}"), f" {name}") for arm, name in ARMS.items()]
    return el("p", *keys, class_="legend")


def soaks_section(page: PageData) -> Section | None:
    """Return the section of all soaks, the last one open; None without a soak."""
    if not page.timelines:
        return None
    names = [workload.name for workload in page.verdict.workloads]
    options = [
        el("option", name, value=value)
        for name, value in (("all", ""), *((name, str(number)) for number, name in enumerate(names)))
    ]
    picker = el("label", "Workload", el("select", *options, id="pick-soak", autocomplete="off"))
    *earlier, last = (partial(_draw_soak, page, timeline, names) for timeline in page.timelines)
    colours = [el("span", el("span", class_=f"key {_colour(number)}"), f" {name}") for number, name in enumerate(names)]
    arms = [el("span", el("span", class_=f"key ring {arm}"), f" {name}") for arm, name in ARMS.items()]
    pickers = el("div", picker, el("p", *colours, *arms, class_="legend"), class_="pickers")
    folded = [Fold(timeline.name, (Chart(parts),)) for timeline, parts in zip(page.timelines, earlier, strict=False)]
    about = "Each dot is one answer. The charts of the host show the worst readings. Hover for values."
    return Section("The soak over time", (Chart(partial(join, pickers)), Chart(last), *folded), about, "soak")


def _colour(number: int) -> str:
    return f"w{number % COLOURS}"


def _draw_soak(page: PageData, timeline: Timeline, names: Sequence[str]) -> Markup:
    across = Scale(0.0, timeline.seconds or 1.0)
    marks = [(across.percent(mark.at), mark.kind) for mark in timeline.marks]

    def events_at(height: int) -> list[Markup]:
        return [charts.rule(position, height, f"rule {kind}") for position, kind in marks]

    def host_rules(height: int) -> list[Markup]:
        shaded = [
            el("rect", class_="gap", x=across.percent(gap.begin), y="0", width=_width(across, gap), height=height)
            for gap in timeline.gaps
        ]
        return [*shaded, *events_at(height)]

    drawings = [_speeds(timeline, across, names, [*events_at(130), *_numbers(timeline, across)])]
    drawings += [_ratios(page, timeline, across, names, events_at(90))]
    drawings += [_acceptance(page, timeline, across, names, events_at(70))]
    lanes = [
        lane
        for lane in timeline.lanes
        if len({value for _, value in lane.points}) > 1 or (lane.points and lane.name in ALWAYS_DRAWN)
    ]
    level = [
        f"{LANES[lane.name].lower()} {_constant(lane)}" for lane in timeline.lanes if lane.points and lane not in lanes
    ]
    drawings += [_lane(page, timeline, lane, across, host_rules, foot=lane is lanes[-1]) for lane in lanes]
    items = [
        el("li", el("strong", str(number)), f" at {show_seconds(mark.at)}, {mark.text}", class_=mark.kind)
        for number, mark in enumerate(timeline.marks, start=1)
    ]
    events = el("ul", *items, class_="events") if items else el("p", "No incidents or transitions.", class_="dim note")
    drawn = f", {len(timeline.dots)} of them drawn" if len(timeline.dots) < timeline.answers else ""
    about = (
        f" from {readable_time(timeline.begun)}, {show_seconds(timeline.seconds)}, {timeline.answers} answers{drawn}"
    )
    unseen: dict[str, list[str]] = {}
    for lane in timeline.lanes:
        if not lane.points:
            unseen.setdefault(lane.missing or "", []).append(LANES[lane.name].lower())
    missing = "; ".join(f"{join_names(names)} ({reason})" for reason, names in unseen.items())
    settings = "; ".join(f"{name}: {describe_setting(knobs)}" for name, knobs in timeline.settings.items())
    because = join_names(list(dict.fromkeys(gap.because for gap in timeline.gaps)))
    return el(
        "div",
        el("h3", timeline.name, el("span", about, class_="dim")),
        el("p", settings, class_="dim note"),
        el("p", f"Grey: {because}; the host is not judged there.", class_="dim note") if timeline.gaps else Markup(""),
        el("div", drawings[0], events, *drawings[1:], class_="lanes", data_seconds=f"{timeline.seconds:g}"),
        el("p", f"Constant: {', '.join(level)}.", class_="dim lane") if level else Markup(""),
        el("p", f"Not measured on this host: {missing}.", class_="dim lane") if missing else Markup(""),
    )


def _numbers(timeline: Timeline, across: Scale) -> Iterator[Markup]:
    """Yield the number of each event beside its line; those of lines that nearly touch are one text."""
    groups: list[list[tuple[int, Mark]]] = []
    for number, mark in enumerate(timeline.marks, start=1):
        if groups and across.share(mark.at) - across.share(groups[-1][0][1].at) < CLOSE:
            groups[-1].append((number, mark))
        else:
            groups.append([(number, mark)])
    for group in groups:
        text, first = ", ".join(str(number) for number, _ in group), group[0][1]
        is_late = across.share(first.at) > LATE
        side = {"dx": "-3", "text_anchor": "end"} if is_late else {"dx": "3"}
        yield el("text", text, class_=f"number {first.kind}", x=across.percent(first.at), y="10", **side)


def _constant(lane: HostLane) -> str:
    value = lane.points[0][1]
    if lane.name not in LEVELS:
        return show(value, lane.unit)
    return LEVELS[lane.name].get(value, f"level {value:g}")


def _width(across: Scale, gap: Unsampled) -> str:
    return f"{100 * (across.share(gap.end) - across.share(gap.begin)):.2f}%"


def _add_title(title: str, drawing: Markup) -> Markup:
    return el("figure", el("figcaption", title), drawing, class_="lane")


def _speeds(timeline: Timeline, across: Scale, names: Sequence[str], rules: Sequence[Markup]) -> Markup:
    height = 130
    up = charts.scale([dot.speed for dot in timeline.dots if dot.speed is not None], floor=0.0, log=False)
    dots = []
    for dot in timeline.dots:
        row = height * (1 - up.share(dot.speed)) if dot.speed is not None else height - 4
        title = f"{dot.workload}/{dot.canary}, {ARMS[dot.arm]}, at {show_seconds(dot.at)}"
        figures = dot.fault or ("no speed" if dot.speed is None else f"{show(dot.speed, 'tok/s')}, {dot.tokens} tokens")
        kind = "fault" if dot.fault else f"{dot.arm} {_colour(names.index(dot.workload))}"
        if dot.fault or dot.speed is not None:
            where = str(names.index(dot.workload))
            dots.append(charts.dot(across.percent(dot.at), row, kind, tip=f"{title}\n{figures}", data_w=where))
    drawing = charts.plot(
        across,
        up,
        height=height,
        x_show=_clock,
        clock=True,
        y_show=show_number,
        over=[*rules, *dots],
        label="Decode speed of every answer",
    )
    return _add_title("Decode speed, tok/s", drawing)


def _ratios(page: PageData, timeline: Timeline, across: Scale, names: Sequence[str], rules: Sequence[Markup]) -> Markup:
    """Draw the ratio to plain decoding of each stretch: its middle as a line, its interval as a band."""
    if not timeline.ratios:
        return Markup("")
    height = 90
    checks = [check for workload in page.verdict.workloads for check in workload.checks]
    bounds = {check.threshold for check in checks if check.metric == DECODE_RATIO and check.bound == "at_least"}
    ends = [end for stretch in timeline.ratios for end in (stretch.lo, stretch.hi)]
    up = charts.scale([1.0, *bounds, *ends], log=False)
    over = [*rules, charts.level(height * (1 - up.share(1.0)), "axis one")]
    over += [charts.level(height * (1 - up.share(value))) for value in bounds]
    for stretch in timeline.ratios:
        number = names.index(stretch.workload)
        top, middle, bottom = (height * (1 - up.share(value)) for value in (stretch.hi, stretch.center, stretch.lo))
        begin, end = across.percent(stretch.begin), across.percent(stretch.end)
        when = f"{show_seconds(stretch.begin)} to {show_seconds(stretch.end)}"
        tip = f"{stretch.workload}, {when}\n{show_ratio(stretch.center, stretch.lo, stretch.hi)}"
        marks = {"class_": f"window {_colour(number)}", "data_tip": tip, "data_w": str(number)}
        width = f"{100 * (across.share(stretch.end) - across.share(stretch.begin)):.2f}%"
        band = {"x": begin, "width": width, "y": f"{top:.1f}", "height": f"{bottom - top:.1f}"}
        over.append(el("rect", **marks, **band))
        over.append(el("line", **marks, x1=begin, x2=end, y1=f"{middle:.1f}", y2=f"{middle:.1f}"))
    drawing = charts.plot(
        across,
        up,
        height=height,
        x_show=None,
        y_show=lambda value: f"{value:g}x",
        most=3,
        over=over,
        label="Speed over plain decoding in the course of the soak",
    )
    return _add_title("Speed over plain decoding, with its interval", drawing)


def _acceptance(
    page: PageData, timeline: Timeline, across: Scale, names: Sequence[str], rules: Sequence[Markup]
) -> Markup:
    if not timeline.windows:
        return Markup("")
    height, up = 70, Scale(0.0, 1.0)
    bounds = {
        check.threshold
        for workload in page.verdict.workloads
        for check in workload.checks
        if check.metric == "acceptance_window_min" and check.bound == "at_least"
    }
    over = [*rules, *(charts.level(height * (1 - up.share(value))) for value in bounds)]
    placed: list[float] = []
    for name, last in {window.workload: window for window in timeline.windows}.items():
        number = names.index(name)
        for window in (window for window in timeline.windows if window.workload == name):
            row = f"{height * (1 - up.share(window.rate)):.1f}"
            when = f"{show_seconds(window.begin)} to {show_seconds(window.end)}"
            tip = f"{name}, {when}\nacceptance {window.rate:.3f}"
            ends = {"x1": across.percent(window.begin), "x2": across.percent(window.end), "y1": row, "y2": row}
            over.append(el("line", class_=f"window {_colour(number)}", data_tip=tip, data_w=str(number), **ends))
        y = height * (1 - up.share(last.rate)) + (12 if last.rate > 0.5 else -4)
        y += LINE * sum(abs(y - placed_y) < LINE for placed_y in placed)
        placed.append(y)
        x = across.percent(last.end)
        over.append(el("text", name, class_=f"name {_colour(number)}", x=x, y=f"{y:.1f}", text_anchor="end"))
    drawing = charts.plot(
        across,
        up,
        height=height,
        x_show=None,
        y_show=lambda value: f"{value:.1f}",
        y_ticks=(0.0, 0.5, 1.0),
        over=over,
        label="Acceptance by window",
    )
    return _add_title(f"Acceptance, windows of {show_seconds(page.slo.soak.window_s)}", drawing)


def _split_at_gaps(points: Sequence[tuple[float, float]], gaps: Sequence[Unsampled]) -> list[list[tuple[float, float]]]:
    """Split points where the host was not sampled."""
    parts: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if parts[-1] and any(parts[-1][-1][0] <= gap.begin and gap.end <= point[0] for gap in gaps):
            parts.append([])
        parts[-1].append(point)
    return parts


def _lane(page: PageData, timeline: Timeline, lane: HostLane, across: Scale, rules: Rules, *, foot: bool) -> Markup:
    """Draw a value of the host; the axis of a level has its names, up to the worst one that was measured."""
    points: Sequence[tuple[float, float]] = lane.points
    names: list[str] = []
    height, bounds = 48, [check.threshold for check in page.verdict.host_checks if check.metric == lane.name]
    up = charts.scale([*(value for _, value in points), *bounds], floor=0.0, pad=0.12, log=False)
    ticks = None
    if not any(value for _, value in points):
        up, ticks = Scale(-1.0, 1.0), [0.0]  # in the middle, where the line is seen
    if lane.name in LEVELS:
        levels = sorted(LEVELS[lane.name])
        names = [LEVELS[lane.name][level] for level in levels]
        points = [(at, float(max(0, bisect_right(levels, value) - 1))) for at, value in points]
        ticks, bounds = sorted({0.0, *(rank for _, rank in points)}), []
        height = LEVEL_HEIGHT * (1 + max(1, round(ticks[-1])))
        up = Scale(-0.5, max(1.0, ticks[-1]) + 0.5)
    drawing = charts.plot(
        across,
        up,
        height=height,
        x_show=_clock if foot else None,
        clock=True,
        y_show=lambda value: names[round(value)] if names else show(value, lane.unit),
        y_ticks=ticks,
        lines=[Line(part, lane.name, step=bool(names)) for part in _split_at_gaps(points, timeline.gaps)],
        over=[*rules(height), *(charts.level(height * (1 - up.share(value))) for value in bounds)],
        most=2,
        label=LANES[lane.name],
        read=(points, lane.unit),
        names=names,
    )
    return _add_title(LANES[lane.name] + (f" ({lane.missing})" if lane.missing else ""), drawing)


def _clock(seconds: float) -> str:
    """Write a time on the axis of a soak: 45 s, 10 min, 2.5 h."""
    for name, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size or (seconds and seconds % size == 0):
            return f"{seconds / size:g} {name}"
    return f"{seconds:g} s"
