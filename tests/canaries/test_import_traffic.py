"""Canaries from logs of requests: every format, repeats, the mix, personal data, expectations."""

import json
import random
import stat
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.canaries.canary_text import import_text
from gatekeeper.canaries.check_set import check
from gatekeeper.canaries.conversation import UnusableError
from gatekeeper.canaries.import_traffic import import_logs
from gatekeeper.canaries.log_formats import conversations
from gatekeeper.canaries.personal_data import Replacer
from gatekeeper.canaries.proposed_expectation import propose_expectation
from gatekeeper.canaries.traffic_log import records
from gatekeeper.core import canary, toml_file
from gatekeeper.core.errors import InputError
from gatekeeper.core.slo import Profile
from gatekeeper.core.system.inputs import find_canaries, find_profile
from tests.builders.golden_words import says
from tests.builders.project_folder import ROOT

LOGS = ROOT / "tests" / "faults" / "corpus" / "traffic"
SHIPPED = ("chat", "code", "prose", "qa")


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


def read(name: str) -> list[Any]:
    conversations_read = []
    for _, record in records(LOGS / name):
        conversations_read += list(conversations(record))
    return conversations_read


WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
OSLO = {"name": "weather", "arguments": '{"city": "Oslo"}'}
ROWS: dict[str, dict[str, Any]] = {
    "functions": {
        "request": request("Weather in Oslo?", functions=[WEATHER], function_call="auto"),
        "response": {"choices": [{"message": {"role": "assistant", "content": None, "function_call": OSLO}}]},
    },
    "functions in a fine-tuning file": {
        "messages": [{"role": "user", "content": "Weather in Oslo?"}, {"role": "assistant", "function_call": OSLO}],
        "functions": [WEATHER],
    },
    "responses": {
        "request": {"input": "Weather in Oslo?", "tools": [{"type": "function", **WEATHER}], "max_output_tokens": 50},
        "response": {"output": [{"type": "reasoning"}, {"type": "function_call", "call_id": "1", **OSLO}]},
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_a_call_is_expected_however_the_api_writes_it(name: str) -> None:
    """
    Functions of the time before tools, and the Responses API, give the prompt, the tool and the call that was made.
    """
    (conversation,) = conversations(ROWS[name])

    assert not isinstance(conversation, UnusableError)
    assert ("Weather in Oslo?", "weather") == (conversation.words, conversation.tools[0]["function"]["name"])
    assert {"tool_call": {"name": "weather", "arguments": {"city": ["Oslo"]}}} == propose_expectation(conversation)


def test_a_conversation_of_the_responses_api_is_read_whole() -> None:
    """
    Instructions, earlier calls with their results, the schema, limits and counts become those of a chat request.
    """
    schema = {"type": "object", "required": ["city"]}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Where am I?"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "locate", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "Oslo"},
    ]
    output = [{"type": "message", "content": [{"type": "output_text", "text": '{"city": "Oslo"}'}]}]
    form = {"format": {"type": "json_schema", "name": "place", "schema": schema}}
    body = {"instructions": "Be brief.", "input": items, "text": form, "max_output_tokens": 90}
    record = {"body": body, "response": {"output": output, "usage": {"output_tokens": 7}}}

    (conversation,) = conversations(record)
    (cut,) = conversations({**record, "response": {"status": "incomplete", "output": output}})

    assert not isinstance(conversation, UnusableError)
    assert not isinstance(cut, UnusableError)
    assert ["system", "user", "assistant", "tool"] == [message["role"] for message in conversation.messages]
    assert "locate" == conversation.messages[2]["tool_calls"][0]["function"]["name"]
    assert (90, 7, None) == (conversation.max_tokens, conversation.answer and conversation.answer.tokens, cut.answer)
    assert {"json_schema": schema} == propose_expectation(conversation)


def test_a_record_of_the_responses_api_may_hold_both_sides(tmp_path: Path) -> None:
    """
    A stored response that repeats its input is imported as any other line.
    """
    output = [{"type": "message", "content": [{"type": "output_text", "text": "Odin, Thor, Frigg"}]}]
    log = write_log(tmp_path, [{"object": "response", "input": "Name three gods.", "output": output}])

    import_logs([log], tmp_path / "mine")

    (imported,) = made(tmp_path / "mine", "chat")
    assert "Name three gods." == imported.messages[0]["content"]


@pytest.mark.parametrize(
    ("name", "prompts", "answers"),
    [
        ("proxy.jsonl", ["Weather in Oslo?", "Name three gods."], ["", "Odin, Thor, Frigg"]),
        (
            "gateway.jsonl",
            ["Write to ann.lee@corp.io that her order is late.", "Weather in Porto?", "An order as JSON with an id."],
            ["Dear Ann, your order is late, and we are sorry for it.", "", '{"id": 7}'],
        ),
        ("batch.jsonl", ["Name three rivers.", "Name three lakes."], [None, "Garda, Como, Iseo"]),
        (
            "llama-server.log",
            ["Name three seas.", "Name three capes.", "Once upon a time"],
            ["Baltic, Black, Red", None, " there was a mill."],
        ),
        (
            "mlx_lm.server.log",  # of 0.32.2, with the little pair
            ["Name three { lakes }\n}\nplease.", "Once upon a time", "Name three hills."],
            [None, "the", None],
        ),
        ("litellm.jsonl", ["Name three moons."], ["Io, Europa, Titan"]),
        (
            "list.json",
            ["Name three metals.", "Once upon a time"],
            ["Iron, tin, lead", " there was a mill."],
        ),
        (
            "speed-bench.jsonl",
            [
                "Write a function that reverses a list.",
                "Write a function that reverses a list.",
                "Write a letter to a friend in Oslo.",
                "Sort these parts of a book.",
            ],
            [None, None, None, None],
        ),
        (
            "spans.json",
            ["Name three winds.", "sunny", "Name three islands.", "Name three hills."],
            ["Bora, Foehn, Mistral", None, "Rhodes, Elba, Skye", "Etna"],
        ),
    ],
)
def test_each_format_is_read(name: str, prompts: list[str], answers: list[str | None]) -> None:
    """
    The last message of each prompt and the recorded answer come out of every format, without being told which it is.
    """
    usable = [conversation for conversation in read(name) if not isinstance(conversation, UnusableError)]

    assert prompts == [conversation.messages[-1]["content"] for conversation in usable]
    assert answers == [None if conversation.answer is None else conversation.answer.text for conversation in usable]


def test_what_a_log_says_of_a_request_is_kept() -> None:
    """
    Workloads, limits, tools, system prompts and counted tokens come from where each format has them.
    """
    (sky,) = read("litellm.jsonl")
    winds = read("spans.json")[0]
    support, tools, _ = read("gateway.jsonl")

    assert ("astronomy", 64, 9) == (sky.workload, sky.max_tokens, sky.answer.tokens)
    assert ("system", 80, 8) == (winds.messages[0]["role"], winds.max_tokens, winds.answer.tokens)
    assert ("support", "get_weather") == (support.workload, tools.tools[0]["function"]["name"])


def test_the_proxys_kept_prompts_become_canaries(tmp_path: Path) -> None:
    """
    Workload, call and counted tokens come from the line of `--keep-prompts`; a line of live.jsonl says what it lacks.
    """
    done = import_logs([LOGS / "proxy.jsonl"], tmp_path / "mine")

    (call,) = made(tmp_path / "mine", "tools")
    assert call.expect is not None
    assert call.expect.tool_call is not None
    assert {"city": ["Oslo"]} == call.expect.tool_call.arguments
    assert ["chat", "tools"] == [workload["name"] for workload in done["workloads"]]
    assert "--keep-prompts" in done["unusable"][0]["why"]


@pytest.mark.parametrize("name", ["unknown", "default"])
def test_what_the_proxy_could_not_sort_is_sorted_by_its_kind(name: str) -> None:
    """
    `unknown` and `default` are no workloads: a request with one of them counts as tools, json or chat.
    """
    (unsorted,) = conversations({"kind": "completion", "workload": name, "request": request("Say one.")})
    (conversation,) = conversations({"workload": name, "request": request("Say one.")})

    assert not isinstance(unsorted, UnusableError)
    assert not isinstance(conversation, UnusableError)
    assert (None, name) == (unsorted.workload, conversation.workload)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_sample_mirrors_the_traffic(tmp_path: Path) -> None:
    """
    A fifth of 1,500 requests over four workloads: the mix of workloads and lengths is kept, and the figure says it.
    """
    rng = random.Random(5)
    shipped_lines = {
        name: [json.loads(line) for line in (ROOT / "canaries" / f"{name}.jsonl").open()] for name in SHIPPED
    }
    lines = []
    for name, count in zip(SHIPPED, (800, 400, 200, 100), strict=True):
        for _ in range(count):
            size = rng.choice([20, 200, 900])
            text = f"{rng.choice(shipped_lines[name])['messages'][0]['content']} {rng.randrange(10**9)} " + " ".join(
                str(rng.randrange(10**6)) for _ in range(size // 4)
            )
            lines.append({"workload": name, "request": request(text), "response": answered("word " * size, size)})

    done = import_logs([write_log(tmp_path, lines)], tmp_path / "mine", most=75)

    assert {"chat": 75, "code": 75, "prose": 75, "qa": 75} == {
        workload["name"]: workload["canaries"] for workload in done["workloads"]
    }
    assert done["mirror"]["overlap"] > 0.95
    assert done["mirror"]["prompt_difference"] < 0.05
    assert done["mirror"]["answer_difference"] < 0.05
    profile = toml_file.parse((tmp_path / "mine" / "profile.toml").read_text(), "profile.toml", Profile, strict=True)
    assert [53.33, 26.67, 13.33, 6.67] == [profile.weight(name, "short") for name in SHIPPED]


def test_near_repeats_count_as_one_prompt_and_keep_their_weight(tmp_path: Path) -> None:
    """
    The same long question with another number in it is one canary; its requests still weigh in the mix.
    """
    long = "Summarise the report on the repair of the northern harbour wall for the council, in three sentences: part "
    lines = [{"workload": "a", "request": request(f"{long * 3}{number}")} for number in range(30)]
    lines += [
        {"workload": "b", "request": request(f"What is {number} times {number * 7 + 3}?")} for number in range(10)
    ]

    done = import_logs([write_log(tmp_path, lines)], tmp_path / "mine")

    assert [(1, 0.75), (10, 0.25)] == [(workload["canaries"], workload["share"]) for workload in done["workloads"]]
    assert 29 == done["repeated"]


def test_personal_data_is_replaced_alike_everywhere(tmp_path: Path) -> None:
    """
    An address gets the same invented one in prompt, tool call and expectation; the list of them is the owner's alone.
    """
    tool = {"type": "function", "function": {"name": "mail", "parameters": {"type": "object"}}}
    call = {"function": {"name": "mail", "arguments": '{"to": "ann@corp.io", "key": 1}'}}
    reply = {"choices": [{"message": {"content": None, "tool_calls": [call]}}]}
    secrets = "Mail ann@corp.io from 10.1.2.3 with ghp_abcdefghijklmnopqrstuvwxyz0123456789, or bob@corp.io."
    path = write_log(tmp_path, [{"request": request(secrets, tools=[tool]), "response": reply}])

    done = import_logs([path], tmp_path / "mine")

    (imported,) = made(tmp_path / "mine", "tools")
    assert (
        "Mail person1@example.com from 192.0.2.1 with removed-api-key-1, or person2@example.com."
        == (imported.messages[0]["content"])
    )
    assert imported.expect is not None
    assert imported.expect.tool_call is not None
    assert {"to": ["person1@example.com"], "key": [1]} == imported.expect.tool_call.arguments
    assert {"API_KEY": 1, "EMAIL": 2, "IP_ADDRESS": 1} == done["personal_data"]
    review = tmp_path / "mine" / "review.json"
    assert 0o600 == stat.S_IMODE(review.stat().st_mode)
    assert "ann@corp.io" in review.read_text()
    assert "review.json\n" == (tmp_path / "mine" / ".gitignore").read_text()


@pytest.mark.parametrize("force", [False, True])
def test_a_log_is_not_deleted(tmp_path: Path, *, force: bool) -> None:
    """
    Canaries replace the sets of a folder: one that holds the log itself is refused, also with --force.
    """
    path = write_log(tmp_path, [request("Say one.")])
    content = path.read_bytes()

    with pytest.raises(InputError, match=path.name):
        import_logs([path], tmp_path, force=force)

    assert content == path.read_bytes()


def test_control_characters_of_a_log_steer_no_terminal(tmp_path: Path) -> None:
    """
    A prompt keeps its characters, and the file that holds it can be shown.
    """
    prompt = "Say \x1b[31mone\x9b0m \u202eno."

    import_logs([write_log(tmp_path, [request(prompt)])], tmp_path / "mine")

    (canary,) = made(tmp_path / "mine", "chat")
    assert prompt == canary.messages[0]["content"]
    for file in (tmp_path / "mine").iterdir():
        assert [] == [char for char in file.read_text() if char != "\n" and not char.isprintable()], file


LONG = "aB3dE5gH7jK9mN1pQ4sT"
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        (f"use sk-proj-{LONG}{LONG}.", "use removed-api-key-1."),
        (f"sk-ant-api03-{LONG}, hf_{LONG}{LONG}", "removed-api-key-1, removed-api-key-2"),
        ("AKIA2OGYBAH6QLWPSNXM (old)", "removed-api-key-1 (old)"),
        (f"glpat-{LONG} xoxb-1234567890-{LONG}", "removed-api-key-1 removed-api-key-2"),
        (f"key:\n{KEY}\nend", "key:\nremoved-private-key-1\nend"),
        ('password: "hunter2secret" ok', 'password: "removed-password-1" ok'),
        ("api_key=abcd1234efgh", "api_key=removed-password-1"),
        ("password = read_password(user)", "password = read_password(user)"),
        ("task-force-of-the-twenty-first-century", "task-force-of-the-twenty-first-century"),
        ("sk-learn is a package, and api_key is a name", "sk-learn is a package, and api_key is a name"),
    ],
)
def test_secrets_that_the_detector_does_not_know_are_replaced(text: str, replaced: str) -> None:
    """
    Keys of well-known services, private keys, and what is called a password; words that only look alike stay.
    """
    assert replaced == Replacer().clean(text, "chat-001")


