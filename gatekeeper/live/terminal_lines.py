"""Lines of a watch on the terminal: when it starts, after each round, for each change."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gatekeeper.core.judgement import Outcome
from gatekeeper.core.policy import Route
from gatekeeper.core.text import describe_setting, show_count
from gatekeeper.core.units import percent, show, show_seconds
from gatekeeper.live.guards.guard_judgement import GuardResult
from gatekeeper.live.routes import RouteChange, RouteRules, Standing

Style = Mapping[str, Any]
"""Terminal style of a line; without a terminal it is plain text."""

WARNING: Style = {"fg": "yellow"}
BAD: Style = {"fg": "red", "bold": True}
GOOD: Style = {"fg": "green"}
QUIET: Style = {}
SOON_S = 600.0
"""Two windows of five minutes."""
MOST_DUTY = 0.5
"""The highest duty that a policy may have."""


def describe_standing(standing: Standing, rules: RouteRules) -> str:
    """Describe the state of a route."""
    if standing.barred:
        return f"off until certified again: {standing.barred}"
    if len(rules.ladder) == 1:
        return "plain decoding, as the policy says"
    if standing.step == 0:
        return "on trial as certified" if standing.trying else "as certified"
    setting = "plain decoding" if standing.step == rules.plain else _setting_words(standing, rules)
    return f"{'on trial with' if standing.trying else 'down to'} {setting}"


def _setting_words(standing: Standing, rules: RouteRules) -> str:
    return describe_setting(dict(rules.ladder[standing.step]), whole=True)


def describe_start(url: str, slo: str, standings: Mapping[str, Standing], rules: Mapping[str, RouteRules]) -> str:
    """Describe what is watched, and why a route is not as certified."""
    parts = []
    for name, standing in standings.items():
        lowered = standing.step > 0 and not standing.barred and standing.because
        since = f" since {standing.at}: {standing.because}" if lowered else ""
        parts.append(f"{name}: {describe_standing(standing, rules[name])}{since}")
    return f"watching {slo} at {url}: {'; '.join(parts)}"


def warm_ups(routes: Iterable[Route]) -> str | None:
    """Describe which routes need a warm-up before requests; None without any."""
    needed = {route.workload: route.warm_up_after for route in routes if route.warm_up}
    if not needed:
        return None
    pause = min((after for after in needed.values() if after is not None), default=0.0)
    return (
        f"{', '.join(needed)}: the first token keeps its bound with a warm-up only: send a short request before a "
        f"user's request after a pause of {show_seconds(pause)} or longer; canaries warm the server after a start"
    )


def canary_cost(duty: float, interval: float) -> str:
    """Describe the share of the server's time that the watch may use."""
    hour = show_seconds(duty * 3600)
    most = f"canary prompts use at most {100 * duty:g} % of the server's time ({hour} per hour)"
    return f"{most}; one round every {show_seconds(interval)}"


def time_to_half(seconds: Mapping[str, float], duty: float) -> str | None:
    """Describe how soon canaries show that acceptance fell to half, by the *seconds* of canaries each route needs."""
    if not seconds:
        return None
    all_routes = max(seconds.values()) * len(seconds)  # each has an equal part of the duty
    enough = all_routes / SOON_S
    sooner = f"within {show_seconds(SOON_S)} with --duty {math.ceil(100 * enough) / 100:g}"
    if enough > MOST_DUTY:
        sooner = f"no sooner than after {show_seconds(all_routes / MOST_DUTY)} at the highest duty, {MOST_DUTY:g}"
    if enough <= duty:
        sooner = "soon enough"
    first = show_seconds(max(SOON_S / 2, all_routes / duty))
    return (
        f"first evidence of canaries that acceptance fell to half: after about {first} ({', '.join(seconds)}); "
        f"{sooner}; a server that counts its draft tokens shows it within minutes of traffic"
    )


def round_result(
    at: str,
    routes: Sequence[tuple[Standing, RouteRules, Sequence[GuardResult]]],
    cost: Mapping[str, Any],
    answered: Collection[str],
) -> str:
    """Describe the state of every route in one short line: each violated guard, and how many are open.

    *answered* are the routes with an answer. Which guards are open is in the log and in the metrics.
    """
    parts = []
    for standing, rules, results in routes:
        state = describe_standing(standing, rules)
        if standing.step < rules.plain and standing.workload not in answered:
            state = f"no answer yet; set to {_setting_words(standing, rules)}"
        parts.append(", ".join((f"{standing.workload}: {state}", *_not_kept(results))))
    share, bound = cost["share"], cost["bound"]
    over = ": the first round is sent in advance" if share > bound else ""
    return f"{at[11:19]}Z {'; '.join(parts)}; cost {percent(share, '.2g')} of {percent(bound)}{over}"


def _not_kept(results: Sequence[GuardResult]) -> Iterator[str]:
    """Yield each guard that is violated, then how many are undecided or have no evidence."""
    awake = [result for result in results if not result.asleep]
    yield from (_describe_violation(result) for result in awake if result.outcome is Outcome.FAIL)
    waiting = [result for result in awake if result.outcome is Outcome.UNPROVEN]
    unseen = sum(result.fresh_ns is None for result in waiting)
    for count, word in ((len(waiting) - unseen, "undecided"), (unseen, "without evidence yet")):
        if count:
            yield f"{show_count(count, 'guard')} {word}"


def _describe_violation(result: GuardResult) -> str:
    check = result.check
    value = "" if check.center is None else f" {show(check.center, check.unit)}"
    bound = f"{check.bound.replace('_', ' ')} {show(check.threshold, check.unit)}"
    return f"{check.metric}{value} violates {bound}"


def route_changed(change: RouteChange) -> tuple[str, Style]:
    """Describe a change and its reason, and return the line's style."""
    step = {
        "down": "down to",
        "off": "off:",
        "try": "trying again",
        "settled": "confirmed",
        "barred": "off until certified again:",
    }
    setting = describe_setting(dict(sorted(change.setting.items())), whole=True)
    style = GOOD if change.kind in {"try", "settled"} else BAD
    return f"{change.at[11:19]}Z {change.workload}: {step[change.kind]} {setting}: {change.because}", style
