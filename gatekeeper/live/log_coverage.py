"""What share of a log's requests a certificate would cover: decided as the proxy decides it, before a run."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from gatekeeper.analysis.verdict.policy.certified_policy import (
    certified_requests,
    certified_sampling,
    longest_format,
    model_names,
)
from gatekeeper.backends import facts_of
from gatekeeper.backends.dialects import running_dialect
from gatekeeper.canaries.logged_request import Json, UnusableError, body_of, read_log
from gatekeeper.core.canary import Canary
from gatekeeper.core.errors import InputError
from gatekeeper.core.policy import Conditions, Route
from gatekeeper.core.slo import Slo
from gatekeeper.core.system import inputs
from gatekeeper.core.text import show_count
from gatekeeper.core.units import percent
from gatekeeper.live.certified_point import PROMPT, CertifiedPoint
from gatekeeper.live.live_request import LiveRequest, read_request
from gatekeeper.live.request_fields import read_conditions

LONGER = f"{PROMPT} is longer than every canary's"
MOST_REASONS = 5
"""Reasons that are listed, the commonest first; --json has all."""


def cover_logs(slo_path: Path, logs: Sequence[Path]) -> Json:
    """Return how many requests of *logs* ask for what the canaries of an SLO ask for, and why the others do not.

    The name of the model does not decide: a run may add names by which its server calls it.
    """
    slo_inputs = inputs.read(slo_path)
    slo, canaries = slo_inputs.slo, slo_inputs.canaries
    points = {name: _point(slo, canary_set) for name, canary_set in canaries.items()}
    of_all_workloads = _point(slo, [*chain.from_iterable(canaries.values())])
    covered, outside = Counter[str](), Counter[str]()
    other_model = 0
    for log in logs:
        for _, body in read_log(log, body_of):
            if isinstance(body, UnusableError):
                outside[str(body)] += 1
                continue
            request = _request(body, slo, of_all_workloads)
            differences = {name: point.difference(request) for name, point in points.items()}
            inside = next((name for name, difference in differences.items() if difference is None), None)
            if inside is not None:
                covered[inside] += 1
                other_model += request.model != str(body.get("model") or "")
            else:
                # By the nearest request of all workloads: a chat is not asked why it has no response format.
                reason = of_all_workloads.difference(request) or str(next(iter(differences.values())))
                outside[LONGER if reason.startswith(PROMPT) else reason] += 1
    total = covered.total() + outside.total()
    if not total:
        raise InputError(f"no line is in {', '.join(map(str, logs))}", hint="write one request a line, as JSON")
    return {
        "slo": str(slo_path),
        "logs": [str(log) for log in logs],
        "requests": total,
        "covered": covered.total(),
        "share": round(covered.total() / total, 4),
        "workloads": dict(covered.most_common()),
        "streams": slo.soak.concurrency,
        "model": _model(slo),
        "other_model": other_model,
        "outside": dict(outside.most_common()),
    }


def _point(slo: Slo, canaries: Sequence[Canary]) -> CertifiedPoint:
    """Return what a run with *canaries* would certify; its longest prompt is in bytes, as no server has counted it."""
    backend = slo.subject.backend
    conditions = Conditions(
        backend=backend,
        target=slo.subject.target,
        prompt_cache="on" if slo.subject.prompt_cache == "as-deployed" else "off",
        concurrency=slo.soak.concurrency,
        max_tokens=slo.sampling.max_tokens,
        sampling=certified_sampling(slo),
    )
    most_format = longest_format(canaries)
    lengths = [1]
    for canary in canaries:
        sent = read_conditions({"messages": list(canary.messages), "tools": list(canary.tools), **canary.options})
        lengths.append(sent.most_prompt_tokens(most_format or 0, None) or 1)
    route = Route(
        workload="any",
        speculation=False,
        longest_prompt=max(lengths),
        longest_format=most_format,
        models=model_names(slo, ()),
        request=certified_requests(slo, canaries),
    )
    return CertifiedPoint.of(
        route, conditions, slo.soak.concurrency, running_dialect(facts_of(backend).served_as or backend)
    )


def _model(slo: Slo) -> str:
    return slo.subject.served_model_name or slo.subject.target


def _request(body: Json, slo: Slo, point: CertifiedPoint) -> LiveRequest:
    """Return a logged request at the path that canaries take, with the certified model in place of another one."""
    request = read_request(point.dialect.path, {}, json.dumps(body).encode())
    conditions = request.conditions()
    if conditions is None or point.compare_model(conditions) is None:
        return request
    return read_request(point.dialect.path, {}, json.dumps({**body, "model": _model(slo)}).encode())


def coverage_text(document: Json) -> str:
    """Return in one sentence what share of a log a certificate would cover; then as what, and why not the rest."""
    requests = (
        f"{document['covered']} of {show_count(document['requests'], 'request')} in {', '.join(document['logs'])}"
    )
    sentence = f"a certificate would cover {requests} ({percent(document['share'])})"
    if document["covered"]:
        sentence += f", at most {document['streams']} at once"
    if document["other_model"]:
        sentence += f"; {document['other_model']} of these must name the model '{document['model']}'"
    lines = [sentence, *(f"  {count} as canaries of {name}" for name, count in document["workloads"].items())]
    reasons = [*document["outside"].items()]
    lines += [f"  {count} decoded plainly: {reason}" for reason, count in reasons[:MOST_REASONS]]
    if len(reasons) > MOST_REASONS:
        lines.append(f"  and {show_count(len(reasons) - MOST_REASONS, 'reason')} more: see --json")
    return "\n".join(lines) + "\n"
