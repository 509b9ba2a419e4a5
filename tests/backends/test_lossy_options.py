"""Lossy speculation is refused by what it does, wherever and however it is written; look-alikes pass."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.backends import open_backend
from gatekeeper.backends.listening_process import find_process
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.core.errors import InputError
from gatekeeper.core.records import Answer, setting
from gatekeeper.core.slo.subject_table import Subject
from tests.backends.conftest import ROOT, make_request
from tests.builders.golden_words import says
from tests.builders.servers import PROTOCOLS, Protocol, RecordedServer, Request, event, usage

MODELS = {"big": ROOT / "models" / "little-target", "small": ROOT / "models" / "little-draft"}
FLY = '{"method": "draft_model", "model": "small", "rejection_sample_method": "fly"}'
NESTED = '{"a": [{"speculative_config": {"synthetic_acceptance_rates": [0.9, 0.8]}}]}'
LISTENS = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
server = HTTPServer(("127.0.0.1", int(sys.argv[1])), BaseHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
"""


def opened(backend: str, logs: Path = ROOT / "logs", **written: Any) -> ServerBackend:
    subject = Subject.model_validate({"backend": backend, "target": "big", "drafts": ["small"], **written})
    server = open_backend(subject, models=MODELS, base=ROOT, logs=logs)
    assert isinstance(server, ServerBackend)
    return server


LOSSY = [
    ("vllm", ["--speculative-config", FLY]),
    ("vllm", [f"--speculative-config={FLY}"]),
    ("vllm", [f"--speculative_config={FLY}"]),
    ("vllm", ["--speculative-conf", FLY]),
    ("vllm", ["-sc", FLY]),
    ("vllm", ["--speculative-config.rejection_sample_method", "fly"]),
    ("vllm", ["--speculative-config.rejection_sample_method=fly"]),
    ("vllm", ["--speculative_config.rejection-sample-method", "FLY"]),
    ("vllm", ["--speculative-config.rejection_sample_method", "synthetic"]),
    ("vllm", ["--speculative-config.rejection_sample_method", "a-method-of-next-year"]),
    ("vllm", ["--speculative-config", "{'rejection_sample_method': 'fly'}"]),
    ("vllm", ["--speculative-config", NESTED]),
    ("vllm", ["--speculative-config.synthetic_acceptance_rates+", "0.9"]),
    ("vllm", ["--speculative-config.synthetic_acceptance_length=3.2"]),
    ("vllm", ["--typical-acceptance-sampler-posterior-threshold", "0.1"]),
    ("vllm", ["--spec-decoding-acceptance-method", "typical_acceptance_sampler"]),
    ("vllm", ["--spec-decoding-acc", "typical_acceptance_sampler"]),
    ("vllm", ["--speculative-config", '{"posterior_alpha": 0.3}']),
    ("sglang", ["--speculative-accept-threshold-single", "0.3"]),
    ("sglang", ["--speculative-accept-threshold-acc=0.99"]),
    ("sglang", ["--speculative_accept_threshold_acc", "0.5"]),
    ("sglang", ["--speculative-accept-threshold-s", "0.5"]),
    ("sglang", ["--speculative-accept-threshold-single", "nan"]),
    ("vllm-mlx", ["--mtp-optimistic"]),
    ("vllm-mlx", ["--mtp-opt"]),
    ("vllm-mlx", ["--mtp_optimistic", "--port", "1"]),
    ("vllm-mlx", ["--specprefill"]),
    ("vllm-mlx", ["--specprefill-draft-model", "small"]),
    ("vllm-mlx", ["--specprefill-d=small"]),
    ("rapid-mlx", ["--pflash", "auto"]),
    ("rapid-mlx", ["--pflash=always"]),
    ("rapid-mlx", ["--mtp-optimistic"]),
    ("rapid-mlx", ["--num-draft-tokens", "4"]),
    ("rapid-mlx", ["--draft-m=small"]),
    ("llama-server", ["--spec-synth-len", "3"]),
    ("openai", ["--speculative-config", FLY]),
    ("openai", ["--pflash", "auto"]),
    ("openai", ["--spec-decode-acceptance-length", "3.78"]),
    ("openai", ["--use-relaxed-acceptance-for-thinking"]),
    ("vllm-mlx", ["--speculative-prefill-min-tokens", "128"]),
    ("vllm", ["--speculative-config", '{"speculative_config": "{\\"rejection_sample_method\\": \\"fly\\"}"}']),
]
HARMLESS = [
    ("vllm", ["--speculative-config", '{"rejection_sample_method": "standard", "model": "fly"}']),
    ("vllm", ["--speculative-config", '{"rejection_sample_method": "block"}']),
    ("vllm", ["--speculative-config", '{"synthetic_acceptance_rates": null}']),
    ("vllm", ["--speculative-config.rejection_sample_method", "strict"]),
    ("vllm", ["--speculative-config.rejection_sample_method=probabilistic"]),
    ("vllm", ["--served-model-name", "fly", "--chat-template", "rejection_sample_method: fly"]),
    ("vllm", ["--spec-decoding-acceptance-method", "rejection_sampler"]),
    ("vllm", ["synthetic_acceptance_length"]),
    ("sglang", ["--speculative-accept-threshold-single", "1.0"]),
    ("sglang", ["--speculative-accept-threshold-acc=1"]),
    ("sglang", ["--speculative-algorithm", "EAGLE", "--sp-size", "2"]),
    ("openai", ["--no-relaxed-acceptance", "--acceptance-length-threshold", "2"]),
    ("vllm-mlx", ["--mtp-num-draft-tokens", "1", "--system", "never use --specprefill or --pflash auto"]),
    ("rapid-mlx", ["--pflash", "off", "--pflash-threshold", "1000"]),
    ("llama-server", ["--alias", "spec-synth-len"]),
    ("openai", ["--mtp", "--draft-model", "small", "--num-draft-tokens", "4", "--spec", "on"]),
]


