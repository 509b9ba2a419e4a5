"""Growing conversations sent to a real backend, as the pass at the end of a run sends them."""

from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import Backend
from gatekeeper.core.records import Generation, Role, Setting
from gatekeeper.run.requests import Client
from gatekeeper.run.stages.send_conversations import ConversationsTask, send_conversations
from gatekeeper.run.stages.tasks import KeptRecords
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


def held(backend: Backend, knobs: Setting) -> list[Generation]:
    """Return the answers of a conversation in both arms, each on the prompt cache as deployed."""
    answers: KeptRecords[Generation] = KeptRecords(lambda _: None, [])
    fields = {"target": "t", "drafts": ["d"], "script": "truth.json", "prompt_cache": "as-deployed"}
    written = slo(objective("throughput_ratio", at_least=1.1), subject={"backend": "scripted"} | fields)
    with Client(written, backend, lambda *_: None) as client:
        task = ConversationsTask(
            slo=written,
            canaries={"talk": conversation(1)},
            seed=3,
            settings={"talk": knobs},
            shares_process=backend.shares_process,
            answers=answers,
            client=client,
            observe=lambda *_: None,
        )
        send_conversations(task)
    return [answer for answer in answers.records if answer.role is not Role.WARMUP]


def resumed(answers: list[Generation]) -> dict[str, list[bool]]:
    """Return, by arm, whether each turn after the first found the prompt of the one before it in the cache."""
    by_arm: dict[str, list[bool]] = {"plain": [], "candidate": []}
    read = {(answer.arm, answer.canary): answer.answer.prompt_tokens or 0 for answer in answers}
    for answer in answers:
        head, _, turn = answer.canary.rpartition("-")
        if int(turn) > 1:
            before = read[answer.arm, f"{head}-{int(turn) - 1}"]
            by_arm[answer.arm].append((answer.answer.claims.cached_tokens or 0) >= 0.8 * before)
    return by_arm
