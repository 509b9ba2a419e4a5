"""The proxy's page: what each route may do now, and what its live requests prove."""

from gatekeeper.core.text import describe_setting
from gatekeeper.core.verdict import Estimate, Missing
from gatekeeper.proxy.live_evidence import Benefit
from gatekeeper.proxy.request_routes import RequestRoutes
from gatekeeper.report.html.markup import Markup, el, join, note, section, table
from gatekeeper.report.html.page import document, page_head

HEADS = ("Workload", "Now", "Because", "Conversations", "Loads", "Decode speed", "First token", "Failed answers")
REFRESH_S = 5
"""A browser loads the page again after as many seconds."""


def render(routes: RequestRoutes) -> str:
    """Return the page as it is now."""
    policy = routes.policy
    about = (
        f"{routes.in_flight} requests in flight. Each ratio compares the conversations that speculate with a random "
        "holdout of them that is decoded plainly, for equally long prompts and equally many answers in flight; its "
        "interval holds at every moment."
    )
    if policy is None:
        about = "The watch has not finished its first round: every request decodes plainly."
    elif routes.is_stale:
        about = "The next round of the watch is overdue: every request decodes plainly."
    head = page_head("proxy", policy.slo if policy is not None else "waiting", el("p", about, class_="dim"))
    rows = [_row(routes, name) for name in routes.routes]
    return document("gatekeeper proxy", head, [section("Routes", table(HEADS, rows, "plainly"))] if rows else [])


def _row(routes: RequestRoutes, name: str) -> tuple[str | Markup, ...]:
    route, benefit = routes.routes[name], routes.evidence.benefit(name)
    speculates = route.speculation and not routes.is_stale
    now = join("speculative", note(describe_setting(dict(route.setting)))) if speculates else "plain decoding"
    if benefit is None:
        return (name, now, route.because, "0", "", *["no answers yet"] * 3)
    counts = " and ".join(f"{count} {arm}" for arm, count in benefit.conversations.items())
    answers = note(" and ".join(f"{count} {arm}" for arm, count in benefit.answers.items()) + " answers")
    ratios = ratio(benefit.speed), ratio(benefit.ttft)
    return (name, now, route.because, join(counts, answers), benefit.loads, *ratios, _errors(benefit))


def ratio(estimate: Estimate | Missing) -> str:
    """Return a ratio in words; without an interval, why there is none."""
    if isinstance(estimate, Missing):
        return f"unproven: {estimate.because}"
    return f"{estimate.center:.2f}x ({estimate.lo:.2f}x to {estimate.hi:.2f}x)"


def _errors(benefit: Benefit) -> str:
    return ", ".join(f"{arm} {lo:.1%} to {hi:.1%}" for arm, (lo, hi) in benefit.error_share.items())