@pytest.mark.parametrize(
    ("fields", "reply", "kind"),
    [
        ({"response_format": {"type": "json_object"}}, answered('{"a": 1}'), "json_schema"),
        ({"response_format": {"type": "json_object"}}, answered("no object"), "speed only"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "x"}}}}, None, "speed only"),
        ({}, answered("a text"), "speed only"),
        ({"tools": [{"function": {"name": "f"}}]}, {"f": {"a": 1}}, "tool_call"),
        ({"tools": [{"function": {"name": "f"}}]}, {"f": {"a": 1}, "g": {}}, "speed only"),
    ],
    ids=["object", "broken object", "broken schema", "text", "call", "unknown tool"],
)
def test_expectations_come_from_what_was_answered(
    tmp_path: Path, fields: dict[str, Any], reply: Any, kind: str
) -> None:
    """
    A schema that the answer kept and a call of an offered tool are expected; anything else is judged by speed alone.
    """
    if reply is not None and "choices" not in reply:
        calls = [{"function": {"name": name, "arguments": json.dumps(value)}} for name, value in reply.items()]
        reply = {"choices": [{"message": {"content": None, "tool_calls": calls}}]}
    path = write_log(tmp_path, [{"request": request("Give me one.", **fields), "response": reply}])

    done = import_logs([path], tmp_path / "mine", by="none")

    assert {kind: 1} == done["workloads"][0]["expect"]