@pytest.mark.parametrize(("backend", "args"), LOSSY, ids=lambda args: args if isinstance(args, str) else " ".join(args))
def test_every_spelling_is_refused(backend: str, args: list[str]) -> None:
    """As an option with a space or `=`, in JSON, as a dotted key, abbreviated, with `-` or `_`: refused in `args`."""
    with pytest.raises(InputError, match=r"subject\.args sets ") as refused:
        opened(backend, args=args, command=["server", "{port}"], plain_command=["server", "{port}"])

    assert refused.value.hint.startswith("remove ")


@pytest.mark.parametrize(
    ("backend", "args"), HARMLESS, ids=lambda args: args if isinstance(args, str) else " ".join(args)
)
def test_what_only_looks_like_it_passes(backend: str, args: list[str]) -> None:
    """The lossless values of the same options, and their names and values elsewhere, are accepted."""
    backend_ = opened(backend, args=args, command=["server", "{port}"], plain_command=["server", "{port}"])

    assert backend == backend_.name


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("command", ["vllm", "serve", "--port", "{port}", "--speculative-config", FLY]),
        ("command", ["sh", "-c", f"exec vllm serve --port {{port}} --speculative-config '{FLY}'"]),
        (
            "command",
            ["bash", "-lc", "cd x && vllm serve {port} --speculative-config.rejection_sample_method=fly; true"],
        ),
        ("command", ["ssh", "mini", "vllm serve --port {port} --speculative-config.rejection_sample_method fly"]),
        ("plain_command", ["vllm", "serve", "{port}", "--speculative-config.rejection_sample_method", "fly"]),
        ("program", ["vllm", "serve", "--speculative-config.rejection_sample_method=fly"]),
    ],
)
def test_a_command_is_read_like_args(key: str, words: Any) -> None:
    """Options in a command, in a shell script inside it and in the program are found, and the error names the key."""
    with pytest.raises(InputError) as refused:
        opened("vllm", **{key: words})
    says("backends", "a command is read like args", refused.value.message, key=key)


