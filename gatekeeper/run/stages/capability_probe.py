"""Two short requests before anything is measured, without and with a draft: what the backend really reports."""

from collections.abc import Callable, Mapping, Sequence

from gatekeeper.analysis.plan.complaints import capability_probe
from gatekeeper.analysis.plan.complaints.capability_probe import ProbeAnswers
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import candidate_settings, plain_of, sampling_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Backend
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Client


def request_both_arms(
    slo: Slo, canaries: Mapping[str, Sequence[Canary]], backend: Backend, open_client: Callable[[], Client]
) -> ProbeAnswers:
    """Request a few tokens with drafting off and on; raise GatekeeperError where the system cannot be started."""
    workload = slo.workload[0].name
    canary = capability_probe.probe_canary(canaries[workload])
    offered = candidate_settings(slo)
    candidate = offered[0][2] if offered else None
    plain = plain_of(candidate or ())

    with open_client() as client:

        def send(arm: str, knobs: Setting) -> Answer:
            client.open(candidate if candidate is not None and backend.shares_process else knobs)
            most = min(sampling_for(slo, canary, knobs, 1).max_tokens, capability_probe.ANSWER_TOKENS)
            uncapped = canary.model_copy(update={"max_tokens": None})
            knobs = tuple((knob, value) for knob, value in knobs if knob not in {"max_tokens", "concurrency"})
            limit = (("max_tokens", most),)
            request = PlannedRequest(workload, uncapped, arm, knobs, prefix=arm, role=Role.WARMUP, sampling=limit)
            return client.send(request).answer

        answered_plain = send("plain", plain) if Sight.PLAIN in backend.sight or candidate is None else None
        return ProbeAnswers(answered_plain, None if candidate is None else send("candidate", candidate))