def test_a_benchmark_becomes_a_workload_for_each_category(tmp_path: Path) -> None:
    """
    Each prompt of SPEED-Bench is a canary of its category, also one that repeats another; its later turns are counted.
    """
    done = import_logs([LOGS / "speed-bench.jsonl"], tmp_path / "mine", replace_personal=False)

    assert {"coding": 2, "low_entropy": 1, "writing": 1} == {
        workload["name"]: workload["canaries"] for workload in done["workloads"]
    }
    assert [3] == [reason["count"] for reason in done["unusable"]]
    assert "speed-bench.jsonl:3" == done["unusable"][0]["first"]
    (letter,) = made(tmp_path / "mine", "writing")
    assert (1, None) == (len(letter.messages), letter.max_tokens)


def test_requests_beside_a_benchmark_still_count_as_repeats(tmp_path: Path) -> None:
    """
    A repeated request adds to its own first prompt, not to a benchmark's prompt of the same workload.
    """
    prompt = {"question_id": "1", "category": "chat", "turns": ["Name three gods of old."]}
    path = write_log(tmp_path, [prompt, request("Say a number."), prompt, request("Say a number.")])

    done = import_logs([path], tmp_path / "mine")

    assert [(3, 4)] == [(workload["canaries"], workload["requests"]) for workload in done["workloads"]]