@pytest.mark.parametrize(
    "words",
    [
        ["env", "SGLANG_SIMULATE_ACC_LEN=3.5", "python", "-m", "sglang.launch_server", "{port}"],
        ["sh", "-c", "SIMULATE_ACC_LEN=3.5 python -m sglang.launch_server --port {port}"],
        ["sh", "-c", "export SGLANG_SIMULATE_ACC_METHOD=match-expected; python -m sglang.launch_server --port {port}"],
        ["docker", "run", "-e", "SGLANG_SIMULATE_ACC_LEN=3.5", "sglang", "{port}"],
        ["docker", "run", "--env=SGLANG_SIMULATE_ACC_LEN=3.5", "sglang", "{port}"],
        ["docker", "run", "-eSGLANG_SIMULATE_ACC_LEN=3.5", "sglang", "{port}"],
        ["env", "-SSGLANG_SIMULATE_ACC_LEN=3.5 python -m sglang.launch_server --port {port}"],
        ["python", "-c", "import os; os.environ['SGLANG_SIMULATE_ACC_LEN'] = '3.5'; serve({port})"],
    ],
)
def test_a_variable_in_a_command_is_found(words: list[str]) -> None:
    """A variable that a command sets is refused like one that is inherited."""
    with pytest.raises(InputError, match=r"SIMULATE_ACC_\w+ = \S+, ") as refused:
        opened("sglang", command=words)

    assert "subject.command sets " in refused.value.message


@pytest.mark.parametrize(
    ("backend", "name", "value", "refused"),
    [
        ("sglang", "SGLANG_SIMULATE_ACC_LEN", "3.5", True),
        ("sglang", "SIMULATE_ACC_LEN", "2", True),
        ("sglang", "SGLANG_SIMULATE_ACC_METHOD", "match-expected", True),
        ("sglang", "SGLANG_SIMULATE_ACC_LEN", "-1.0", False),
        ("sglang", "SGLANG_SIMULATE_ACC_LEN", "", False),
        ("sglang", "SGLANG_SIMULATE_ACC_LEN", "0.0", False),
        ("sglang", "SGLANG_NGRAM_FORCE_GREEDY_VERIFY", "False", False),
        ("sglang", "SGLANG_SIMULATE_UNIFORM_EXPERTS", "0", False),
        ("vllm", "SGLANG_SIMULATE_ACC_LEN", "3.5", False),
        ("llama-server", "LLAMA_ARG_SPEC_SYNTH_LEN", "3", True),
    ],
)
def test_an_inherited_variable_is_refused(
    monkeypatch: pytest.MonkeyPatch, backend: str, name: str, value: str, refused: bool
) -> None:
    """What a server would inherit is refused, unless the value switches it off or it is another server's."""
    monkeypatch.setenv(name, value)

    if not refused:
        opened(backend)
        return
    with pytest.raises(InputError, match=f" sets {name} = {value}, ") as error:
        opened(backend)
    assert f"unset {name}" in error.value.hint


@pytest.mark.parametrize(
    "knob",
    [
        {"argv": ["--speculative-accept-threshold-single", "{value}"]},
        {"field": "speculative_accept_threshold_acc"},
    ],
)
def test_a_knob_that_sets_it_is_refused(knob: dict[str, Any]) -> None:
    """A knob of the SLO's own that sets a lossy option would sweep it: refused, as an option or a field of requests."""
    with pytest.raises(InputError, match=r"subject\.knobs\.draft_p_min"):
        opened("sglang", knobs={"draft_p_min": knob})


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("speculative-config:\n  method: ngram\n  rejection_sample_method: fly\n", True),
        ("speculative-config: {rejection_sample_method: fly}\n", True),
        ("speculative-config:\n  synthetic_acceptance_rates:\n    - 0.9\n", True),
        ("served-model-name: fly\n# rejection_sample_method: fly\n", False),
    ],
)
def test_a_configuration_file_is_read(tmp_path: Path, text: str, refused: bool) -> None:
    """Options may be in the file that --config names: they are refused there, with its name."""
    (tmp_path / "vllm.yaml").write_text(text)
    args = ["--config", str(tmp_path / "vllm.yaml")]

    if not refused:
        opened("vllm", args=args)
        return
    with pytest.raises(InputError, match=r"vllm\.yaml, named in "):
        opened("vllm", args=args)


