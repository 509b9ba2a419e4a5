"""The dialects against recorded protocols: requests, answers, command lines and errors."""

import json
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.analysis.metrics.server_claims import claimed_rounds
from gatekeeper.backends import all_facts, open_backend, own_drafts
from gatekeeper.backends.counters import by_position, samples, spec_decode, speculative_decoding, total
from gatekeeper.backends.dialect import Counters, Start, StatedWindow
from gatekeeper.backends.dialects import dialect_of, running_dialect, sglang
from gatekeeper.backends.listening_process import PortTakenError
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.core.backend_registry import SERVERS
from gatekeeper.core.errors import InputError
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Setting, setting
from gatekeeper.core.slo.subject_table import Subject
from tests.backends.conftest import ROOT, make_request
from tests.builders.golden_words import lines_with, says
from tests.builders.servers import (
    ACCEPTED,
    DRAFTED,
    OUTPUT,
    PROMPT,
    PROTOCOLS,
    USAGE,
    VERIFIED,
    WORDS,
    RecordedServer,
    delta,
    event,
    finish,
    mtplx_settings,
)

MODELS = {"big": ROOT / "models" / "little-target", "small": ROOT / "models" / "little-draft"}
PLAIN = setting(draft=None)
RECORDED = sorted(PROTOCOLS)


def draft_of(name: str) -> str:
    drafts = set() if name == "lmstudio" else own_drafts(name)
    return min(drafts - {"suffix", "ngram", "dspark", "as-served"}, default="small")


def drafting(name: str) -> Setting:
    knob = "block_size" if name in {"dflash-mlx", "mlx-vlm"} else "num_draft_tokens"
    knobs = {knob: 5 if knob == "block_size" else 4} if knob in dialect_of(name).knobs else {}
    return setting(draft=draft_of(name), **knobs)


def opened(name: str, **written: Any) -> ServerBackend:
    subject = Subject.model_validate({"backend": name, "target": "big", "drafts": [draft_of(name)], **written})
    backend = open_backend(subject, models=MODELS, base=ROOT, logs=ROOT / "logs")
    assert isinstance(backend, ServerBackend)
    return backend


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[tuple[str, RecordedServer, RecordedServer]]:
    name = request.param
    with (
        RecordedServer(PROTOCOLS[name], drafting=True) as fast,
        RecordedServer(PROTOCOLS[name], drafting=False) as plain,
    ):
        yield name, fast, plain


every_system = pytest.mark.parametrize("servers", RECORDED, indirect=True)
Servers = tuple[str, RecordedServer, RecordedServer]


def both(servers: Servers) -> tuple[Answer, Answer]:
    """Return an answer of each arm, drafting first."""
    name, fast, plain = servers
    where = {"url": fast.url} | ({} if dialect_of(name).switches else {"plain_url": f"{plain.url}/v1"})
    backend = opened(name, **where)
    which = drafting(name)
    with backend.start(which) as speculating, backend.start(PLAIN) as plainly:
        return speculating.answer(make_request("prose", which)), plainly.answer(make_request("prose", PLAIN))


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_the_page_of_servers_says_what_each_shows(name: str) -> None:
    """docs/servers.md says how plain decoding is reached, and if acceptance is seen, as the dialect does."""
    dialect, page = dialect_of(name), (ROOT / "docs" / "servers.md").read_text()
    about = next(entry for entry in page.split("\n- ") if entry.startswith(f"`{name}`"))

    assert dialect.switches == ("per request" in about.split(";")[0])
    assert bool(dialect.sight & (Sight.ROUNDS | Sight.CLAIMED_ROUNDS)) != ("not acceptance" in about)


REPORTS_DRAFTED = {"lmstudio", "mtplx", "dflash-mlx", "mlx-vlm", "vllm-mlx", "rapid-mlx", "vllm", "sglang"}
REPORTS_ROUNDS = {"mtplx", "dflash-mlx", "mlx-vlm", "rapid-mlx", "vllm", "sglang", "ddtree"}
JOINS_ROUNDS = {"mtplx", "dflash-mlx", "rapid-mlx", "vllm", "sglang"}
"""Servers that write the tokens of a round at once."""


