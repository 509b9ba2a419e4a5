"""Two short requests before anything is measured, without and with a draft: what the backend really reports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gatekeeper.analysis.metrics.words.scored_answers import tells_its_passes
from gatekeeper.analysis.plan.complaints import probed_capabilities
from gatekeeper.analysis.plan.complaints.probed_capabilities import ProbeAnswers
from gatekeeper.analysis.plan.planned_request import PlannedRequest
from gatekeeper.analysis.plan.settings import candidate_settings, plain_of, sampling_for
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Backend, DecodeRequest, RunningSystem, TellsLogProbabilities
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Role, Scored, Setting
from gatekeeper.core.slo import Slo
from gatekeeper.run.requests import Client

BEGINNINGS = 6
"""How many beginnings of an answer are tried: sent as text, some are read as other tokens."""


def request_both_arms(
    slo: Slo, canaries: Mapping[str, Sequence[Canary]], backend: Backend, open_client: Callable[[], Client]
) -> ProbeAnswers:
    """Request a few tokens with drafting off and on; raise GatekeeperError where the system cannot be started."""
    workload = slo.workload[0].name
    canary = probed_capabilities.probe_canary(canaries[workload])
    offered = candidate_settings(slo)
    candidate = offered[0][2] if offered else None
    plain = plain_of(candidate or ())

    uncapped = canary.model_copy(update={"max_tokens": None})

    def short(knobs: Setting) -> tuple[Setting, int]:
        """Return the knobs of a short request, and its length."""
        most = min(sampling_for(slo, canary, knobs, 1).max_tokens, probed_capabilities.ANSWER_TOKENS)
        return tuple((knob, value) for knob, value in knobs if knob not in {"max_tokens", "concurrency"}), most

    with open_client() as client:

        def send(arm: str, knobs: Setting) -> Answer:
            client.open(candidate if candidate is not None and backend.shares_process else knobs)
            knobs, most = short(knobs)
            limit = (("max_tokens", most),)
            request = PlannedRequest(workload, uncapped, arm, knobs, prefix=arm, role=Role.WARMUP, sampling=limit)
            return client.send(request).answer

        def score_answer(answer: Answer | None, knobs: Setting) -> tuple[DecodeRequest, Scored] | None:
            """Request an answer again with log-probabilities, from the system that gave it; None where it failed."""
            subject, (knobs, most) = client.subject, short(knobs)
            if answer is None or answer.fault is not None or not isinstance(subject, TellsLogProbabilities):
                return None
            sampling = replace(sampling_for(slo, uncapped, knobs, 1), max_tokens=most)
            request = DecodeRequest(uncapped, knobs, sampling)
            return request, subject.request_scores(request) or Scored("", "", "", fault="none")

        answered_plain = send("plain", plain) if Sight.PLAIN in backend.sight or candidate is None else None
        likeliest = score_answer(answered_plain, plain)
        tells = None if likeliest is None else _reads_beginnings(client.subject, *likeliest)
        drafted = None if candidate is None else send("candidate", candidate)
        told = score_answer(drafted, candidate or ()) if Sight.VERIFIED in backend.sight else None
        passes = None if told is None else tells_its_passes(replace(told[1], arm="candidate"))
        return ProbeAnswers(answered_plain, drafted, tells, passes)


def _reads_beginnings(subject: RunningSystem | None, request: DecodeRequest, record: Scored) -> bool:
    """Tell whether the server tells the likeliest tokens of an answer, and reads one of a few of its beginnings."""
    places = [position for position, likely in enumerate(record.likeliest) if position and len(likely) > 1]
    return isinstance(subject, TellsLogProbabilities) and any(
        (next_token := subject.continue_answer(request, record.first(position), 1)) is not None
        and next_token.lead[0] is not None
        for position in places[:BEGINNINGS]
    )
