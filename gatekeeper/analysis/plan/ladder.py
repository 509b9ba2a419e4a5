"""The fallback ladder: a shorter draft, a lighter draft, plain decoding; and how the allowed error is split over it."""

from collections.abc import Sequence

from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.analysis.stats import sequential
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import DRAFT_LENGTHS, Slo

LEAST_ERROR = 1e-9
"""The error of a look that has nothing to spend: its bounds lie so far out that it decides next to nothing."""


def shorter_draft(slo: Slo, knobs: Setting) -> Setting | None:
    """Return the setting with the next lower swept draft length; None where there is none."""
    values = dict(knobs)
    for knob in DRAFT_LENGTHS:
        lower = [value for value in slo.sweep.values(knob) if knob in values and value < values[knob]]
        if lower:
            return setting(**{**values, knob: max(lower)})
    return None


def lighter_draft(slo: Slo, knobs: Setting) -> Setting | None:
    """Return the setting with the next draft of the list; None after the last."""
    values = dict(knobs)
    drafts = slo.subject.drafts
    after = drafts.index(values["draft"]) + 1 if values.get("draft") in drafts else len(drafts)
    return setting(**{**values, "draft": drafts[after]}) if after < len(drafts) else None


def next_step(slo: Slo, knobs: Setting, last: str | None = None) -> tuple[str, Setting] | None:
    """Return the first step after *last* that leads to another setting, and that setting; None after the last step."""
    if not speculates(knobs):
        return None
    ladder: tuple[str, ...] = slo.fallback.ladder
    remaining = ladder[ladder.index(last) + 1 :] if last is not None else ladder
    for step in remaining:
        lower = {"shrink-draft": shorter_draft, "lighter-draft": lighter_draft}.get(step)
        if (to := lower(slo, knobs) if lower is not None else plain_of(knobs)) is not None:
            return step, to
    return None


def soaked_settings(slo: Slo) -> int:
    """Count the speculating settings that one run may soak one after another; the allowed error is split over them."""
    can_shrink = any(len(slo.sweep.values(knob)) > 1 for knob in DRAFT_LENGTHS)
    can_lighten = len(slo.subject.drafts) > 1
    ladder = slo.fallback.ladder
    return 1 + ("shrink-draft" in ladder and can_shrink) + ("lighter-draft" in ladder and can_lighten)


def look_levels(slo: Slo, looks: Sequence[tuple[float, int]]) -> tuple[float, ...]:
    """Return the confidence of each bound at the *looks* at a soak, each its seconds so far and its answers so far.

    A soak that ends after its duration is looked at once. One that continues until it is decided spends the error by
    its seconds, which no value decides, and all its bounds hold together: see `sequential.error_spent_by`.
    """
    error = 1 - bound_level(slo)
    if slo.soak.ends != "decided":
        return tuple(bound_level(slo) for _ in looks)
    most = max(1, looks[-1][1])
    information = tuple(answers / most for _, answers in looks)
    spent = tuple(sequential.error_spent_by(seconds / slo.soak.max_duration, error) for seconds, _ in looks)
    return tuple(1 - max(look_error, LEAST_ERROR) for look_error in sequential.spending_errors(information, spent))


def first_look_level(slo: Slo) -> float:
    """Return the confidence of each bound at the first look, if the soak is then as short as it may be."""
    return look_levels(slo, [(slo.soak.duration, 1)])[0]


def bound_level(slo: Slo) -> float:
    """Return the confidence of each single bound, once the allowed error is split over the settings."""
    return 1 - (1 - slo.confidence) / soaked_settings(slo)
