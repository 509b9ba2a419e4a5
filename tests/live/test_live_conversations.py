"""Which requests are one conversation, whose arm is drawn once."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from gatekeeper.live import live_conversations
from gatekeeper.live.live_conversations import MOST_REPEATS, Conversations
from gatekeeper.live.live_request import read_request
from tests.builders.live_server import CHAT

SYSTEM = {"role": "system", "content": "you are a clerk."}


def said(*texts: str) -> list[dict[str, Any]]:
    """Return messages of a client and a model in turn, after those of the system."""
    roles = ("user", "assistant")
    return [SYSTEM, *({"role": roles[number % 2], "content": text} for number, text in enumerate(texts))]


def ids(requests: Sequence[Any], **headers: str) -> list[str]:
    """Return the conversation of each body, in a proxy that has seen those before it."""
    table, drawn = Conversations(count().__next__), []
    for body in requests:
        request = read_request(
            CHAT, headers, json.dumps(body if isinstance(body, dict) else {"messages": body}).encode()
        )
        drawn.append(table.conversation_of(request.prefixes, request.session).id)
    return drawn


def groups(names: Sequence[str]) -> list[int]:
    """Return a number for each name, in the order of their first appearance."""
    return [list(dict.fromkeys(names)).index(name) for name in names]


def test_a_request_that_begins_with_an_earlier_one_continues_its_conversation() -> None:
    """Two clients with one system prompt are two conversations, each to its end, also after an answer of a tool."""
    tool = {"role": "tool", "content": "12 C"}
    first, second = said("oslo?"), said("bergen?")

    together = ids([first, second, [*said("oslo?", "call"), tool], said("bergen?", "cold", "why?"), said("rome?")])

    assert [0, 1, 0, 1, 2] == groups(together)


def test_examples_that_all_requests_share_are_no_conversation() -> None:
    """The same example before each question does not put all clients of an application into one arm."""
    questions = [said("1+1?", "2", question) for question in ("2+2?", "3+3?", "4+4?")]

    assert [0, 1, 2] == groups(ids(questions))


def test_a_request_that_comes_again_is_the_same_conversation_for_some_time() -> None:
    """A client that tries again keeps its arm; a job that sends one request all day is drawn again and again."""
    names = groups(ids([said("again")] * 3 * (MOST_REPEATS + 1)))

    assert [number // (MOST_REPEATS + 1) for number in range(len(names))] == names


def test_the_words_of_two_clients_are_two_conversations() -> None:
    """Another key, model or path is another conversation with the same words; so is each without any."""
    table = Conversations(count().__next__)
    bodies = [{"messages": said("hi")}, {"messages": said("hi"), "model": "b"}, {"messages": []}, {"messages": []}]
    requests = [read_request(CHAT, {}, json.dumps(body).encode()) for body in bodies]
    requests.append(read_request(CHAT, {"Authorization": "Bearer k"}, json.dumps(bodies[0]).encode()))
    requests.append(read_request("/v1/responses", {}, json.dumps(bodies[0]).encode()))

    assert 6 == len({table.conversation_of(request.prefixes, request.session).id for request in requests})


def test_a_client_may_name_its_conversation() -> None:
    """With the header `x-gatekeeper-conversation` requests belong together, as often as they come."""
    conversation_ids = ids([said(str(number)) for number in range(30)], **{"x-gatekeeper-conversation": "a"})

    assert 1 == len(set(conversation_ids))


def test_texts_without_messages_are_recognized_when_they_come_again() -> None:
    """A prompt and an input of the Responses API: as a text it is a conversation, as a list its items are messages."""
    listed = [{"input": said("a")}, {"input": said("a", "b", "c")}, {"prompt": "a"}, {"prompt": "a"}, {"prompt": "ab"}]

    assert [0, 0, 1, 1, 2] == groups(ids(listed))


def test_what_is_kept_is_bounded_and_says_nothing_of_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest requests are remembered, by hashes with a key of this process."""
    monkeypatch.setattr(live_conversations, "MOST_KEPT", 3)
    tables = [Conversations(count().__next__) for _ in range(2)]
    for table in tables:
        for number in range(5):
            request = read_request(CHAT, {}, json.dumps({"messages": said(f"secret {number}")}).encode())
            table.conversation_of(request.prefixes)
    keys_kept = [set(table._kept) for table in tables]

    assert [3, 3] == [len(keys) for keys in keys_kept]
    assert not keys_kept[0] & keys_kept[1]
    assert not [key for key in keys_kept[0] if key in request.prefixes]
