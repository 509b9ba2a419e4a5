"""The wording that the page and the summary share: signs, the sentence under the verdict, the speed of a route."""

from gatekeeper.core.text import counted, describe_setting, listed
from gatekeeper.core.verdict import Outcome, WorkloadVerdict
from gatekeeper.report.data.page import PageData

GLYPHS = {"promoted": "✓", "graded_back": "↓", "failed": "✕", "unproven": "?", "interrupted": "‖"}
"""A sign beside every colour: neither has to be seen alone."""
CHECK_GLYPHS = {Outcome.PASS: "✓", Outcome.FAIL: "✕", Outcome.UNPROVEN: "?"}


def state(page: PageData) -> str:
    """Return the outcome, or that there is none yet."""
    return "interrupted" if page.unfinished else page.verdict.outcome


def lede(page: PageData) -> str:
    """Return what the outcome means, in a sentence or two."""
    verdict = page.verdict
    if page.unfinished:
        return (
            f"This run was interrupted {page.unfinished}. What it had measured is shown below, and none of it is a "
            "verdict. The same command with --resume --out RUN_DIR goes on."
        )
    speculating = [one.name for one in verdict.workloads if one.outcome == "promoted"]
    count = f"{len(speculating)} of {counted(len(verdict.workloads), 'workload')}"
    if verdict.outcome == "promoted":
        plainly = [one.name for one in verdict.workloads if one.outcome != "promoted"]
        verb = "decodes plainly, as it may" if len(plainly) == 1 else "decode plainly, as they may"
        rest = f"; {listed(plainly)} {verb}" if plainly else ""
        demo = " The soak was too short for a certificate: this is a demo." if verdict.grade == "demo" else ""
        return f"Safe to deploy policy.toml: every promise is proven. {count} may speculate{rest}.{demo}"
    if verdict.outcome == "unproven":
        return f"Nothing changes: the evidence does not suffice. {counted(len(page.gaps), 'thing')} not proven, below."
    broken = [one.name for one in verdict.workloads if one.outcome == "failed"]
    broken += ["the host"] if any(one.outcome is Outcome.FAIL for one in verdict.host_checks) else []
    if verdict.outcome == "failed":
        drafting = any(one.outcome == "failed" and one.setting.get("draft") for one in verdict.workloads)
        where = "A" if drafting else "Even with plain decoding a"
        return f"{where} promise is broken: {listed(broken)}. {count} may speculate."
    back = [one.name for one in verdict.workloads if one.required and one.outcome == "graded_back"]
    verb = "requires" if len(back) == 1 else "require"
    return f"{listed(back)} {verb} speculation and had to be graded back to plain decoding. {count} may speculate."


def speed(workload: WorkloadVerdict, page: PageData) -> tuple[float, float, float, str] | None:
    """Return the ratio to plain decoding with its bounds, and where it was seen.

    It is the soak's; of a plain route, that of the last setting that was soaked, or else the best that was swept.
    """
    for metric, name in (("throughput_ratio", "decoding"), ("answer_throughput_ratio", "whole answers")):
        if seen := workload.measured.get(metric):
            return seen["center"], seen["lo"], seen["hi"], f"{name}, in the soak"
    for one in page.distributions:
        if one.workload == workload.name and one.ratio is not None:
            return *one.ratio, f"with {describe_setting(one.setting)}, in {one.source}"
    tried = [one for one in workload.choice.get("settings", ()) if one["ratio"]]
    if not tried:
        return None
    best = max(tried, key=lambda one: float(one["ratio"]))
    return best["ratio"], best["lo"], best["hi"], f"the best of the sweep: {best['trial']}"
