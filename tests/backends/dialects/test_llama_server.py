"""The llama-server backend: the real program where it is installed, and a fake one with its quirks everywhere."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.analysis.metrics.server_claims import claimed_rounds
from gatekeeper.backends.server_backend import ServerBackend, open_server
from gatekeeper.backends.server_requests import Server
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import Answer, setting
from gatekeeper.core.slo.subject_table import Subject
from tests.backends.conftest import DRAFTING, PLAIN, ROOT, make_request
from tests.builders import real_programs
from tests.builders.conversations import held, resumed
from tests.builders.golden_words import says
from tools import write_gguf

FAKE = ROOT / "tests" / "backends" / "fake_llama_server.py"
WORKLOADS = ("json", "code", "list", "prose", "random", "tools")
Open = Callable[..., ServerBackend]
ONE_THREAD = ["--threads", "1", "--ctx-size", "2048", "--parallel", "1"]
"""The little pair is too small for two threads: they wait for each other, for seconds on a busy machine."""


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The little models as GGUF."""
    folder = tmp_path_factory.mktemp("gguf")
    write_gguf.main([str(folder)])
    return {name: folder / f"{name}.gguf" for name in write_gguf.NAMES}


def opened(models: dict[str, Path], logs: Path, **written: Any) -> ServerBackend:
    models_named = {"target": "little-target", "drafts": ["little-draft", "little-draft-lite"], "start_timeout": "20 s"}
    subject = Subject.model_validate({"backend": "llama-server", **models_named, **written})
    return open_server(subject, models=models, base=logs, logs=logs)


@pytest.mark.parametrize(
    ("args", "maps"),
    [
        ([], True),
        (["--reasoning-format", "none"], True),
        (["--no-mmap"], False),
        (["--mlock", "--threads", "4"], False),
        (["--load-mode", "none"], False),
        (["--mlock", "--load-mode", "auto"], True),
        (["-lm", "mmap+mlock"], False),
        (["--no-mmap", "--load-mode", "mmap"], True),
    ],
)
def test_weights_are_a_mapped_file_unless_an_option_says_otherwise(
    models: dict[str, Path], tmp_path: Path, args: list[str], maps: bool
) -> None:
    """Options of old builds and of new ones; other options have values that are spelled alike."""
    assert maps == opened(models, tmp_path, args=args).maps_weights


# The real program


@pytest.fixture(scope="session")
def llama_server() -> str:
    """The real llama-server."""
    return real_programs.llama_server()


@pytest.fixture
def real(llama_server: str, models: dict[str, Path], tmp_path: Path) -> Open:
    return lambda **written: opened(
        models, tmp_path / "logs", **{"program": [llama_server], "args": ONE_THREAD, **written}
    )


@pytest.fixture(scope="module")
def running(
    llama_server: str, models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, Server]]:
    """The real server of each arm."""
    backend = opened(models, tmp_path_factory.mktemp("logs"), program=[llama_server], args=ONE_THREAD)
    with backend.start(PLAIN) as plain, backend.start(DRAFTING) as drafting:
        yield plain, drafting


@pytest.mark.parametrize("name", ["json", "prose"])
def test_the_real_server_goes_on_from_the_beginning_of_an_answer(running: tuple[Server, Server], name: str) -> None:
    """Read as a prompt, the beginning of its own answer is followed by the rest of it, with log-probabilities."""
    request = make_request(name, PLAIN, max_tokens=24)
    full_answer = running[0].request_scores(request)
    assert full_answer is not None
    assert len(full_answer.tokens) > 8

    rest = running[0].continue_answer(request, full_answer.first(4), len(full_answer.tokens) - 4)

    assert rest is not None
    assert full_answer.tokens[4:] == rest.tokens[: len(full_answer.tokens) - 4]
    assert full_answer.logprobs[4:] == pytest.approx(rest.logprobs[: len(full_answer.tokens) - 4], abs=0.3)
    assert all(len(likely) > 1 for likely in rest.likeliest)


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_real_arms_answer_the_same_and_their_claims_add_up(running: tuple[Server, Server], name: str) -> None:
    """Drafting changes no greedy answer; tokens are counted where they arrive, and the claims account for each."""
    plain, drafting = (
        server.answer(make_request(name, which)) for server, which in zip(running, (PLAIN, DRAFTING), strict=True)
    )

    assert (None, None) == (plain.fault, drafting.fault)
    assert (plain.text, plain.output_tokens) == (drafting.text, drafting.output_tokens)
    for answer in (plain, drafting):
        counted = [arrival.tokens or 0 for arrival in answer.arrivals]
        assert answer.output_tokens is not None
        silent = answer.output_tokens - sum(counted)
        # The token that ends an answer has no text, and what closes a tool call is no part of one.
        assert silent >= 0 if answer.tool_calls else silent in {0, 1}
        assert min(counted) >= 1
    claims = drafting.claims
    assert None not in {claims.drafted, claims.accepted, claims.rounds, drafting.output_tokens}
    assert drafting.output_tokens - claims.accepted - claims.rounds in {0, 1, 2}  # type: ignore[operator]
    assert claims.accepted == sum(claims.accepted_by_position)
    assert claims.drafted >= claims.accepted  # type: ignore[operator]
    assert (0, 0, None) == (plain.claims.drafted, plain.claims.accepted, plain.claims.rounds)


