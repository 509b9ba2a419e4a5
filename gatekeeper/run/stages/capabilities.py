"""The glance: two short requests before anything is measured, so that nobody believes a backend's kind alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.plan import capabilities as glancing
from gatekeeper.analysis.plan.capabilities import ProbeAnswers
from gatekeeper.analysis.plan.settings import candidate_settings, plain_of, sampling_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Backend
from gatekeeper.core.metrics import Sight
from gatekeeper.core.records import Answer, Role, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Desk, Request


def glance(
    slo: Slo, canaries: Mapping[str, Sequence[Canary]], backend: Backend, open_desk: Callable[[], Desk]
) -> ProbeAnswers:
    """Ask for a few tokens with drafting off and on; raise GatekeeperError where the subject cannot be started."""
    workload = slo.workload[0].name
    canary = glancing.probe_canary(canaries[workload])
    offered = candidate_settings(slo)
    candidate = offered[0][2] if offered else None
    plain = plain_of(candidate or ())

    with open_desk() as desk:

        def ask(arm: str, knobs: Setting) -> Answer:
            desk.open(candidate if candidate is not None and backend.shares_process else knobs)
            sampling = sampling_for(slo, canary, knobs, 1)
            short = replace(sampling, max_tokens=min(sampling.max_tokens, glancing.ANSWER_TOKENS))
            brief = canary.model_copy(update={"max_tokens": None})
            knobs = tuple((knob, value) for knob, value in knobs if knob not in {"max_tokens", "concurrency"})
            request = Request("glance", f"glance/{arm}", workload, brief, arm, knobs, short, Role.WARMUP)
            return desk.ask(request).answer

        asked_plain = ask("plain", plain) if Sight.PLAIN in backend.sight or candidate is None else None
        return ProbeAnswers(asked_plain, None if candidate is None else ask("candidate", candidate))