@every_system
def test_each_server_is_asked_in_its_words_and_its_answer_is_understood(servers: Servers) -> None:
    """Of both arms the answer, the counts, the claims, the arrivals and the two requests are as recorded."""
    name, fast, plain = servers
    answers = both(servers)

    for answer in answers:
        text = "".join(WORDS[: OUTPUT - (name == "mlx-omni")])
        assert (None, text, "stop") == (answer.fault, answer.text, answer.finish)
        assert (PROMPT, OUTPUT, None) == (answer.prompt_tokens, answer.output_tokens, answer.rounds)
    claims = answers[0].claims
    assert (DRAFTED if name in REPORTS_DRAFTED else None) == claims.drafted
    assert (ACCEPTED if name in REPORTS_DRAFTED | {"ddtree"} else None) == claims.accepted
    assert (VERIFIED if name in REPORTS_ROUNDS else None) == claims.rounds
    assert not answers[1].claims.drafted
    if name in REPORTS_DRAFTED:
        rounds = claimed_rounds(answers[0])
        assert rounds is not None
        assert (DRAFTED, ACCEPTED, VERIFIED) == (rounds.drafted, rounds.accepted, rounds.rounds)

    expected = {"ddtree": 1, "mlx-omni": OUTPUT - 1}.get(name, VERIFIED if name in JOINS_ROUNDS else OUTPUT)
    assert expected == len(answers[0].arrivals)
    assert {1 if expected >= OUTPUT - 1 else None} == {arrival.tokens for arrival in answers[0].arrivals}

    switched, drafts = dialect_of(name).switches, PROTOCOLS[name].drafts
    bodies = [body for _, _, body in (fast.requests if switched else [*fast.requests, *plain.requests])]
    if drafts(bodies[-1]) is not None:
        # Of each arm the ping first, then the answer; a server for both arms has a ping of each first.
        order = [True, False, True, False] if switched else [True, True, False, False]
        assert order == [drafts(body) for body in bodies]
    assert all("seed" not in {*body, *body.get("options", {})} and body["messages"] for body in bodies)


@pytest.mark.parametrize("servers", ["mtplx"], indirect=True)
def test_a_setting_that_is_not_applied_is_a_fault(servers: Servers) -> None:
    """MTPLX may lower the depth by itself: that answer belongs to another setting."""
    name, fast, _ = servers
    which = setting(draft="mtp", num_draft_tokens=7)

    with opened(name, url=fast.url).start(which) as server:
        answer = server.answer(make_request("prose", which))

    says("backends", "a setting that is not applied is a fault", answer.fault)


@pytest.mark.parametrize(
    ("depth", "settings", "fault"),
    [
        (4, mtplx_settings("none"), None),
        (4, mtplx_settings("streak"), "a depth that adapts"),
        (None, mtplx_settings("streak"), None),
        (4, {}, None),
        (4, "no JSON", None),
    ],
)
def test_a_depth_that_adapts_is_no_fixed_one(depth: Any, settings: Any, fault: str | None) -> None:
    """MTPLX may be set to adapt the depth that a request names: a fault."""
    protocol = PROTOCOLS["mtplx"]._replace(documents={"/v1/mtplx/settings": lambda _: settings})
    which = setting(draft="mtp", num_draft_tokens=depth)

    with RecordedServer(protocol, drafting=True) as server, opened("mtplx", url=server.url).start(which) as running:
        answer = running.answer(make_request("prose", which))

    sent = server.requests[-1][2]
    assert depth == sent.get("depth")
    if fault is None:
        assert answer.fault is None
    else:
        says("backends", fault, answer.fault)


def test_a_plain_answer_of_mtplx_in_another_mode_is_at_fault() -> None:
    """A server that ignores the mode of a request says so in its stats, also where it counts nothing."""

    def pieces(request: Any, drafting: bool) -> Iterator[bytes]:
        del request, drafting
        yield event(delta(content="a"))
        yield event(finish(usage=dict(USAGE), mtplx_stats={"generation_mode": "mtp"}))

    protocol = PROTOCOLS["mtplx"]._replace(pieces=pieces)
    with RecordedServer(protocol, drafting=False) as server, opened("mtplx", url=server.url).start(PLAIN) as running:
        answer = running.answer(make_request("prose", PLAIN))

    says("backends", "a plain arm in the mode of drafts is at fault", answer.fault)


@pytest.mark.parametrize("servers", ["ddtree"], indirect=True)
def test_sampling_is_refused_where_it_would_not_happen(servers: Servers) -> None:
    """DDTree always decodes greedily, so an SLO that samples is refused."""
    name, fast, plain = servers
    backend = opened(name, url=fast.url, plain_url=plain.url)

    with backend.start(PLAIN) as server, pytest.raises(InputError, match="decodes greedily"):
        server.answer(make_request("prose", PLAIN, temperature=0.7))

    assert Sight.ARRIVALS not in backend.sight


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program of every system's name on PATH."""
    for name in SERVERS:
        for word in dialect_of(name).program[:1]:
            path = tmp_path / word
            path.write_text("#!/bin/sh\necho 1.2.3\n")
            path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path