def test_a_benchmark_that_is_not_filled_in_is_refused(tmp_path: Path) -> None:
    """
    One placeholder ends the import before anything is written: half a benchmark is another benchmark.
    """
    placeholder = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH"
    rows = [{"question_id": str(n), "category": "qa", "turns": [text]} for n, text in enumerate(["Why?", placeholder])]

    with pytest.raises(InputError, match=r"log\.jsonl:2: "):
        import_logs([write_log(tmp_path, rows)], tmp_path / "mine")

    assert not (tmp_path / "mine").exists()


def test_a_log_without_prompts_says_what_it_holds(tmp_path: Path) -> None:
    """
    Where nothing can be used, the reasons and the first places are in the error; a set is not overwritten by accident.
    """
    path = write_log(tmp_path, [{"custom_id": "a", "response": {}}, {"workload": "w", "ttft": 1}])

    with pytest.raises(InputError) as refused:
        import_logs([path], tmp_path / "mine")
    says("canaries", "a log without prompts says what it holds", refused.value.message)

    good = write_log(tmp_path, [request("Say one.")])
    import_logs([good], tmp_path / "mine")
    with pytest.raises(InputError, match="holds canaries already"):
        import_logs([good], tmp_path / "mine")
    assert 1 == import_logs([good], tmp_path / "mine", force=True)["requests"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PAR1....", "Parquet"),
        ('{"prompt": "x"}'.encode("utf-16"), "UTF-16"),
        (b"(\xb5/\xfd....", "zstd"),
        (b"[1, 2", "not JSON"),
        (b"\x1f\x8b\x08broken", "cannot read"),
        (None, "does not exist"),
    ],
)
def test_a_file_that_is_no_log_is_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    """
    Parquet, UTF-16, zstd, a broken document, a broken archive and no file at all end with one line and a hint.
    """
    path = tmp_path / "log"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(InputError, match=message) as raised:
        import_logs([path], tmp_path / "mine")

    assert raised.value.hint


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without the extra the command says which package is missing and how to install it.
    """
    path = write_log(tmp_path, [request("Say one.")])
    monkeypatch.setitem(sys.modules, "datafog_core", None)

    with pytest.raises(InputError, match="datafog-core") as raised:
        import_logs([path], tmp_path / "mine")
    assert "gatekeeper-slo[canaries]" in raised.value.hint
    assert 1 == import_logs([path], tmp_path / "mine", replace_personal=False)["requests"]

    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(InputError, match="datasketch"):
        import_logs([path], tmp_path / "other", replace_personal=False)


@pytest.mark.parametrize("by", ["workload", "model", "file", "none"])
def test_workloads_are_separated_as_asked(tmp_path: Path, by: Any) -> None:
    """
    By the name in the log, else the kind of request; by model; by file; or all in one.
    """
    lines = [
        request("Say one.", model="org/a", workload="My Load!"),
        request("Say two.", model="b", tools=[{"function": {"name": "f"}}]),
    ]

    done = import_logs([write_log(tmp_path, lines)], tmp_path / "mine", by=by)

    names = {"workload": ["my-load", "tools"], "model": ["a", "b"], "file": ["log"], "none": ["all"]}
    assert names[by] == [workload["name"] for workload in done["workloads"]]
    assert Counter({2: 1}) == Counter([done["requests"]])


def test_names_of_workloads_and_files_are_cleaned(tmp_path: Path) -> None:
    """
    A workload that a log calls by a mail address gives it to no file, category, profile or report.
    """
    (tmp_path / "logs").mkdir()
    path = tmp_path / "logs" / "bob@firma.ch.jsonl"
    lines = [request("Say one.", workload="anna.wl@firma.ch"), {"custom_id": "a", "response": {}}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    done = import_logs([path], tmp_path / "mine")
    by_file = import_logs([path], tmp_path / "by-file", by="file")

    assert ["person1-example.com"] == [workload["name"] for workload in done["workloads"]]
    assert ["person1-example"] == [workload["name"] for workload in by_file["workloads"]]
    for file in [*(tmp_path / "mine").iterdir(), *(tmp_path / "by-file").iterdir()]:
        assert "firma" not in file.name
        assert file.name == "review.json" or "firma" not in file.read_text()


LIMITED = """
import resource, sys
from pathlib import Path
from gatekeeper.canaries.import_traffic import import_logs
from gatekeeper.core.errors import InputError
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
try:
    import_logs([Path(sys.argv[1])], Path(sys.argv[2]))