@pytest.mark.parametrize("option", ["--conf", "--config-file", "--speculative-config", "--env-file"])
def test_any_option_that_names_a_file_of_options_is_followed(tmp_path: Path, option: str) -> None:
    """Abbreviated, called otherwise, JSON in a file, or a file of variables."""
    (tmp_path / "file").write_text('{"speculative_accept_threshold_acc": 0.9}\nSGLANG_SIMULATE_ACC_LEN=3\n')

    with pytest.raises(InputError) as refused:
        opened("sglang", args=[option, str(tmp_path / "file")])
    says("backends", "any option that names a file of options is followed (1)", refused.value.message)
    (tmp_path / "file").write_text("# a comment: 1\nexport SGLANG_SIMULATE_ACC_LEN=3\n")
    with pytest.raises(InputError) as refused:
        opened("sglang", args=[option, str(tmp_path / "file")])
    says("backends", "any option that names a file of options is followed (2)", refused.value.message)


def test_json_in_a_variable_of_a_script_is_read() -> None:
    """A script may keep the JSON in a variable; a comment in it sets nothing."""
    script = f"CONFIG='{FLY}'; exec vllm serve --port {{port}} --speculative-config \"$CONFIG\""
    harmless = "# rejection_sample_method: fly is not for us\nexec vllm serve --port {port}"

    opened("vllm", command=["sh", "-c", harmless])
    with pytest.raises(InputError) as refused:
        opened("vllm", command=["sh", "-c", script])
    says("backends", "json in a variable of a script is read", refused.value.message)


def test_a_variable_that_verifies_greedily_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """SGLang's n-gram look-up then ignores the temperature."""
    monkeypatch.setenv("SGLANG_NGRAM_FORCE_GREEDY_VERIFY", "True")

    with pytest.raises(InputError) as refused:
        opened("sglang")
    says("backends", "a variable that verifies greedily is refused", refused.value.message)


# Servers that run


@contextmanager
def running(*words: str, **variables: str) -> Iterator[str]:
    """Start a server whose command line and environment hold these; yield its address."""
    command = [sys.executable, "-c", LISTENS, "0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("backend", "words", "variables", "option"),
    [
        ("vllm", ("--speculative-config", FLY), {}, r"the command line of process \d+ sets rejection_sample_method"),
        ("sglang", (), {"SIMULATE_ACC_LEN": "3"}, r"the environment of process \d+ sets SIMULATE_ACC_LEN = 3"),
        ("openai", ("--pflash=always",), {}, r"the command line of process \d+ sets --pflash = always"),
    ],
)
def test_a_running_server_shows_how_it_was_started(
    backend: str, words: tuple[str, ...], variables: dict[str, str], option: str
) -> None:
    """A server that is only attached to is refused by its own command line or environment, drafting or plain."""
    with running(*words, **variables) as lossy, running() as lossless:
        for url, plain_url in ((lossy, lossless), (lossless, lossy)):
            with pytest.raises(InputError, match=option) as refused:
                opened(backend, url=url, plain_url=plain_url).check_running()
            says("backends", "a running server shows how it was started", refused.value.hint.rpartition(", ")[2])
        opened(backend, url=lossless, plain_url=lossless).check_running()