BIG, SMALL = str(MODELS["big"]), str(MODELS["small"])
COMMANDS = {
    "mlx-omni": ("mlx-omni-server HERE", "mlx-omni-server HERE"),
    "mtplx": (
        "mtplx serve --model BIG HERE --stream-interval 1 --ssd-session-cache off",
        "mtplx serve --model BIG HERE --stream-interval 1 --depth 4 --ssd-session-cache off",
    ),
    "dflash-mlx": (
        (
            "dflash serve --model BIG HERE --verify-mode off --fastpath-max-tokens 0 --draft SMALL "
            "--no-prefix-cache --prompt-cache-size 0"
        ),
        (
            "dflash serve --model BIG HERE --verify-mode dflash --fastpath-max-tokens 0 --draft SMALL "
            "--verify-len-cap 5 --no-prefix-cache --prompt-cache-size 0"
        ),
    ),
    "mlx-vlm": (
        "mlx_vlm.server --model BIG HERE",
        "mlx_vlm.server --model BIG HERE --draft-model SMALL --draft-block-size 5",
    ),
    "vllm-mlx": (
        "vllm-mlx serve BIG HERE --stream-interval 1 --continuous-batching --disable-prefix-cache",
        ("vllm-mlx serve BIG HERE --stream-interval 1 --continuous-batching --enable-mtp --disable-prefix-cache"),
    ),
    "rapid-mlx": (
        "rapid-mlx serve BIG HERE --stream-interval 1 --no-spec-decode --disable-prefix-cache",
        (
            "rapid-mlx serve BIG HERE --stream-interval 1 --speculative-config "
            """'{"method": "mtp", "num_speculative_tokens": 4, "disable_auto_k": true}' --disable-prefix-cache"""
        ),
    ),
    "vllm": (
        "vllm serve BIG HERE --no-enable-prefix-caching",
        (
            """vllm serve BIG HERE --speculative-config '{"method": "mtp", "num_speculative_tokens": 4}' """
            "--no-enable-prefix-caching"
        ),
    ),
}


def line(written: str) -> tuple[str, ...]:
    """Return a command line, its models and its place filled in."""
    words = {"BIG": (BIG,), "SMALL": (SMALL,), "HERE": ("--host", "127.0.0.1", "--port", "8123")}
    return tuple(word for part in shlex.split(written) for word in words.get(part, (part,)))


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_command_lines_of_each_server(name: str) -> None:
    """Each arm's command line is written out: the draft, its length, and the prompt cache switched off."""
    backend = opened(name)

    lines = [backend.command(which, 8123, cache=False) for which in (PLAIN, drafting(name))]

    assert [line(written) for written in COMMANDS[name]] == lines
    assert "1.2.3" == backend.versions()[name]


def test_all_options_of_vllm_are_read(tmp_path: Path) -> None:
    """`vllm serve --help` names groups of options alone, so its options are read from `--help=all`."""
    flag = "--per-request-spec-decode-metrics"
    program = tmp_path / "vllm"
    program.write_text(f'#!/bin/sh\n[ "$2" = --help=all ] && echo "  {flag}" || echo "Config Groups"\n')
    program.chmod(0o755)
    backend = opened("vllm", program=[str(program), "serve"], drafts=["mtp"])

    assert flag in backend.command(setting(draft="mtp"), 1, cache=True)
    assert flag not in backend.command(PLAIN, 1, cache=True)


@pytest.mark.parametrize(
    ("histogram", "accepted"), [([0, 0, 1, 1, 1], (3, 3, 2, 1)), ([1, 0, 1, 1], ()), ([0, 0, 3], ()), ("no", ())]
)
def test_a_histogram_is_read_where_it_adds_up(histogram: object, accepted: tuple[int, ...]) -> None:
    """Counts of rounds by accepted tokens become counts by position, unless the other counts deny them."""
    metrics = {"num_draft_tokens": 12, "num_accepted_draft_tokens": 9, "num_spec_steps": 3}

    claims = speculative_decoding({**metrics, "acceptance_histogram": histogram})

    assert (12, 9, 3) == (claims["drafted"], claims["accepted"], claims["rounds"])
    assert accepted == claims.get("accepted_by_position", ())