except InputError as error:
    print(error.message, "|", error.hint)
"""


@pytest.mark.whole
@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not limit the address space")
@pytest.mark.parametrize(
    ("begin", "unit", "end", "message"),
    [
        # These take a minute together.
        pytest.param("[", "[],", "[]]", "more than 2000000 records", marks=pytest.mark.nightly),
        pytest.param("[[", "[],", "[]]]", "record 1: more than 2000000 values", marks=pytest.mark.nightly),
        pytest.param(
            '[{"messages": [', "{},", "{}]}]", "record 1: more than 2000000 values", marks=pytest.mark.nightly
        ),
        ("[[", "[", "", "record 1: more than 2000000 values"),
        pytest.param('[{"content": "', "abc", '"}]', "record 1: longer than 64 MB", marks=pytest.mark.nightly),
        ('{"messages": [', "[],", "[]]}", "a line longer than 64 MB"),
        ('{"messages":\n[', "1,", "1]}", "record 1: longer than 64 MB"),
        ("", "\n[],", "\n", "more than 2000000 lines"),
    ],
    ids=["lists", "a list of lists", "objects", "depth", "a text", "a line", "an object", "lines"],
)
def test_a_log_of_lists_takes_little_memory(tmp_path: Path, begin: str, unit: str, end: str, message: str) -> None:
    """
    A hundred megabytes of empty lists, gigabytes once they are parsed, end with the record, the limit and a remedy.
    """
    path = tmp_path / "log.json"
    with path.open("w", encoding="utf-8") as file:
        file.write(begin)
        for _ in range(100):
            file.write(unit * (2**20 // len(unit)))
        file.write(end)

    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), str(tmp_path / "mine")],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert (0, "") == (ended.returncode, ended.stderr)
    assert message in ended.stdout
    assert str(path) in ended.stdout
    assert ended.stdout.partition("|")[2].strip()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"messages": [' + "[]," * 2_000_001 + "[]]}", "more than 2000000 values"),
        ("[1, 2", "the list does not end"),
        ("[1] [2]", "something follows the list"),
        ('[{"a": 1}, {"b" 2}]', "record 2: not JSON"),
    ],
    ids=["values", "no end", "more", "broken"],
)
def test_a_log_that_cannot_be_read_names_the_record(tmp_path: Path, line: str, message: str) -> None:
    """
    Too many values in a line, and a list that is broken, are said with their place.
    """
    path = tmp_path / "log.jsonl"
    path.write_text(line)

    with pytest.raises(InputError, match=message):
        import_logs([path], tmp_path / "mine")


def test_a_list_of_records_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Records that lie across the pieces of a file, with brackets, quotes and escapes in their texts, come out whole.
    """
    monkeypatch.setattr("gatekeeper.canaries.traffic_log._CHUNK", 7)
    rows = [request('a "quoted" [text], {with} \\'), {"n": [1, [2, {}], "]"]}, 3, [], "é,"]
    path = tmp_path / "log.json"
    path.write_text("\ufeff" + json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    empty = tmp_path / "empty.json"
    empty.write_text("[ ]")

    assert list(enumerate(rows, start=1)) == list(records(path))
    assert [] == list(records(empty))


def test_the_lines_for_an_slo_work_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    What is printed for an SLO file names files that are there, whichever folder the import ran in.
    """
    monkeypatch.chdir(tmp_path)
    log = write_log(tmp_path, [{"messages": [{"role": "user", "content": "Name three gods."}]}])

    printed = import_text(import_logs([log], Path("set")))

    table = tomllib.loads(printed.partition("[[workload]]")[1] + printed.partition("[[workload]]")[2])
    assert [tmp_path / "set" / "chat.jsonl"] == [
        find_canaries(workload["canaries"], Path("/elsewhere")) for workload in table["workload"]
    ]
    assert find_profile(table["soak"]["profile"], Path("/elsewhere")).is_file()


def turns_of(name: str, count: int) -> list[dict[str, Any]]:
    """Return the requests of a client that sends the whole conversation each time, each with its answer."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    requests = []
    for turn in range(count):
        messages = [*messages, {"role": "user", "content": f"{name}, question {turn}: write to ann@example.org"}]
        answer = {"role": "assistant", "content": f"{name}, answer {turn}"}
        requests.append({"request": {"messages": messages}, "response": {"choices": [{"message": answer}]}})
        messages = [*messages, answer]
    return requests


@pytest.mark.nightly
def test_conversations_are_kept_whole(tmp_path: Path) -> None:
    """
    With --conversations each turn is a canary whose prompt begins the next one, the longest conversations first, and
    what is personal is replaced alike in all turns. A set of turns is checked as a set, not as repeats.
    """
    rows = [*turns_of("Red", 3), *turns_of("Blue", 5), {"request": request("alone"), "response": answered("ok")}]
    random.Random(1).shuffle(rows)
    log = write_log(tmp_path, rows)

    document = import_logs([log], tmp_path / "out", conversations_most=2)

    turns = made(tmp_path / "out", "chat-conversations")
    assert {"file": "chat-conversations.jsonl", "count": 2, "turns": 8} == document["workloads"][0]["conversations"]
    assert [1, 2, 3, 4, 5, 1, 2, 3] == [turn.turn for turn in turns]
    assert [2, 4, 6, 8, 10] == [len(turn.messages) for turn in turns[:5]]
    assert "Blue" in turns[0].messages[1]["content"]
    assert not any("ann@example.org" in str(turn.messages) for turn in turns)
    assert turns[4].messages[:8] == turns[3].messages
    problems = check([tmp_path / "out" / "chat-conversations.jsonl"], limit=4096)["problems"]
    assert not {problem["kind"] for problem in problems} & {"repeats", "same begin"}


def test_a_conversation_that_went_two_ways_is_kept_once(tmp_path: Path) -> None:
    """
    The beginning belongs to the way with more turns; without --conversations there is no such set.
    """
    rows = turns_of("Red", 4)
    branch = {
        **rows[1]["request"],
        "messages": [*rows[0]["request"]["messages"], *turns_of("Green", 2)[1]["request"]["messages"][2:]],
    }
    log = write_log(tmp_path, [*rows, {"request": branch, "response": answered("ok")}])

    import_logs([log], tmp_path / "out", conversations_most=9)
    import_logs([log], tmp_path / "without")

    assert [1, 2, 3, 4] == [turn.turn for turn in made(tmp_path / "out", "chat-conversations")]
    assert not list((tmp_path / "without").glob("*-conversations.jsonl"))
