"""The proxy's page: what each route may do now, what was certified, and what its live requests of the last day show."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.policy import WORKLOAD_HEADER, Policy
from gatekeeper.core.text import describe_setting, join_names, show_count
from gatekeeper.core.units import percent, show, show_number, show_seconds
from gatekeeper.live.live_evidence import LEAST_CONVERSATIONS, STREAM, Benefit, whole_answers_count
from gatekeeper.live.live_records import EndedRequest
from gatekeeper.live.overlay import OverlayRoute
from gatekeeper.live.request_routes import RequestRoutes
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Line, Scale
from gatekeeper.report.html.document_page import page_head, pill, write_page
from gatekeeper.report.html.markup import Markup, el, facts, note, section, table

PART_S = 900.0
"""Seconds that one point of a chart stands for."""
PARTS = 96
"""A day of them."""
HOUR_S = 3600.0
DRAFTED, PLAIN = "speculative", "plain"
"""The servers that answer, as records name them."""
SPEEDS, COUNTS = 84, 36
"""Pixels of the two drawings."""
LINES = {DRAFTED: "candidate", PLAIN: "plain"}
WORDS = {DRAFTED: "drafted", PLAIN: "plain"}
REFRESH_S = 5
"""A browser loads the page again after as many seconds."""
ABOUT = (
    "A live ratio compares the conversations that speculate with a random holdout of them that is decoded plainly, for "
    "equally long prompts and equally many answers in flight; its interval holds at every moment. Tokens per second "
    "are of all answers that were timed."
)
UNROUTED = (
    "No route of the policy is theirs, so they are decoded plainly. A rule or the default of [proxy] in the policy "
    f"sorts requests into workloads, and so does the header {WORKLOAD_HEADER}."
)


@dataclass(slots=True)
class DecodedTokens:
    """The answers of one server in a stretch of time, as far as their tokens and their decoding were timed."""

    tokens: int = 0
    seconds: float = 0.0

    @property
    def tok_s(self) -> float | None:
        """Return the tokens per second of decoding, over all tokens; None without a timed answer."""
        return self.tokens / self.seconds if self.seconds else None


@dataclass(slots=True)
class DayPart:
    """What ended in one stretch of time."""

    begun_ns: int
    requests: int = 0
    uncounted: int = 0
    """Whole answers that came without token counts."""
    decoding: dict[str, DecodedTokens] = field(
        default_factory=lambda: {DRAFTED: DecodedTokens(), PLAIN: DecodedTokens()}
    )


class WorkloadDay:
    """The last day of one workload, oldest part first."""

    def __init__(self) -> None:
        self.parts: deque[DayPart] = deque(maxlen=PARTS)
        self.rules = Counter[str]()
        """Requests since the start by what sorted them into it: a rule, the header, or the default."""

    def add(self, ended: EndedRequest, now_ns: int) -> None:
        """Count a request that has ended."""
        if not self.parts or now_ns - self.parts[-1].begun_ns >= PART_S * 1e9:
            self.parts.append(DayPart(now_ns))
        part = self.parts[-1]
        part.requests += 1
        self.rules[ended.decision.rule] += 1
        decode_s = ended.meter.decode_s
        if ended.tokens is None and ended.fault is None:
            part.uncounted += 1
        elif ended.tokens and decode_s and ended.target in part.decoding:
            decoding = part.decoding[ended.target]
            decoding.tokens, decoding.seconds = decoding.tokens + ended.tokens - 1, decoding.seconds + decode_s

    def within(self, seconds: float, now_ns: int) -> list[DayPart]:
        """Return the parts that began in the last *seconds*."""
        return [part for part in self.parts if now_ns - part.begun_ns < seconds * 1e9]


class LiveDay:
    """The last day of all workloads, those without a route included; it is filled and read in one event loop."""

    def __init__(self, now_ns: int) -> None:
        """Begin at *now_ns*, monotonic nanoseconds."""
        self.begun_ns = now_ns
        self.workloads: dict[str, WorkloadDay] = {}

    def add(self, ended: EndedRequest, now_ns: int) -> None:
        """Count a request that has ended."""
        self.workloads.setdefault(ended.decision.workload, WorkloadDay()).add(ended, now_ns)

    def seconds(self, now_ns: int) -> float:
        """Return for how long requests were counted, up to a day."""
        return min((now_ns - self.begun_ns) / 1e9, PARTS * PART_S)

    def of(self, workload: str, now_ns: int) -> list[DayPart]:
        """Return the parts of the last day of a workload; none where it had no request."""
        day = self.workloads.get(workload)
        return day.within(PARTS * PART_S, now_ns) if day is not None else []


def count_requests(parts: Iterable[DayPart]) -> int:
    """Count the requests of some parts."""
    return sum(part.requests for part in parts)


def sum_decoding(parts: Iterable[DayPart], server: str) -> DecodedTokens:
    """Add up what one server decoded in some parts."""
    decoded = [part.decoding[server] for part in parts]
    return DecodedTokens(sum(part.tokens for part in decoded), sum(part.seconds for part in decoded))


Placed = Sequence[tuple[float, float, DayPart]]
"""Parts of the day with their beginning and their end, in seconds from now."""


def _draw_day(name: str, parts: Sequence[DayPart], span_s: float, now_ns: int) -> Markup | None:
    """Draw the last *span_s* seconds of a route, which end at *now_ns*; None where it had no request."""
    if not parts:
        return None
    across = Scale(-span_s, 0.0)
    begun = [(part.begun_ns - now_ns) / 1e9 for part in parts]
    placed = [(begin, min(0.0, begin + PART_S), part) for begin, part in zip(begun, parts, strict=True)]
    timed = [server for server in LINES if sum_decoding(parts, server).tok_s is not None]
    keys = [*((LINES[server], f"{WORDS[server]} tok/s") for server in timed)]
    keys.append(("bar", f"requests in {show_seconds(PART_S)}"))
    legend = [el("span", el("i", class_=f"key {kind}"), f" {word}") for kind, word in keys]
    drawings = [*([_draw_speeds(name, placed, across)] if timed else []), _draw_requests(name, placed, across)]
    return el("figure", el("figcaption", *legend, class_="legend"), *drawings, class_="lane")


def _draw_speeds(name: str, placed: Placed, across: Scale) -> Markup:
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
        charts.dot(across.percent(at), SPEEDS * (1 - up.share(speed)), LINES[server], tip=show(speed, "tok/s"))
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


def _draw_requests(name: str, placed: Placed, across: Scale) -> Markup:
    up = charts.scale([part.requests for *_, part in placed], floor=0.0, log=False)
    bars = [
        el(
            "rect",
            class_="bar",
            x=across.percent(begin),
            y=f"{COUNTS * (1 - up.share(part.requests)):.1f}",
            width=f"{max(0.3, 90 * (across.share(end) - across.share(begin))):.2f}%",
            height=f"{COUNTS * up.share(part.requests):.1f}",
            data_tip=f"{show_count(part.requests, 'request')} in {show_seconds(PART_S)}",
        )
        for begin, end, part in placed
    ]
    total = count_requests(part for *_, part in placed)
    return charts.plot(
        across,
        up,
        height=COUNTS,
        x_show=_ago,
        y_show=lambda value: f"{value:g}",
        over=bars,
        y_ticks=(0.0, max(part.requests for *_, part in placed)),
        clock=True,
        label=f"{name}: {show_count(total, 'request')} over the last {show_seconds(-across.lo)}",
    )


def _ago(at: float) -> str:
    """Write a moment before now on the axis: -2 h, -45 min."""
    if not at:
        return "now"
    return f"-{-at / HOUR_S:g} h" if at % HOUR_S == 0 else f"-{-at / 60:g} min"


@dataclass(frozen=True, slots=True)
class _ShownRoute:
    """One route, with all that its card shows."""

    name: str
    route: OverlayRoute
    speculates: bool
    benefit: Benefit | None
    certified: Estimate | None
    """The certified ratio; None where a lower step of the ladder is in force, which was not soaked."""
    parts: Sequence[DayPart]
    requests: str
    whole_counts: bool
    """The time of whole answers is evidence."""

    @property
    def kind(self) -> str:
        """Return the sign and the colour of its card."""
        return "promoted" if self.speculates else "plain"

    @property
    def live(self) -> Estimate | Missing | None:
        """Return the live ratio where it speculates; None before its first answer."""
        return self.benefit.speed if self.benefit is not None and self.speculates else None


def render(routes: RequestRoutes, day: LiveDay, now_ns: int) -> str:
    """Return the page as it is at *now_ns*."""
    shown_routes = _shown_routes(routes, day, now_ns)
    parts = (
        [_cards(routes.policy, shown_routes, day, now_ns), _list_unrouted(routes, day, now_ns)] if routes.policy else []
    )
    head = _head(routes, shown_routes, day, now_ns)
    return write_page("gatekeeper proxy", head, [part for part in parts if part is not None])


def _shown_routes(routes: RequestRoutes, day: LiveDay, now_ns: int) -> list[_ShownRoute]:
    shown_routes = []
    for name, route in routes.routes.items():
        certified = _find_certified_ratio(routes.policy, route) if routes.policy is not None else None
        speculates, benefit = route.speculation and not routes.is_stale, routes.evidence.benefit(name)
        parts, requests = day.of(name, now_ns), _requests(day, name, now_ns)
        whole = routes.policy is not None and whole_answers_count(routes.policy)
        shown_routes.append(_ShownRoute(name, route, speculates, benefit, certified, parts, requests, whole))
    return shown_routes


def _find_certified_ratio(policy: Policy, route: OverlayRoute) -> Estimate | None:
    certified = policy.route_of(route.workload)
    in_force = {knob: value for knob, value in route.setting if value is not None}
    ratio = certified.measured.throughput_ratio
    if ratio is None or (route.speculation and in_force != dict(certified.steps[0])):
        return None
    return Estimate(ratio.center, ratio.lo, ratio.hi, ratio.n)


def _head(routes: RequestRoutes, shown_routes: Sequence[_ShownRoute], day: LiveDay, now_ns: int) -> Markup:
    policy = routes.policy
    if policy is None:
        kind, title = "unproven", "The watch has not finished its first round: every request decodes plainly"
    elif routes.is_stale:
        kind, title = "unproven", "The next round of the watch is overdue: every request decodes plainly"
    else:
        on = [route.name for route in shown_routes if route.speculates]
        off = [route.name for route in shown_routes if not route.speculates]
        states = [f"on for {join_names(on)}"] * bool(on) + [f"off for {join_names(off)}"] * bool(off)
        kind, title = "promoted" if on else "graded_back", f"Drafting is {', '.join(states)}"
    total = sum(count_requests(day.of(name, now_ns)) for name in day.workloads)
    about = [
        ("In flight", show_count(routes.in_flight, "request")),
        ("Requests", f"{total} in the last {_span(day, now_ns)}"),
    ]
    if policy is not None:
        about.append(("Holdout", f"{percent(policy.proxy.holdout)} of conversations"))
        about.append(("Policy expires", readable_time(policy.expires.isoformat())))
    return page_head(f"proxy · {policy.slo}" if policy else "proxy", title, facts(about, "facts"), kind=kind)


def _span(day: LiveDay, now_ns: int) -> str:
    return show_seconds(round(day.seconds(now_ns)))


def _cards(policy: Policy, shown_routes: Sequence[_ShownRoute], day: LiveDay, now_ns: int) -> Markup:
    ratios = [ratio for route in shown_routes for ratio in (route.live, route.certified) if isinstance(ratio, Estimate)]
    across = charts.scale([1.1, *(end for ratio in ratios for end in (ratio.lo, ratio.hi))], floor=0.0, log=False)
    conversations = round(LEAST_CONVERSATIONS / policy.proxy.holdout)
    span_s = max(HOUR_S, day.seconds(now_ns))
    cards = [
        el(
            "article",
            el("h3", route.name, pill(route.kind, f"drafting {'on' if route.speculates else 'off'}")),
            _speed(route),
            *_ratios(route, across, conversations),
            facts(_facts(route), "figures"),
            _draw_day(route.name, route.parts, span_s, now_ns),
            class_=f"card {route.kind}",
        )
        for route in shown_routes
    ]
    return section("Routes", el("div", *cards, class_="cards"), _describe_untimed(day, now_ns), about=ABOUT)


def _describe_untimed(day: LiveDay, now_ns: int) -> Markup | None:
    """Say how many answers came without token counts, and what a client sends to get them; None where all had them."""
    parts = [part for name in day.workloads for part in day.of(name, now_ns)]
    uncounted, total = sum(part.uncounted for part in parts), count_requests(parts)
    if not uncounted:
        return None
    return el(
        "p",
        f"{uncounted} of {show_count(total, 'answer')} came without token counts, so that their tokens per second are "
        "not known. A client that streams gets them with ",
        el("code", 'stream_options = {"include_usage": true}'),
        ".",
        class_="dim",
    )


def _speed(route: _ShownRoute) -> Markup:
    plain, drafted = (sum_decoding(route.parts, server).tok_s for server in (PLAIN, DRAFTED))
    rates = " → ".join(show_number(speed) for speed in (plain, drafted) if speed is not None)
    words = f" {'plain ' if drafted is None else ''}{rates} tok/s" if rates else ""
    if isinstance(route.live, Missing):
        words = f" no proof yet{',' if words else ''}{words}"
    live = f"{route.live.center:.2f}x" if isinstance(route.live, Estimate) else "…"
    return el("p", el("strong", live if route.speculates else "off", class_="big"), words or None, class_="speed")


def _ratios(route: _ShownRoute, across: Scale, conversations: int) -> Iterator[Markup]:
    """Yield the certified ratio and the live one, each with its interval, on one scale."""
    for word, ratio, kind in (("certified", route.certified, "tried"), ("live", route.live, route.kind)):
        if isinstance(ratio, Estimate):
            yield charts.speedup(ratio.center, ratio.lo, ratio.hi, across, kind)
            yield note(f"{word} {phrases.ratio(ratio)}")
        elif ratio is not None:
            yield note(f"live: {ratio.because}; expected after about {conversations} conversations")
    if route.live is None or route.benefit is None:
        return
    whole, untimed = route.benefit.whole, route.benefit.untimed
    if isinstance(whole, Estimate) and isinstance(route.live, Missing):
        worth = "" if route.whole_counts else "; no proof, as a prompt cache may be warm in one arm alone"
        yield note(f"live, whole answers: {phrases.ratio(whole)}{worth}")
    if untimed:
        yield note(
            f"{untimed} of {show_count(sum(route.benefit.answers.values()), 'answer')} showed no decode speed: a "
            f"client that sends {STREAM} shows it"
        )


def _facts(route: _ShownRoute) -> Iterator[tuple[str, str]]:
    if route.speculates:
        setting = {knob: value for knob, value in route.route.setting if value is not None}
        yield "Setting", describe_setting(setting)
    else:
        yield "Off because", "the watch is overdue" if route.route.speculation else route.route.because
    yield "Requests", route.requests
    benefit = route.benefit
    if benefit is None or not any(benefit.answers.values()):
        return
    if isinstance(benefit.ttft, Estimate):
        yield "First token", f"{phrases.ratio(benefit.ttft)} of plain decoding's time"
    failed = (f"{arm} {100 * lo:.1f} to {percent(hi, '.1f')}" for arm, (lo, hi) in benefit.error_share.items())
    yield "Failed requests", ", ".join(failed)
    drawn = " and ".join(f"{count} {arm}" for arm, count in benefit.conversations.items())
    yield "Evidence", f"{drawn} conversations{f'; {benefit.loads}' if benefit.loads else ''}"


def _requests(day: LiveDay, name: str, now_ns: int) -> str:
    if name not in day.workloads:
        return "none yet"
    total = f"{count_requests(day.of(name, now_ns))} in the last {_span(day, now_ns)}"
    if day.seconds(now_ns) < HOUR_S:
        return total
    return f"{count_requests(day.workloads[name].within(HOUR_S, now_ns))} in the last hour, {total}"


def _list_unrouted(routes: RequestRoutes, day: LiveDay, now_ns: int) -> Markup | None:
    """Return the requests that have no route; None where every one has one."""
    names = [name for name in day.workloads if name not in routes.routes]
    if not names:
        return None
    rows = [
        (
            el("strong", name),
            ", ".join(f"{rule} ({count})" for rule, count in day.workloads[name].rules.most_common()),
            _requests(day, name, now_ns),
            _plain_speed(day.of(name, now_ns)),
        )
        for name in names
    ]
    heads = ("Workload", "Sorted by", "Requests", "Decode speed")
    return section("Requests without a route", table(heads, rows, "plainly"), about=UNROUTED, name="unrouted")


def _plain_speed(parts: Sequence[DayPart]) -> str:
    speed = sum_decoding(parts, PLAIN).tok_s
    return show(speed, "tok/s") if speed is not None else "not timed"