@pytest.mark.parametrize("name", ["mlx-vlm", "rapid-mlx", "vllm", "openai"])
def test_claims_are_read_by_their_shape(name: str) -> None:
    """Any server's acceptance is seen in the common shapes: `timings`, `metrics`, or OpenAI's details."""
    claims_of: dict[str, Any] = {
        "vllm": {"metrics": {"generation_time_ms": 240.0, "speculative_decoding": {
            "num_draft_tokens": DRAFTED, "num_accepted_draft_tokens": ACCEPTED, "num_spec_steps": VERIFIED,
        }}},
        "openai": {"completion_tokens_details": {"accepted_prediction_tokens": 9, "rejected_prediction_tokens": 3}},
    }  # fmt: skip

    def spoken(request: Any, drafting: bool) -> Iterator[bytes]:
        for piece in PROTOCOLS[name].pieces(request, drafting):
            chunk = json.loads(piece[6:]) if piece.startswith(b"data: {") else {}
            if name in claims_of and "usage" in chunk:
                zeros = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
                more = claims_of[name] if drafting else {"completion_tokens_details": zeros}
                chunk = chunk | more if "metrics" in more else {**chunk, "usage": {**chunk["usage"], **more}}
                piece = b"data: " + json.dumps(chunk).encode() + b"\n\n"  # noqa: PLW2901
            yield piece

    protocol = PROTOCOLS[name]._replace(pieces=spoken)
    with RecordedServer(protocol, drafting=True) as fast, RecordedServer(protocol, drafting=False) as slow:
        backend = opened("openai", url=fast.url, plain_url=slow.url)
        with backend.start(drafting("openai")) as speculating, backend.start(PLAIN) as plain:
            answers = [
                speculating.answer(make_request("prose", drafting("openai"))),
                plain.answer(make_request("prose", PLAIN)),
            ]

    rounds = [claimed_rounds(answer) for answer in answers]
    assert (None, None) == (answers[0].fault, answers[1].fault)
    assert rounds[0] is not None
    assert (DRAFTED, ACCEPTED, VERIFIED) == (rounds[0].drafted, rounds[0].accepted, rounds[0].rounds)
    assert not answers[1].claims.drafted
    assert (0.24 if name in {"vllm", "mlx-vlm"} else None) == answers[0].claims.decode_seconds


def test_the_command_lines_of_sglang() -> None:
    """A chain of 4 tokens is 5 a round with the target's own; a look-up has no steps, and no file."""
    start = partial(Start, Subject.model_validate({"backend": "sglang", "target": BIG}), BIG)
    rest: dict[str, Any] = {"cache": False, "program": ("python",), "help": str, "place": str}

    plain, model, look_up = (
        " ".join(sglang.argv(start(draft, {"num_draft_tokens": 4}, 8123, **rest))) for draft in (None, SMALL, "ngram")
    )

    assert "--speculative" not in plain
    assert ("--disable-radix-cache",) == sglang.DIALECT.cache_off
    chain = "--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5"
    says(
        "backends",
        "the command lines of sglang (1)",
        lines_with("--speculative-algorithm", model),
        SMALL=SMALL,
        chain=chain,
    )
    says("backends", "the command lines of sglang (2)", lines_with("--speculative-algorithm", look_up))


def test_knobs_of_the_slo_find_their_place() -> None:
    """A generic server's knobs go where the SLO says: onto the command line, or into a field of the request."""
    knobs = {"num_draft_tokens": {"argv": ["--n", "{value}"]}, "temperature": {"field": "temp"}}
    command = ["sh", "serve.sh", "{target}", "{draft}", "{port}"]
    backend = opened("openai", command=command, plain_command=command[:3] + command[4:], knobs=knobs)
    which = setting(draft="small", num_draft_tokens=6, temperature=0.5)

    words = backend.command(which, 8123, cache=False)

    assert ("sh", "serve.sh", BIG, SMALL, "8123", "--n", "6") == words
    with RecordedServer(PROTOCOLS["openai"], drafting=True) as server:
        attached = opened("openai", url=server.url, plain_url=server.url, knobs=knobs)
        with attached.start(which) as running:
            running.answer(make_request("prose", which))
        assert 0.5 == server.requests[-1][2]["temp"]


