"""Growing conversations sent to a real backend, as the warm-cache follow-up sends them."""

from typing import Any

import pytest

from gatekeeper.analysis.follow_ups import warm_cache
from gatekeeper.analysis.follow_ups.follow_up import Soaked
from gatekeeper.analysis.metrics.cached_turns import conversation_of
from gatekeeper.analysis.plan.objectives import Terms
from gatekeeper.analysis.plan.soak_schedule import SoakPlan
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Backend
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.run.follow_ups import send
from gatekeeper.run.requests import Client
from tests.builders.slo import objective, slo

TURNS = 3


def conversation(number: int) -> list[Canary]:
    """Return turns whose prompts grow by a short answer and a short question."""
    messages, turns = [{"role": "system", "content": f"Number {number}. You write short words."}], []
    for turn in range(1, TURNS + 1):
        messages = [*messages, {"role": "user", "content": f"Say the word {turn} of list {number}."}]
        name = f"talk-{number}-{turn}"
        fields = {"id": name, "conversation": f"c{number}", "turn": turn, "messages": messages, "max_tokens": 12}
        turns.append(Canary.model_validate(fields))
        messages = [*messages, {"role": "assistant", "content": f"Word {turn}."}]
    return turns


def _need_none(_workload: str) -> Any:
    pytest.fail("which conversations are sent does not depend on the answers of the soak")


def held(backend: Backend, knobs: Setting) -> list[Generation]:
    """Return the turns of a conversation in both arms, each on the prompt cache as deployed."""
    answers: list[Generation] = []
    fields = {"target": "t", "drafts": ["d"], "script": "truth.json", "prompt_cache": "as-deployed"}
    written = slo(objective("throughput_ratio", at_least=1.1), subject={"backend": "scripted"} | fields)
    plan = SoakPlan("soak-1", {"talk": knobs}, knobs)
    soak = Soaked(written, plan, Terms(), _need_none, _need_none, {"talk": conversation(1)}, seed=3)
    send(
        warm_cache.FOLLOW_UP, soak, {"talk": ()}, (), record=answers.append, clock=backend.clock,
        open_client=lambda *, cache=False: Client(written, backend, lambda *_: None, cache=cache),
        observe=lambda *_: None,
    )  # fmt: skip
    return [answer for answer in answers if answer.role is Role.WARM]


def resumed(answers: list[Generation]) -> dict[str, list[bool]]:
    """Return, by arm, whether each turn after the first found the prompt of the one before it in the cache."""
    by_arm: dict[str, list[bool]] = {"plain": [], "candidate": []}
    read = {(answer.arm, conversation_of(answer), answer.repeat): answer.answer.prompt_tokens for answer in answers}
    for answer in answers:
        if answer.repeat > 0:
            before = read[answer.arm, conversation_of(answer), answer.repeat - 1] or 0
            by_arm[answer.arm].append((answer.answer.claims.cached_tokens or 0) >= 0.8 * before)
    return by_arm
