"""Plain words: canaries decoded plainly after the soak, where no forced pass shows what plain decoding writes."""

from gatekeeper.analysis.passes.soak_pass import Needs, Pass, Soaked, add_untimed
from gatekeeper.analysis.plan.objectives import forced_workloads
from gatekeeper.core.records import Generation


def _needs(soak: Soaked) -> Needs:
    lacking = {}
    for name in forced_workloads(soak.slo, soak.settings, soak.terms):
        words = soak.answers(name).words
        answered = {answer.canary for answer in words.plain}
        lacking[name] = tuple(dict.fromkeys(answer.canary for answer in words.answers if answer.canary not in answered))
    return {name: canaries for name, canaries in lacking.items() if canaries}


PASS = Pass(
    name="plain_words",
    stem="words",
    kind=Generation,
    stage="plain words",
    title="plain answers, for their words",
    needs=_needs,
    add=add_untimed,
)