def test_a_key_comes_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key goes into the header, and into no record, version or error; without the variable nothing is started."""
    secret = "sk-very-secret-0123456789"
    written = {"url": "http://127.0.0.1:1", "plain_url": "http://127.0.0.1:1", "api_key_env": "GK_TEST_KEY"}
    with pytest.raises(InputError, match="GK_TEST_KEY"):
        opened("openai", **written)
    monkeypatch.setenv("GK_TEST_KEY", secret)

    with RecordedServer(PROTOCOLS["openai"], drafting=False) as server:
        backend = opened("openai", **{**written, "url": server.url, "plain_url": server.url})
        with backend.start(PLAIN) as running:
            answer = running.answer(make_request("prose", PLAIN))

    assert f"Bearer {secret}" == server.requests[-1][1]["Authorization"]
    assert secret not in repr((answer, backend.versions()))


def test_nothing_listens() -> None:
    """A url without a server is an error with what to do, instead of a soak of failed answers."""
    backend = opened("openai", url="http://127.0.0.1:9", plain_url="http://127.0.0.1:9")

    with pytest.raises(InputError, match="no connection") as refused:
        backend.start(PLAIN)

    assert "start it" in refused.value.hint


def test_a_command_must_take_the_port() -> None:
    """On a fixed port another server may already listen, and would be measured instead."""
    with pytest.raises(InputError, match=r"has no \{port\}"):
        opened("openai", command=["sh", "-c", "serve"], plain_command=["sh", "-c", "serve {port}"])


def test_counters_are_differences() -> None:
    """A counter's growth is one answer's share; a missing one gives None, and a restart voids all of them."""
    before, after = Counters(10, 5, 2, (3, 2)), Counters(22, 14, 5, (6, 4, 1))

    assert Counters(12, 9, 3, (3, 2, 1)) == after.since(before)
    assert Counters() == Counters(1, 1, 1, (1,)).since(before)
    assert Counters() == Counters().since(before)
    assert Counters() == Counters(12, 4, 3, (3, 1)).since(before)
    assert Counters() == Counters(12, 6, 3, (2, 4)).since(before)


def test_prometheus_is_read_by_name_and_position() -> None:
    """Counters are summed over their labels, other names are ignored, and positions with a gap are dropped."""
    text = (
        "# TYPE a_total counter\n"
        'a_total{engine="0"} 3.0\na_total{engine="1"} 4\na_total_created{engine="0"} 1.7e9\nbroken NaN\n'
        'pos_total{position="1"} 2\npos_total{position="0"} 5\nhole_total{position="1"} 2\n'
    )

    counters = samples(text, "")

    assert (7, None, None) == (total(counters, "a_total"), total(counters, "b_total"), total(counters, "broken"))
    assert ((5, 2), ()) == (by_position(counters, "pos_total"), by_position(counters, "hole_total"))


@pytest.mark.parametrize("line", ['{model="a', "{position=0} 4", " twelve"], ids=repr)
def test_counters_that_are_not_valid_are_none(line: str) -> None:
    """A label may hold spaces, braces and escapes; a line that is cut off voids its counter."""
    name = "vllm:spec_decode_num_draft_tokens_total"
    odd = f'{name}{{model="a, \\"}}\\" b",engine="0"}} 7\nanother_metric{{broken 1\n'

    valid, broken = spec_decode(odd, "vllm:"), spec_decode(f"{odd}{name}{line}\n", "vllm:")

    assert valid is not None
    assert (7, None) == (valid.drafted, broken)


NEW_DIALECT = """
from gatekeeper.backends.dialect import Dialect

DIALECT = Dialect(name="brand-new", install="", draft_hint="", health="/v1/models", model_name="listed")
"""


def test_a_new_server_is_one_file_and_one_registry_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with a DIALECT and its entry in the registry: the SLO and its schema know the name, and it answers."""
    (tmp_path / "brand_new_dialect.py").write_text(NEW_DIALECT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(SERVERS, "brand-new", "brand_new_dialect")

    with RecordedServer(PROTOCOLS["openai"], drafting=False) as server:
        backend = opened("brand-new", url=server.url, plain_url=server.url)
        with backend.start(PLAIN) as running:
            answer = running.answer(make_request("prose", PLAIN))

    assert ("brand-new", None, OUTPUT) == (backend.name, answer.fault, answer.output_tokens)
    assert "brand-new" in Subject.model_json_schema()["properties"]["backend"]["enum"]
    assert "brand-new" in {facts.name for facts in all_facts()}
    assert StatedWindow() == running_dialect("brand-new").window


def test_a_port_that_was_taken_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another program that took the port, also the next one, is never measured, nor asked anything."""
    program = "import http.server, sys; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), None)"
    command = [sys.executable, "-c", program, "{port}"]
    with RecordedServer(PROTOCOLS["openai"], drafting=False) as server:
        monkeypatch.setattr("gatekeeper.backends.server_backend.free_port", lambda: int(server.url.rsplit(":", 1)[1]))
        subject = Subject.model_validate(
            {"backend": "openai", "target": "big", "drafts": ["small"], "command": command, "plain_command": command}
        )
        backend = open_backend(subject, models=MODELS, base=tmp_path, logs=tmp_path)

        with pytest.raises(PortTakenError):
            backend.start(PLAIN)

    assert [] == server.requests
