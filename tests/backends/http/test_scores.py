"""Log-probabilities in the forms that servers use, and what malformed ones tell: nothing."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatekeeper.backends.dialect import request_scores
from gatekeeper.backends.dialects import llama_server, mlx_server
from gatekeeper.backends.http.scores import (
    LIKELIEST,
    Beginning,
    by_final_message,
    scored_from,
    with_scores,
)
from gatekeeper.core.records import Likely, Scored

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda deeper: st.lists(deeper, max_size=4) | st.dictionaries(
        st.sampled_from(["token", "id", "logprob", "bytes", "top_logprobs", "content", "x"]), deeper, max_size=5
    ),
    max_leaves=20,
)  # fmt: skip


def completion(places: Any, prompt: Any = 9) -> dict[str, Any]:
    choice = {"message": {"content": "ab"}, "logprobs": {"content": places}, "finish_reason": "stop"}
    return {"choices": [choice], "usage": {"prompt_tokens": prompt}}


def place(token: str, logprob: Any, *likely: tuple[str, float], **more: Any) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "top_logprobs": [{"token": t, "logprob": p} for t, p in likely], **more}


def test_the_form_of_openai_is_read() -> None:
    """Each place has its token, its log-probability and the likeliest ones; numbers name tokens where they come."""
    numbered = place("b", -1.0, id=7) | {"top_logprobs": [{"id": 8, "token": "c", "logprob": -0.5}]}

    record = scored_from(completion([place("a", -0.25, ("z", -2.0), ("a", -0.25)), numbered]))

    assert record is not None
    assert (("a", "#7"), (-0.25, -1.0)) == (record.tokens, record.logprobs)
    assert ((Likely("a", -0.25), Likely("z", -2.0)), (Likely("#8", -0.5),)) == record.likeliest
    assert (("a", "b"), "ab", 9, "stop") == (record.spelled, record.text, record.prompt_tokens, record.finish)


@pytest.mark.parametrize("logprob", [None, "-1", math.nan, math.inf, 1.0, -1e40, True])
def test_what_is_no_log_probability_tells_nothing(logprob: Any) -> None:
    """A place with anything but a finite logarithm of a probability keeps its token, and tells no likely one."""
    record = scored_from(completion([place("a", logprob, ("a", -1.0))]))

    assert record is not None
    assert (("a",), ((),)) == (record.tokens, record.likeliest)


@given(st.lists(JSON, max_size=4), JSON)
def test_any_document_is_read_without_an_error(places: list[Any], document: Any) -> None:
    """Whatever a server sends, its columns have equal lengths, and its log-probabilities are of probabilities."""
    for sent in (completion(places, document), document, {"choices": [document]}):
        record = scored_from(sent)
        if record is not None:
            assert len(record.tokens) == len(record.logprobs) == len(record.likeliest)
            assert all(-(2**64) < likely.logprob <= 0 for listed in record.likeliest for likely in listed)


class Asked:
    """Answers every request with a document, and keeps what it was sent."""

    def __init__(self, *documents: Any) -> None:
        self.documents, self.requests = list(documents), list[tuple[str, Any]]()

    def __call__(self, path: str, fields: Any) -> Any:
        self.requests.append((path, fields))
        return self.documents.pop(0)


def beginning(**more: Any) -> Beginning:
    answer = Scored("", "", "", tokens=("#5", "#6"), spelled=("a", "b"), logprobs=(-1.0, -1.0), prompt_tokens=9)
    return Beginning({"messages": [{"role": "user", "content": "hi"}]}, answer, more.get("folder"))


def test_a_final_message_is_continued() -> None:
    """The beginning is the last message; what follows counts where the server read as many tokens as it has."""
    places = [place("c", -0.5, ("c", -0.5), ("d", -2.0))]
    right, wrong = Asked(completion(places, 11)), Asked(completion(places, 12))

    record, shifted = (by_final_message(request_scores, server, beginning(), 3) for server in (right, wrong))

    assert record is not None
    assert ((1.5, "c"), None) == (record.lead, shifted)
    (sent,) = [fields for _, fields in right.requests]
    assert {"role": "assistant", "content": "ab"} == sent["messages"][-1]
    assert (True, False, 3) == (sent["continue_final_message"], sent["add_generation_prompt"], sent["max_tokens"])


def test_llama_server_reads_numbers_after_its_own_prompt() -> None:
    """The prompt that its template wrote and the numbers of the tokens are one prompt, read without its cache."""
    document = {"completion_probabilities": [place("c", -0.5, ("c", -0.5), ("d", -2.0))]}
    server = Asked({"prompt": "<hi>"}, document)

    record = llama_server.continue_answer(server, beginning(), 4)

    assert record is not None
    assert (1.5, "c") == record.lead
    assert ["<hi>", 5, 6] == server.requests[1][1]["prompt"]
    assert (4, False) == (server.requests[1][1]["n_predict"], server.requests[1][1]["cache_prompt"])
    assert llama_server.continue_answer(Asked(None), beginning(), 1) is None


LISTED = [{"id": 6, "token": "b", "logprob": -2.0}, {"id": 5, "token": "ab", "logprob": -0.5}]
END = [{"id": 0, "token": "<end>", "logprob": -0.1}]


def test_mlx_server_tells_tokens_and_likeliest_ones_apart() -> None:
    """Two answers of mlx_lm.server are one: the numbers written, the likeliest ones, and their pieces as text."""
    written = [{"id": 6, "logprob": -2.0}]
    server = Asked(completion([{**LISTED[0], "top_logprobs": LISTED}]), completion(written))

    record = mlx_server.request_scores(server, {"messages": []})

    assert record is not None
    assert (("#6",), ("b",)) == (record.tokens, record.spelled)
    assert [("#5", -0.5), ("#6", -2.0)] == list(record.likeliest[0])
    assert [LIKELIEST, -1] == [fields["top_logprobs"] for _, fields in server.requests]
    assert with_scores({"stream": True, "stream_options": {}})["stream"] is False


def test_the_likeliest_tokens_that_spell_an_answer_of_mlx_server_are_its_tokens() -> None:
    """One request is enough; the last token ends the answer, and is not in its text."""
    listed = [{**tokens[0], "top_logprobs": tokens} for tokens in (LISTED, END)]
    server = Asked(completion(listed))

    record = mlx_server.request_scores(server, {"messages": []})

    assert record is not None
    assert (("#5", "#0"), (-0.5, -0.1), ("ab", "<end>")) == (record.tokens, record.logprobs, record.spelled)
    assert 1 == len(server.requests)