@pytest.mark.mlx
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_real_answers_are_those_of_mlx(running: tuple[Server, Server], shared_backend: Any, name: str) -> None:
    """The converted target gives the answers of the original."""
    of_mlx = shared_backend("mlx").system(PLAIN).answer(make_request(name, PLAIN))

    of_llama = running[0].answer(make_request(name, PLAIN))

    calls = [[call["function"] for call in answer.tool_calls] for answer in (of_mlx, of_llama)]
    assert (of_mlx.text, calls[0]) == (of_llama.text, calls[1])


def test_the_real_cache_is_off_unless_deployed_so(real: Open) -> None:
    """A repeated prompt is not cached, except where the server was started as deployed."""
    backend, request = real(), make_request("json", PLAIN)
    with backend.start(PLAIN) as system:
        cold = [system.answer(request).claims.cached_tokens for _ in range(2)]
    with backend.start(PLAIN, cache=True) as system:
        warm = [system.answer(request).claims.cached_tokens for _ in range(2)]

    nothing = [0, 0]
    assert nothing == cold
    assert (warm[1] or 0) > 0


def test_a_real_server_that_ignores_its_draft_is_seen(real: Open) -> None:
    """-md alone loads the draft and drafts nothing, which the claims show."""
    words = (*real().command(PLAIN, 0, cache=False)[:1], "--model", "{target}", "--port", "{port}")
    backend = real(program=None, command=[*words, "-md", "{draft}"], plain_command=list(words))
    with backend.start(setting(draft="little-draft")) as system:
        answer = system.answer(make_request("json", setting(draft="little-draft")))

    assert (None, 0) == (answer.fault, answer.claims.drafted)


def test_the_real_program_combines_methods_and_speaks_a_common_shape(real: Open) -> None:
    """The real llama-server drafts by a look-up and a model together, and the openai dialect reads what it claims."""
    program = real().command(PLAIN, 0, cache=False)[0]
    words = [program, "--model", "{target}", "--port", "{port}", *ONE_THREAD]
    drafting = [*words, "--spec-type", "ngram-mod,draft-simple", "-md", "{draft}"]
    backend = real(backend="openai", program=None, args=[], command=drafting, plain_command=words)

    with backend.start(DRAFTING) as system:
        answer = system.answer(make_request("json", DRAFTING))

    rounds = claimed_rounds(answer)
    assert answer.fault is None
    assert rounds is not None
    assert rounds.drafted >= rounds.accepted > 0


@pytest.mark.parametrize(
    "which",
    [
        setting(draft="little-draft", num_draft_tokens=4, draft_p_min=0.9),
        setting(draft="little-draft", num_draft_tokens=4, draft_n_min=4, draft_p_min=0.9),
        setting(draft="little-draft-lite", num_draft_tokens=2),
        setting(draft="ngram-simple", num_draft_tokens=4),
        setting(draft="ngram-mod", num_draft_tokens=8, draft_n_min=2),
    ],
)
def test_every_knob_is_one_of_the_real_program(real: Open, which: Any) -> None:
    """The real server takes every knob of a draft and of a look-up, and none changes the answer."""
    backend = real(drafts=["little-draft", "little-draft-lite", "ngram-simple", "ngram-mod"])
    with backend.start(PLAIN) as plain, backend.start(which) as drafting:
        answers = [server.answer(make_request("prose", at)) for server, at in ((plain, PLAIN), (drafting, which))]

    assert (None, None) == (answers[0].fault, answers[1].fault)
    assert answers[0].text == answers[1].text
    claims = answers[1].claims
    drafted = -1 if claims.drafted is None else claims.drafted
    assert 0 <= drafted <= (dict(which)["num_draft_tokens"] * (answers[1].output_tokens or 0))


