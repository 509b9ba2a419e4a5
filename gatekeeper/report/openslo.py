"""The checks as OpenSLO v1 objects: JSON documents one after the other, which is a YAML stream.

OpenSLO describes budgets over rolling windows; a gate describes one run. So each check is one SLO: its bound is the
objective's value, its window is how long the certificate is valid, and what has no field there (the measurement, the
outcome, the ladder) is in annotations. The target of a quantile is its share of events. OpenSLO has no budget of
exactly zero, because a target is below 1; so the others take the SLO's confidence, over slices as long as the soak's
acceptance windows.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping

from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.text import inert_json
from gatekeeper.core.units import show, show_number
from gatekeeper.core.verdict import Check
from gatekeeper.report.data.page_data import PageData

LONGEST_NAME = 63
LONGEST_DESCRIPTION = 1050
"""Limits of the specification."""
SHORTHAND = (("d", 86400), ("h", 3600), ("m", 60))


def render(page: PageData) -> str:
    """Return one object for each check, and the service they belong to."""
    verdict = page.verdict
    objects = [_service(page)]
    for workload in verdict.workloads:
        about = {"workload": workload.name, "outcome": workload.outcome, "setting": json.dumps(workload.setting)}
        objects += [_slo(page, workload.name, check, about) for check in workload.checks]
    objects += [_slo(page, "host", check, {"outcome": verdict.outcome}) for check in verdict.host_checks]
    return "---\n".join(
        inert_json(json.dumps(definition, indent=1, ensure_ascii=True)) + "\n" for definition in objects
    )


def _service(page: PageData) -> dict[str, object]:
    metadata = {"name": name(page.verdict.slo), "displayName": page.verdict.slo}
    spec = {"description": (page.slo.why or "Certified by gatekeeper.")[:LONGEST_DESCRIPTION]}
    return {"apiVersion": "openslo/v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _slo(page: PageData, part: str, check: Check, about: Mapping[str, str]) -> dict[str, object]:
    verdict = page.verdict
    metric = BY_NAME[check.metric]
    title = f"{verdict.slo} {part} {check.metric} {check.bound} {show_number(check.threshold, 6)}"
    figures = (("center", check.center), ("lo", check.lo), ("hi", check.hi))
    measured = {key: show_number(value, 6) for key, value in figures if value is not None}
    annotations = {
        "slo": verdict.slo,
        "manifest-sha256": verdict.manifest_sha256,
        "grade": verdict.grade,
        "check": check.outcome.word,
        "because": check.because,
        "confidence": f"{page.slo.confidence:g}",
        "ladder": ", ".join(page.slo.fallback.ladder),
        "n": str(check.n),
        **measured,
        **about,
    }
    source = {"type": "gatekeeper", "spec": {"metric": check.metric, "unit": check.unit, "part": part}}
    indicator = {
        "metadata": {"name": name(f"{title} sli"), "displayName": check.metric},
        "spec": {"description": metric.description[:LONGEST_DESCRIPTION], "thresholdMetric": {"metricSource": source}},
    }
    objective: dict[str, object] = {
        "displayName": f"{check.metric} {check.bound} {show(check.threshold, check.unit)}",
        "op": "gte" if check.bound == "at_least" else "lte",
        "value": check.threshold,
    }
    if metric.quantile is not None:
        # At most x at the 95 % quantile: 95 % of the events are good; at least x there: 5 % of them are.
        share = metric.quantile if check.bound == "at_most" else 1 - metric.quantile
        method, objective["target"] = "Occurrences", round(share, 6)
    else:
        method, objective["target"] = "Timeslices", page.slo.confidence
        objective |= {"timeSliceTarget": 1.0, "timeSliceWindow": shorthand(page.slo.soak.window_s)}
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {
            "name": name(title),
            "displayName": title,
            "annotations": {f"gatekeeper.{key}": value for key, value in annotations.items()},
        },
        "spec": {
            "description": check.why[:LONGEST_DESCRIPTION],
            "service": name(verdict.slo),
            "indicator": indicator,
            "timeWindow": [{"duration": shorthand(page.slo.promote.valid_for), "isRolling": True}],
            "budgetingMethod": method,
            "objectives": [objective],
        },
    }


def name(text: str) -> str:
    """Return an RFC 1123 label; one that had to be shortened or changed ends in a digest, so that it stays unique."""
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"
    if len(label) <= LONGEST_NAME and re.sub(r"[ _-]", "-", text.lower()) == label:
        return label
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{label[: LONGEST_NAME - 9].rstrip('-')}-{digest}"


def shorthand(seconds: float) -> str:
    """Write a duration as OpenSLO does: whole minutes, hours or days, rounded up."""
    minutes = max(1, math.ceil(seconds / 60 - 1e-9))
    for letter, size in SHORTHAND:
        if minutes * 60 % size == 0:
            return f"{minutes * 60 // size}{letter}"
    return f"{minutes}m"
