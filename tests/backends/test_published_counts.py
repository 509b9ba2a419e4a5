"""SGLang's and vLLM's counts of one request, with the numbers that others have published of real servers."""

from typing import Any

import pytest

from gatekeeper.analysis.metrics.server_claims import claimed_rounds
from gatekeeper.analysis.verdict.wrong_counters import impossible_counts
from gatekeeper.core.records import Answer, Generation, Role, Rounds, setting
from tests.backends.conftest import make_request
from tests.backends.test_dialects import opened
from tests.builders.servers import (
    CHAT,
    DONE,
    ROLE,
    WORDS,
    Pieces,
    Protocol,
    RecordedServer,
    Request,
    delta,
    event,
    finish,
    usage,
)


def answered(name: str, length: object, protocol: Protocol, *, concurrency: int = 1) -> Answer:
    """Return the answer of a server that is already running and sends this."""
    which = setting(draft="mtp", num_draft_tokens=length, concurrency=concurrency)
    with RecordedServer(protocol, drafting=True) as server:
        backend = opened(name, url=server.url, plain_url=server.url)
        with backend.start(setting(draft="mtp")) as running:
            return running.answer(make_request("prose", which))


def ending(output: int, **last: Any) -> Protocol:
    """Return a protocol whose answers have *output* tokens, and their counts in the chunk before the usage."""

    def pieces(_request: Request, _drafting: bool) -> Pieces:
        yield from (ROLE, event(delta(content="".join(WORDS))), event(finish()))
        yield event({"id": "1", "choices": [], **last})
        yield event(usage(usage={"prompt_tokens": 9, "completion_tokens": output}))
        yield DONE

    return Protocol(CHAT, pieces)


def lies(answer: Answer, length: int) -> list[str]:
    which = setting(draft="mtp", num_draft_tokens=length)
    return impossible_counts(
        [Generation("t", "k", "w", "c", "candidate", which, Role.MEASURED, 0, "", 1, answer)], which
    )


def test_a_published_response_of_sglang() -> None:
    """The counts under sgl-project/sglang#33518: 43 rounds of 5 tokens, 63 accepted, 106 tokens in the answer."""
    details = {
        "spec_accept_rate": 0.2930232558139535,
        "spec_accept_length": 2.4651162790697674,
        "spec_num_correct_drafts": 63,
        "spec_num_proposed_drafts": 215,
        "spec_verify_ct": 43,
        "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3],
    }

    answer = answered("sglang", 5, ending(106, sglext={"spec_tokens_details": details}))

    assert Rounds(43, 215, 63) == claimed_rounds(answer)
    assert [] == lies(answer, 5)


@pytest.mark.parametrize(("output", "rounds"), [(54, 43), (90, 80)])
def test_a_published_response_of_vllm(output: int, rounds: int) -> None:
    """The counts under vllm-project/vllm#48915; steps without a draft are not counted, and each is a round."""
    details = {
        "mean_acceptance_length": 1.2325581395348837,
        "draft_acceptance_rate": 0.07751937984496124,
        "acceptance_histogram": [39, 1, 0, 3],
        "num_spec_steps": 43,
        "num_accepted_draft_tokens": 10,
        "num_draft_tokens": 129,
        "num_spec_tokens": 3,
    }

    answer = answered("vllm", 3, ending(output, metrics={"speculative_decoding": details}))

    assert Rounds(rounds, 129, 10, accepted_by_position=(4, 3, 3)) == claimed_rounds(answer)
    assert [] == lies(answer, 3)
