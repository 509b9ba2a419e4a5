"""Canaries from logs of chat requests: what is kept, repeats, the mix, redaction, expectations."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.canaries import logged_request, redaction
from gatekeeper.canaries.canary_text import import_text
from gatekeeper.canaries.import_log import import_logs
from gatekeeper.core import canary, toml_file
from gatekeeper.core.errors import InputError
from gatekeeper.core.slo import Profile
from tests.builders.golden_words import says
from tests.builders.project_folder import ROOT

LOGS = ROOT / "tests" / "faults" / "corpus" / "traffic"
WEATHER = {
    "name": "weather",
    "description": "Weather of a town.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
TOOL = {"type": "function", "function": WEATHER, "strict": True}


def request(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], **fields}


def answered(text: str, tokens: int = 40) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"completion_tokens": tokens}}


def write_log(folder: Path, lines: list[Any]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def made(out: Path, name: str) -> tuple[canary.Canary, ...]:
    return canary.parse((out / f"{name}.jsonl").read_text(encoding="utf-8"), name)


@pytest.mark.parametrize(
    ("name", "prompts", "limits"),
    [
        ("proxy.jsonl", ["Weather in Oslo?", "Name three gods."], [64, 64]),
        ("batch.jsonl", ["Name three rivers.", "Name three lakes."], [200, 64]),
        ("gateway.jsonl", ["Write to ann.lee@corp.io that her order is late."], [64]),
    ],
)
def test_each_way_to_write_a_request_is_read(tmp_path: Path, name: str, prompts: list[str], limits: list[int]) -> None:
    """A request alone or under `request` or `body`, with or without its response, or ending with the answer."""
    done = import_logs([LOGS / name], tmp_path / "mine")

    imported = [one for workload in done["workloads"] for one in made(tmp_path / "mine", workload["name"])]
    by_prompt = {each.messages[-1]["content"]: each.max_tokens for each in imported}
    assert dict(zip(prompts, limits, strict=True)).items() <= by_prompt.items()


def test_a_request_is_kept_as_it_was_sent(tmp_path: Path) -> None:
    """Response format, penalties, tools, calls, names, limit and thinking are kept; the format is the expectation."""
    schema = {"type": "object", "required": ["city"]}
    fields = {
        "response_format": {"type": "json_schema", "json_schema": {"name": "place", "strict": True, "schema": schema}},
        "presence_penalty": 0.5,
        "frequency_penalty": -1,
        "repetition_penalty": 1.1,
        "logit_bias": {"50256": -100},
        "tool_choice": "auto",
        "stop": ["###"],
    }
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "name": "ann",
            "content": [{"type": "text", "text": "Where "}, {"type": "text", "text": "am I?"}],
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "Oslo"},
        {"role": "user", "content": "As JSON."},
    ]
    body = {"messages": messages, "tools": [TOOL], "max_tokens": 90, **fields}
    line = body | {"model": "org/m", "chat_template_kwargs": {"enable_thinking": False}, "temperature": 0.7}

    import_logs([write_log(tmp_path, [{"request": line, "response": answered('{"city": "Oslo"}')}])], tmp_path / "mine")

    (imported,) = made(tmp_path / "mine", "tools")
    assert fields == json.loads(json.dumps(imported.options))
    assert [TOOL] == list(imported.tools)
    assert [{**messages[0], "content": "Where am I?"}, *messages[1:]] == list(imported.messages)
    assert (64, False) == (imported.max_tokens, imported.thinking)
    assert imported.expect is not None
    assert schema == imported.expect.json_schema


def test_what_cannot_be_kept_is_said(tmp_path: Path) -> None:
    """Fields that no canary has and the sampling of the requests are counted, with lines for the SLO."""
    lines = [
        request("Say one.", temperature=0.7, user="u", seed=4, n=1, max_new_tokens=9),
        request("Say two.", temperature=0.7, n=2, reasoning_effort="low"),
        request("Say three.", functions=[WEATHER], logprobs=True),
    ]

    done = import_logs([write_log(tmp_path, lines)], tmp_path / "mine")

    assert {"n": 1, "reasoning_effort": 1, "functions": 1, "logprobs": 1} == done["lost"]
    assert {"temperature": {"0.7": 2, "not set": 1}} == done["sampling"]
    assert "[sampling]\ntemperature = 0.7\n" in import_text(done)
    assert "reasoning_effort (1 request)" in import_text(done)


def test_exact_repeats_are_one_canary_and_keep_their_weight(tmp_path: Path) -> None:
    """The same request with another limit is one canary that weighs more; one with other tools is another."""
    lines = [{"workload": "a", "request": request("Say one.", max_tokens=90 + number)} for number in range(30)]
    lines += [{"workload": "b", "request": request(f"Say {number // 2}.")} for number in range(8)]
    lines += [{"workload": "b", "request": request("Say 0.", **more)} for more in ({"tools": [TOOL]}, {"stop": "."})]

    done = import_logs([write_log(tmp_path, lines)], tmp_path / "mine")

    assert [(1, 0.75), (6, 0.25)] == [(workload["canaries"], workload["share"]) for workload in done["workloads"]]
    assert 33 == done["repeated"]
    profile = toml_file.parse((tmp_path / "mine" / "profile.toml").read_text(), "profile.toml", Profile, strict=True)
    assert [75.0, 25.0] == [profile.weight(name, "short") for name in "ab"]


REDACT = """
import pathlib, re, sys
text = sys.stdin.read()
log = pathlib.Path(sys.argv[1])
log.write_text((log.read_text() if log.exists() else "") + text + chr(0))
print(re.sub("[a-z]+@corp.io", "MAIL", text))
"""


def test_each_text_goes_through_the_users_program(tmp_path: Path) -> None:
    """Contents, names, arguments of calls and descriptions of tools; equal texts once, names of functions never."""
    function = {**WEATHER, "description": "Ask bob@corp.io for it.", "parameters": {"type": "object"}}
    call = {"type": "function", "function": {"name": "weather", "arguments": '{"to": "ann@corp.io"}'}}
    messages = [
        {"role": "system", "content": "You are eve@corp.io."},
        {"role": "user", "name": "ann@corp.io", "content": "Mail ann@corp.io."},
    ]
    tools = [{"type": "function", "function": function}]
    lines = [
        {
            "request": {"messages": [*messages, {"role": "user", "content": f"Number {number}."}], "tools": tools},
            "response": {"choices": [{"message": {"content": None, "tool_calls": [call]}}]},
        }
        for number in range(2)
    ]
    command = shlex.join([sys.executable, "-c", REDACT, str(tmp_path / "piped")])

    done = import_logs([write_log(tmp_path, lines)], tmp_path / "mine", redact_with=command)

    first, _ = made(tmp_path / "mine", "tools")
    assert ["You are MAIL.", "Mail MAIL.", "Number 0."] == [message["content"] for message in first.messages]
    assert "MAIL" == first.messages[1]["name"]
    assert "Ask MAIL for it." == first.tools[0]["function"]["description"]
    assert first.expect is not None
    assert first.expect.tool_call is not None
    assert ("weather", {"to": ["MAIL"]}) == (first.expect.tool_call.name, first.expect.tool_call.arguments)
    assert not any("corp.io" in file.read_text() for file in (tmp_path / "mine").glob("*.jsonl"))
    piped = (tmp_path / "piped").read_text().split(chr(0))
    assert len(piped) == len(set(piped)) == 8
    assert command == done["redacted_with"]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("no-such-program --fast", "there is no such program"),
        ("", "there is no such program"),
        ("sed 's/a", "No closing quotation"),
        ("false", "it ended with code 1"),
        ("sleep 9", "took longer than"),
        ("printf '\\377'", "its output is not UTF-8"),
        ("tr -d '\"'", "are no longer JSON"),
        ("true", "left nothing of a text"),
        ("yes", "it made more than"),
        ("sh -c 'sleep 9 & echo a'", "took longer than"),
    ],
)
def test_a_program_that_fails_ends_the_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, reason: str
) -> None:
    """A program that is missing, fails, hangs, or leaves something else than text: an error, and nothing is written."""
    monkeypatch.setattr(redaction, "TIMEOUT_S", 0.5 if "sleep" in command else 60.0)
    call = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    log = write_log(tmp_path, [{"messages": [*messages, {"role": "user", "content": "And now?"}]}])

    with pytest.raises(InputError) as refused:
        import_logs([log], tmp_path / "mine", redact_with=command)

    assert reason in refused.value.message
    assert refused.value.hint
    assert not (tmp_path / "mine").exists()


def test_a_line_that_no_canary_can_have_is_left_out(tmp_path: Path) -> None:
    """Images, unknown roles, calls without a name, a blank prompt, wrong options: counted, each with its reason."""
    image = [{"type": "image_url", "image_url": {"url": "data:x"}}]
    lines = [
        request("Say one."),
        request("Say two.", stop=4),
        request(" "),
        {"messages": [{"role": "user", "content": image}]},
        {"messages": [{"role": "wizard", "content": "Say three."}]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [{}]}]},
        request("Say four.", tools=[{"type": "web_search"}]),
        {"input": "Say five."},
        [1],
        {"request": "text"},
    ]

    done = import_logs([write_log(tmp_path, lines)], tmp_path / "mine")

    assert (1, 9) == (done["requests"], len(done["unusable"]))
    assert "a request with a stop that no canary can have" == done["unusable"][0]["why"]


@pytest.mark.parametrize("force", [False, True])
def test_a_log_is_not_deleted(tmp_path: Path, *, force: bool) -> None:
    """Canaries replace the sets of a folder: one that holds the log itself is refused, also with --force."""
    path = write_log(tmp_path, [request("Say one.")])
    content = path.read_bytes()

    with pytest.raises(InputError, match=path.name):
        import_logs([path], tmp_path, force=force)

    assert content == path.read_bytes()


@pytest.mark.parametrize(
    ("fields", "reply", "kind"),
    [
        ({"response_format": {"type": "json_object"}}, answered('{"a": 1}'), "json_schema"),
        ({"response_format": {"type": "json_object"}}, answered("no object"), "speed only"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}}, None, "speed only"),
        ({"structured_outputs": {"json": {"type": "object"}}}, answered('{"a": 1}'), "json_schema"),
        ({"structured_outputs": {"regex": "a+"}}, answered("aaa"), "speed only"),
        ({}, answered("a text"), "speed only"),
        ({"tools": [{"function": {"name": "f"}}]}, {"f": {"a": 1}}, "tool_call"),
        ({"tools": [{"function": {"name": "f"}}]}, {"f": {"a": 1}, "g": {}}, "speed only"),
    ],
    ids=["object", "broken object", "broken schema", "schema of vLLM", "expression", "text", "call", "unknown tool"],
)
def test_expectations_come_from_what_was_answered(
    tmp_path: Path, fields: dict[str, Any], reply: Any, kind: str
) -> None:
    """A schema that the answer kept and a call of an offered tool are expected; else speed alone is judged."""
    if reply is not None and "choices" not in reply:
        calls = [{"function": {"name": name, "arguments": json.dumps(value)}} for name, value in reply.items()]
        reply = {"choices": [{"message": {"content": None, "tool_calls": calls}}]}
    path = write_log(tmp_path, [{"request": request("Give me one.", **fields), "response": reply}])

    done = import_logs([path], tmp_path / "mine")

    assert {kind: 1} == done["workloads"][0]["expect"]


def test_a_log_without_requests_says_what_it_holds(tmp_path: Path) -> None:
    """Where nothing can be used the error has the reasons; a set is not overwritten by accident."""
    path = write_log(tmp_path, [{"custom_id": "a", "response": {}}, [1], {"workload": "w", "ttft": 1}])

    with pytest.raises(InputError) as refused:
        import_logs([path], tmp_path / "mine")
    says("canaries", "a log without requests says what it holds", refused.value.message, tmp_path=tmp_path)

    good = write_log(tmp_path, [request("Say one.")])
    import_logs([good], tmp_path / "mine")
    with pytest.raises(InputError, match="holds canaries already"):
        import_logs([good], tmp_path / "mine")
    assert 1 == import_logs([good], tmp_path / "mine", force=True)["requests"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1....", "not JSON"),
        (b'{"messages":\n[]}', "not JSON"),
        (b'{"messages": [' + b"[]," * 2_000_001 + b"[]]}", "more than 2000000 values"),
        (b"[]\n" * 101, "more than 100 lines"),
        (b"", "no line is in it"),
        (None, "does not exist"),
    ],
)
def test_a_file_that_is_no_log_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    """Another format, a document over lines, lines that would fill the memory and no file: a hint each."""
    monkeypatch.setattr(logged_request, "LINES", 100)
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InputError, match=message) as raised:
        import_logs([path], tmp_path / "mine")

    assert raised.value.hint


LIMITED = """
import resource, sys
from pathlib import Path
from gatekeeper.canaries.import_log import import_logs
from gatekeeper.core.errors import InputError
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    import_logs([Path(sys.argv[1])], Path(sys.argv[2]))
except InputError as error:
    print(error.message, "|", error.hint)
"""


@pytest.mark.whole
@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit the address space")
def test_a_log_of_lists_takes_little_memory(tmp_path: Path) -> None:
    """A line of empty lists, gigabytes once they are parsed, ends with the file, the limit and a remedy."""
    path = tmp_path / "log.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.write('{"messages": [')
        for _ in range(100):
            file.write("[]," * (2**20 // 3))
        file.write("[]]}")

    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(tmp_path / "mine")],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert (0, "") == (ended.returncode, ended.stderr)
    assert "a line longer than 64 MB" in ended.stdout
    assert str(path) in ended.stdout
    assert ended.stdout.partition("|")[2].strip()
