"""The graded fallback: a shorter draft, a lighter draft, plain decoding; each rung once."""

from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import DRAFT_LENGTHS, Slo


def shorter_draft(slo: Slo, knobs: Setting) -> Setting | None:
    """Return the setting with the next lower swept draft length; None where there is none."""
    turned = dict(knobs)
    for knob in DRAFT_LENGTHS:
        lower = [value for value in slo.sweep.values(knob) if knob in turned and value < turned[knob]]
        if lower:
            return tuple(sorted({**turned, knob: max(lower)}.items()))
    return None


def lighter_draft(slo: Slo, knobs: Setting) -> Setting | None:
    """Return the setting with the next draft of the list; None after the last."""
    turned = dict(knobs)
    drafts = slo.subject.drafts
    after = drafts.index(turned["draft"]) + 1 if turned.get("draft") in drafts else len(drafts)
    return tuple(sorted({**turned, "draft": drafts[after]}.items())) if after < len(drafts) else None


def next_step(slo: Slo, knobs: Setting, used: tuple[str, ...]) -> tuple[str, Setting] | None:
    """Return the next rung that leads somewhere and its setting; None at the foot of the ladder."""
    if not speculates(knobs):
        return None
    for rung in slo.fallback.ladder:
        if rung in used:
            continue
        lower = {"shrink-draft": shorter_draft, "lighter-draft": lighter_draft}.get(rung, _plain)(slo, knobs)
        if lower is not None:
            return rung, lower
    return None


def _plain(_slo: Slo, knobs: Setting) -> Setting:
    return plain_of(knobs)


def soaked_settings(slo: Slo) -> int:
    """Count the speculating settings that one run may soak in turn; the allowed error is split over them."""
    can_shrink = any(len(slo.sweep.values(knob)) > 1 for knob in DRAFT_LENGTHS)
    can_lighten = len(slo.subject.drafts) > 1
    ladder = slo.fallback.ladder
    return 1 + ("shrink-draft" in ladder and can_shrink) + ("lighter-draft" in ladder and can_lighten)


def bound_level(slo: Slo) -> float:
    """Return the confidence of each single bound, once the allowed error is split over the rungs."""
    return 1 - (1 - slo.confidence) / soaked_settings(slo)
