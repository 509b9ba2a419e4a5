"""The fallback ladder: a shorter draft, a lighter draft, plain decoding; each step once, in the SLO's order."""

from gatekeeper.analysis.plan.settings import plain_of, speculates
from gatekeeper.core.records import Setting, setting
from gatekeeper.core.slo import DRAFT_LENGTHS, Slo


def shorter_draft(slo: Slo, knobs: Setting) -> Setting | None:
    """Return the setting with the next lower swept draft length; None where there is none."""
    turned = dict(knobs)
    for knob in DRAFT_LENGTHS:
        lower = [value for value in slo.sweep.values(knob) if knob in turned and value < turned[knob]]
        if lower:
            return setting(**{**turned, knob: max(lower)})
    return None


def lighter_draft(slo: Slo, knobs: Setting) -> Setting | None:
    """Return the setting with the next draft of the list; None after the last."""
    turned = dict(knobs)
    drafts = slo.subject.drafts
    after = drafts.index(turned["draft"]) + 1 if turned.get("draft") in drafts else len(drafts)
    return setting(**{**turned, "draft": drafts[after]}) if after < len(drafts) else None


def next_step(slo: Slo, knobs: Setting, last: str | None = None) -> tuple[str, Setting] | None:
    """Return the first step after *last* that leads to another setting, and that setting; None after the last step."""
    ladder: tuple[str, ...] = slo.fallback.ladder
    left = ladder[ladder.index(last) + 1 :] if last is not None else ladder
    for step in left if speculates(knobs) else ():
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


def look_level(slo: Slo, look: int) -> float:
    """Return the confidence of each bound at a *look* (from 1) at a soak that continues until it is decided.

    Look k spends 2^-k of the allowed error, so that all looks together err no more often than one would (union bound).
    With one to three looks that is narrower than a confidence sequence, which holds at every moment: see
    `python -m bench.sequential --widths`.
    """
    error = 1 - bound_level(slo)
    return 1 - error * (2.0**-look if slo.soak.ends == "decided" else 1.0)


def bound_level(slo: Slo) -> float:
    """Return the confidence of each single bound, once the allowed error is split over the settings."""
    return 1 - (1 - slo.confidence) / soaked_settings(slo)