# The fake program


@pytest.fixture
def fake(models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open the backend on a fake llama-server of a build, which is on PATH."""

    def get(build: str = "new", *, manners: dict[str, Any] | None = None, **written: Any) -> ServerBackend:
        folder = tmp_path / f"bin-{build}"
        folder.mkdir(exist_ok=True)
        (folder / "llama-server").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" {build} "$@"\n')
        (folder / "llama-server").chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
        monkeypatch.setenv("FAKE_LLAMA", json.dumps(manners or {}))
        return opened(models, tmp_path / "logs", **written)

    return get


def answer_of(backend: ServerBackend, which: Any, **more: Any) -> Answer:
    with backend.start(which) as system:
        return system.answer(make_request("prose", which, **more))


@pytest.mark.parametrize("build", ["new", "old"])
def test_any_build_is_started_with_its_own_flags(fake: Open, build: str) -> None:
    """With the flags of any build, the draft proposes as many tokens per round as the knob says."""
    answer = answer_of(fake(build), setting(draft="little-draft", num_draft_tokens=5, draft_p_min=0.5, draft_n_min=1))

    assert (None, (10, 8)) == (answer.fault, (answer.claims.drafted, answer.claims.accepted))


def test_the_command_line_of_a_new_build(fake: Open, models: dict[str, Path]) -> None:
    """Both arms have a type, the same chunks and width of the cache, and none in memory; arguments come last."""
    backend = fake(args=["-c", "512"], prefill_chunk=1024, kv_bits=8)

    plain, drafting = (backend.command(which, 81, cache=False) for which in (PLAIN, DRAFTING))

    shared = ("--host", "127.0.0.1", "--port", "81", "--metrics", "--jinja", "--offline", "--cache-ram", "0")
    cache = ("--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--flash-attn", "on")
    read = ("--batch-size", "1024", "--ubatch-size", "1024", *cache)
    model = ("llama-server", "--model", str(models["little-target"]), *shared)
    draft = ("--spec-type", "draft-simple", "--model-draft", str(models["little-draft"]), "--spec-draft-n-max", "4")
    assert (*model, *read, "--spec-type", "none", "-c", "512") == plain
    assert (*model, *read, *draft, "-c", "512") == drafting
    assert "--cache-ram" not in backend.command(PLAIN, 81, cache=True)


def test_claims_come_with_the_answer_and_rounds_from_counters(fake: Open) -> None:
    """Drafted and accepted come with the answer, rounds and positions from the difference of two counters."""
    with fake().start(DRAFTING) as system:
        first, second = (system.answer(make_request("prose", DRAFTING)).claims for _ in range(2))

    expected = (10, 7, 3, (3, 2, 2, 0))
    for claims in (first, second):
        assert expected == (claims.drafted, claims.accepted, claims.rounds, claims.accepted_by_position)
    assert (0.002, 0.005) == (first.prompt_seconds, first.decode_seconds)


@pytest.mark.parametrize(
    ("manners", "concurrency", "because"),
    [
        ({"counted": 3}, 1, "tokens of other requests are counted too"),
        ({"metrics": [2_000_000, 1_000_000, 900_000]}, 1, "six digits are too few for a difference"),
        ({"pass_alone": 3}, 1, "passes without a draft are not counted"),
        ({}, 2, "a difference of counters belongs to several answers"),
    ],
)
def test_counters_that_are_not_this_answers_own_give_no_rounds(
    fake: Open, manners: dict[str, Any], concurrency: int, because: str
) -> None:
    """Where the counters hold other requests or are incomplete, rounds are unknown, and the answer's claims kept."""
    which = setting(draft="little-draft", num_draft_tokens=4, concurrency=concurrency)

    claims = answer_of(fake(manners=manners), which).claims

    assert claims.rounds is None, because
    assert (claims.drafted or 0) > (claims.accepted or 0) > 0


def test_a_draft_that_is_left_alone_claims_nothing(fake: Open) -> None:
    """`timings` without draft_n mean that none was drafted."""
    words = ["llama-server", "--model", "{target}", "--host", "127.0.0.1", "--port", "{port}"]
    answer = answer_of(fake(command=[*words, "-md", "{draft}"], plain_command=words), DRAFTING)

    assert (0, 0) == (answer.claims.drafted, answer.claims.accepted)


def test_a_plain_arm_that_drafts_is_at_fault(fake: Open) -> None:
    """Plain decoding that drafts is no baseline."""
    words = ["llama-server", "--model", "{target}", "--host", "127.0.0.1", "--port", "{port}"]
    fault = answer_of(fake(plain_command=[*words, "--spec-type", "ngram-simple"]), PLAIN).fault

    says("backends", "a plain arm that drafts is at fault", fault)


@pytest.mark.parametrize(
    ("which", "draft_method", "method"),
    [
        (setting(draft="little-draft"), None, "draft-simple"),
        (setting(draft="little-draft"), "draft-eagle3", "draft-eagle3"),
        (setting(draft="ngram-simple", num_draft_tokens=8), None, "ngram-simple"),
        (setting(draft="draft-mtp"), None, "draft-mtp"),
        (setting(draft="draft-mtp", num_draft_tokens=3), "ngram-mod,draft-mtp", "ngram-mod,draft-mtp"),
    ],
)
def test_the_type_follows_from_the_draft(fake: Open, which: Any, draft_method: str | None, method: str) -> None:
    """A file drafts, a look-up and heads inside the target need none; `draft_method` names another type, or two."""
    written = {} if draft_method is None else {"draft_method": draft_method}
    command = fake(drafts=["little-draft", "ngram-simple", "draft-mtp"], **written).command(which, 81, cache=False)

    assert method == command[command.index("--spec-type") + 1]
    assert ("--model-draft" in command) == (dict(which)["draft"] == "little-draft")
    if "," in method:
        assert "3" == command[command.index("--spec-draft-n-max") + 1]


LOOK_UP = setting(draft="ngram-simple", draft_p_min=0.5)


@pytest.mark.parametrize(
    ("written", "which", "message"),
    [
        *(
            ({"args": [word, "x"]}, PLAIN, rf"subject\.args: {word} ")
            for word in ("--spec-type", "-md", "--model-draft", "--spec-draft-n-max", "--draft-max")
        ),
        ({"args": ["--spec-synth-len", "3"]}, PLAIN, "invents acceptance"),
        ({"drafts": ["ngram-simple"]}, LOOK_UP, "draft_p_min"),
        ({"draft_method": "draft-eagle"}, DRAFTING, "draft-eagle"),
        ({"draft_method": "ngram-mop,draft-simple"}, DRAFTING, "ngram-mop"),
        ({"build": "old", "draft_method": "draft-eagle3"}, DRAFTING, "has no --spec-type"),
        ({"program": ["true"]}, PLAIN, "--help"),
    ],
)
def test_what_cannot_be_certified_is_refused_before_the_start(
    fake: Open, written: dict[str, Any], which: Any, message: str
) -> None:
    """Flags that draft in both arms, invented acceptance, a knob or a method that is none, a program that is none."""
    with pytest.raises(InputError, match=message) as refused:
        fake(**written).command(which, 81, cache=False)

    assert refused.value.hint


def test_what_both_arms_would_read_is_refused(fake: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reads variables as flags; it loads GGUF files alone, no folder; and it has to be there."""
    with pytest.raises(InputError, match="not on PATH"):
        fake(program=["no-such-llama-server"]).versions()
    backend = fake()
    backend._models = {**backend._models, "little-target": ROOT / "models" / "little-target"}
    with pytest.raises(InputError, match=r"is not a \.gguf file"):
        backend.command(PLAIN, 81, cache=False)
    monkeypatch.setenv("LLAMA_ARG_SPEC_TYPE", "ngram-simple")
    with pytest.raises(InputError, match="LLAMA_ARG_SPEC_TYPE"):
        fake().command(PLAIN, 81, cache=False)


def test_turns_of_a_conversation_resume_the_turn_before(real: Open) -> None:
    """As deployed, each later turn of either arm finds the prompt of the turn before in the server's cache."""
    answers = held(real(prompt_cache="as-deployed"), DRAFTING)

    assert {None} == {answer.answer.fault for answer in answers}
    assert {"plain": [True] * 2, "candidate": [True] * 2} == resumed(answers)