def test_a_worker_of_a_running_server_leads_to_its_options() -> None:
    """The socket may be held by a worker of multiprocessing, whose parent has the options."""
    parent = (
        "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1], '0', 'multiprocessing']))"
    )
    command = [sys.executable, "-c", parent, LISTENS, "--pflash", "auto"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        worker = find_process(url)
        assert worker is not None
        try:
            with pytest.raises(InputError) as refused:
                opened("openai", url=url, plain_url=url).check_running()
            says(
                "backends", "a worker of a running server leads to its options", refused.value.message, pid=process.pid
            )
        finally:
            os.kill(worker.pid, signal.SIGKILL)


@pytest.mark.parametrize(("threshold", "refused"), [(0.3, True), (1.0, False)])
def test_sglang_tells_a_threshold_that_was_set_while_it_runs(threshold: float, refused: bool) -> None:
    """/set_internal_state changes the thresholds of a running server; its /server_info shows them."""
    document = {"internal_states": [{"speculative_accept_threshold_single": threshold}], "version": "0.5.23"}
    protocol = PROTOCOLS["sglang"]._replace(documents={"/server_info": lambda _: document})
    with RecordedServer(protocol, drafting=True) as server:
        backend = opened("sglang", url=server.url, plain_url=server.url)
        if not refused:
            backend.check_running()
            return
        with pytest.raises(InputError) as refusal:
            backend.check_running()
        says("backends", "sglang tells a threshold that was set while it runs", refusal.value.message)


def test_a_script_that_starts_a_lossy_server_is_refused_after_its_start(tmp_path: Path) -> None:
    """The options are in a script that the SLO names: the process that it started shows them."""
    script = tmp_path / "serve"
    (tmp_path / "server.py").write_text(LISTENS)
    script.write_text(f'#!/bin/sh\n"{sys.executable}" "{tmp_path}/server.py" "$1" --pflash auto\n')
    script.chmod(0o755)
    command = [str(script), "{port}"]
    backend = opened("openai", tmp_path / "logs", command=command, plain_command=command)

    with pytest.raises(InputError, match="--pflash = auto"):
        backend.start(setting(draft="small"))


# What answers show


def answered(backend: str, chunk: dict[str, Any]) -> Answer:
    """Return the plain answer of a recorded server whose usage chunk holds *chunk*."""
    protocol_known = PROTOCOLS[backend]

    def pieces(request: Request, drafting: bool) -> Iterator[bytes]:
        for piece in protocol_known.pieces(request, drafting):
            yield event(usage(**chunk)) if piece.startswith(b"data: ") and b'"choices": []' in piece else piece

    protocol = Protocol(protocol_known.path, pieces)
    with RecordedServer(protocol, drafting=False) as server:
        plain = setting(draft=None)
        with opened(backend, url=server.url, plain_url=server.url).start(plain) as running_server:
            return running_server.answer(make_request("prose", plain))


ENGAGED = {"specprefill_engaged": True, "specprefill_original_tokens": 900, "specprefill_selected_tokens": 300}


@pytest.mark.parametrize(
    ("backend", "chunk", "fault"),
    [
        (
            "vllm-mlx",
            {"generation_metadata": ENGAGED},
            "not lossless: the server dropped 600 of 900 tokens of the prompt (specprefill_engaged)",
        ),
        ("vllm-mlx", {"generation_metadata": {**ENGAGED, "specprefill_engaged": False}}, None),
        (
            "rapid-mlx",
            {"metrics": {"prompt_compression": {"original_tokens": 900, "kept_tokens": 180}}},
            "not lossless: the server dropped 720 of 900 tokens of the prompt (prompt_compression)",
        ),
        (
            "rapid-mlx",
            {"metrics": {"prompt_compression": {"original_tokens": "x"}}},
            "not lossless: the server dropped tokens of the prompt (prompt_compression)",
        ),
        ("rapid-mlx", {"metrics": {"prompt_compression": None}}, None),
    ],
)
def test_an_answer_to_a_part_of_the_prompt_is_a_fault(backend: str, chunk: dict[str, Any], fault: str | None) -> None:
    """A server that says it dropped prompt tokens answered another prompt: the answer is at fault."""
    assert fault == answered(backend, chunk).fault
