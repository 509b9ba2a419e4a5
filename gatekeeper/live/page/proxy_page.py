"""The proxy's page: what each route may do now, what was certified, and what its live requests show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gatekeeper.core.policy import WORKLOAD_HEADER, Policy
from gatekeeper.core.text import counted, describe_setting, listed
from gatekeeper.core.units import percent, show_seconds
from gatekeeper.core.verdict import Estimate, Missing
from gatekeeper.live.live_evidence import LEAST_CONVERSATIONS, STREAM, Benefit, whole_answers_count
from gatekeeper.live.overlay import OverlayRoute
from gatekeeper.live.page import day_chart, live_day
from gatekeeper.live.page.live_day import DRAFTED, HOUR_S, PLAIN, DayPart, LiveDay
from gatekeeper.live.request_routes import RequestRoutes
from gatekeeper.report import phrases
from gatekeeper.report.data.decision import readable_time
from gatekeeper.report.data.workload_summary import rate
from gatekeeper.report.html import charts
from gatekeeper.report.html.charts import Scale
from gatekeeper.report.html.markup import Markup, el, facts, note, section, table
from gatekeeper.report.html.page import document
from gatekeeper.report.html.page_parts import page_head, pill

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
    parts = [_cards(routes.policy, shown_routes, day, now_ns), _unrouted(routes, day, now_ns)] if routes.policy else []
    head = _head(routes, shown_routes, day, now_ns)
    return document("gatekeeper proxy", head, [part for part in parts if part is not None])


def _shown_routes(routes: RequestRoutes, day: LiveDay, now_ns: int) -> list[_ShownRoute]:
    shown_routes = []
    for name, route in routes.routes.items():
        certified = _certified(routes.policy, route) if routes.policy is not None else None
        speculates, benefit = route.speculation and not routes.is_stale, routes.evidence.benefit(name)
        parts, requests = day.of(name, now_ns), _requests(day, name, now_ns)
        whole = routes.policy is not None and whole_answers_count(routes.policy)
        shown_routes.append(_ShownRoute(name, route, speculates, benefit, certified, parts, requests, whole))
    return shown_routes


def _certified(policy: Policy, route: OverlayRoute) -> Estimate | None:
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
        states = [f"on for {listed(on)}"] * bool(on) + [f"off for {listed(off)}"] * bool(off)
        kind, title = "promoted" if on else "graded_back", f"Drafting is {', '.join(states)}"
    total = sum(live_day.requests(day.of(name, now_ns)) for name in day.workloads)
    about = [
        ("In flight", counted(routes.in_flight, "request")),
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
            day_chart.chart(route.name, route.parts, span_s, now_ns),
            class_=f"card {route.kind}",
        )
        for route in shown_routes
    ]
    return section("Routes", el("div", *cards, class_="cards"), _untimed(day, now_ns), about=ABOUT)


def _untimed(day: LiveDay, now_ns: int) -> Markup | None:
    """Say how many answers came without token counts, and what a client sends to get them; None where all had them."""
    parts = [part for name in day.workloads for part in day.of(name, now_ns)]
    uncounted, total = sum(part.uncounted for part in parts), live_day.requests(parts)
    if not uncounted:
        return None
    return el(
        "p",
        f"{uncounted} of {counted(total, 'answer')} came without token counts, so that their tokens per second are not "
        "known. A client that streams gets them with ",
        el("code", 'stream_options = {"include_usage": true}'),
        ".",
        class_="dim",
    )


def _speed(route: _ShownRoute) -> Markup:
    plain, drafted = (live_day.decoding(route.parts, server).tok_s for server in (PLAIN, DRAFTED))
    rates = " → ".join(rate(speed) for speed in (plain, drafted) if speed is not None)
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
            f"{untimed} of {counted(sum(route.benefit.answers.values()), 'answer')} showed no decode speed: a client "
            f"that sends {STREAM} shows it"
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
    total = f"{live_day.requests(day.of(name, now_ns))} in the last {_span(day, now_ns)}"
    if day.seconds(now_ns) < HOUR_S:
        return total
    return f"{live_day.requests(day.workloads[name].within(HOUR_S, now_ns))} in the last hour, {total}"


def _unrouted(routes: RequestRoutes, day: LiveDay, now_ns: int) -> Markup | None:
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
    speed = live_day.decoding(parts, PLAIN).tok_s
    return f"{rate(speed)} tok/s" if speed is not None else "not timed"
