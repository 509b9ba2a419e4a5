"""Every parser of foreign bytes: whatever comes in, it returns a value that can be used, or raises its one error.

The examples in `corpus/NAME` are what the parser is made for; each is cut, doubled and filled with what has broken a
parser before. `tools/fuzz_parsers.py` does the same for as long as one likes, guided by coverage where Atheris is.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from gatekeeper.backends.counters import spec_decode
from gatekeeper.backends.http.chat_answer import read_answer
from gatekeeper.backends.http.stream import RawResponse
from gatekeeper.backends.models import artifacts, gguf, model_stores
from gatekeeper.backends.scripted.script import read_script
from gatekeeper.backends.worker_backend import worker_protocol
from gatekeeper.canaries.import_log import propose_expectation
from gatekeeper.canaries.logged_request import UnusableError, read_log, read_request
from gatekeeper.core import canary, parse, policy, slo, toml_file, units
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.records import Answer, Generation, Role
from gatekeeper.core.system import inputs, record_files
from gatekeeper.core.system.files import HashCache
from gatekeeper.host import linux
from gatekeeper.host.host_lock import Holder
from gatekeeper.host.macos import (
    facts,
    ioreg,
    macmon,
    pmset,
    powermetrics,
    ps,
    vm_stat,
)
from gatekeeper.host.sources import DirectSource, Values
from gatekeeper.host.tool_commands import Output
from tests.builders.slo import answer

CORPUS = Path(__file__).parent / "corpus"
NASTY = [
    b"[" * 2000,
    b'{"a":' * 300,
    b"a." * 300,
    b"9" * 5000,
    b"9" * 400,
    b"18446744073709551615",
    b"9223372036854775808",
    *(b"1e999 -1 -0.0 1e1e1 NaN Infinity -inf nan 1_0 0x10 null true false [] {} \"\" '' 0 0.5 1e-320".split()),
    b'"\\ud800"',
    b"\\ud83d",
    "٣".encode(),
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\0",
    b"\x1b[2J",
    b"\n",
    b"\r\n",
    b"9999-12-31T23:59:59-23:59",
    b"0001-01-01T00:00:00",
    b'"^(a+)+$"',
    b'{"$ref": "http://127.0.0.1:9/x"}',
]
WORD = re.compile(rb'"(?:[^"\\]|\\.)*"|[+-]?[0-9][0-9.eE+-]*|[A-Za-z_]+')


@dataclass(frozen=True)
class Parser:
    """A parser of bytes, the one error it may raise, and what is done with its value."""

    read: Callable[[bytes, Path], Any]
    """It is given the bytes, and a folder for those that read a file."""
    error: type[Exception] | tuple[type[Exception], ...] = ()
    use: Callable[[Any], object] = bool


def data(read: Callable[[bytes], Any]) -> Callable[[bytes, Path], Any]:
    return lambda raw, _: read(raw)


def text(read: Callable[[str], Any]) -> Callable[[bytes, Path], Any]:
    return lambda raw, _: read(raw.decode("utf-8", "surrogateescape"))


def tool(read: Callable[[Output], Any]) -> Callable[[bytes, Path], Any]:
    return lambda raw, _: read(Output(0, raw))


def in_file(read: Callable[[Path], Any], name: str = "file") -> Callable[[bytes, Path], Any]:
    def write(raw: bytes, folder: Path) -> Any:
        (folder / name).write_bytes(raw)
        return read(folder / name)

    return write


def writes(value: Any) -> str:
    """A value that is written: finite numbers, and text in UTF-8."""
    document = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    written = json.dumps(document, allow_nan=False, ensure_ascii=False)
    written.encode()
    return written


def model_folder(name: str) -> Callable[[bytes, Path], Any]:
    """Freeze a little model of which one file is what was read."""

    def freeze(path: Path) -> Any:
        example_files = {"config.json": "config/small.json", "model.safetensors": "safetensors/small.safetensors"}
        for file, example in example_files.items():
            if file != name:
                (path.parent / file).write_bytes((CORPUS / example).read_bytes())
        return artifacts.freeze("m", path.parent, HashCache(None))

    return in_file(freeze, name)


def recorded(answer_read: Answer) -> Answer:
    generation = Generation("t", "k", "w", "c", "candidate", (("draft", "d"),), Role.MEASURED, 0, "", 1, answer_read)
    return record_files.ANSWERS.validate_json(record_files.ANSWERS.dump_json(generation)).answer


def worker_line(raw: bytes) -> Any:
    message = worker_protocol.read_line(raw)
    worker_protocol.gap_from(message)
    worker_protocol.forced_from(message, (1, 2, 3))
    return worker_protocol.answer_from(message, sent_ns=0, received_ns=100, drafting=True)


def stream(raw: bytes) -> Any:
    ends = tuple(accumulate([len(raw) // 2, len(raw) - len(raw) // 2]))
    return read_answer(RawResponse(0, 9, raw, (3, 6), ends))[0]


def traffic(path: Path) -> list[Any]:
    """Read a log, and make of each request what an imported canary is made of."""
    requests = [request for _, request in read_log(path, read_request) if not isinstance(request, UnusableError)]
    return [[request.prompt, request.characters, propose_expectation(request), request.lost] for request in requests]


def linux_source(source: Callable[[Path], DirectSource], name: str) -> Callable[[bytes, Path], Any]:
    def read(path: Path) -> Values:
        return source(path.parent).read()

    return in_file(read, name)


def graded(raw: bytes) -> Any:
    answer_graded = answer(text=raw.decode("utf-8", "surrogateescape"))
    schema = {"properties": {"a": {"pattern": "^(2+)+6$"}, "b": {"items": {"multipleOf": 0.5}}}}
    document = {"id": "a", "messages": [{"role": "user"}], "expect": {"json_schema": schema}}
    return canary.Canary.model_validate(document).grade(answer_graded)


PARSERS = {
    "answer_text": Parser(data(graded)),
    "answers": Parser(in_file(partial(record_files.read_records, kind=record_files.ANSWERS))),
    "canaries": Parser(text(lambda content: canary.parse(content, "c.jsonl")), InputError),
    "config": Parser(model_folder("config.json"), InputError, writes),
    "events": Parser(in_file(partial(record_files.read_records, kind=record_files.EVENTS))),
    "gguf": Parser(in_file(lambda path: gguf.freeze("m", path, lambda _: ""), "m.gguf"), InputError, writes),
    "greeting": Parser(
        data(lambda raw: worker_protocol.greeting_from(worker_protocol.read_line(raw), "worker")),
        (InputError, worker_protocol.WorkerFault),
    ),
    "hashes": Parser(in_file(lambda path: HashCache(path).sha256(path)), use=writes),
    "host": Parser(in_file(partial(record_files.read_records, kind=record_files.SAMPLES))),
    "ioreg": Parser(tool(ioreg.parse), use=writes),
    "json": Parser(data(parse.json_value), parse.ParseError, writes),
    "lock": Parser(text(Holder.parse)),
    "macmon": Parser(data(lambda raw: macmon.LineDecoder().feed(raw + b"\n")), use=writes),
    "manifest": Parser(data(inputs.load_manifest), GatekeeperError, writes),
    "meminfo": Parser(linux_source(linux.Meminfo, "meminfo"), ValueError, writes),
    "metrics": Parser(text(lambda content: spec_decode(content, "vllm:spec_decode_"))),
    "moment": Parser(text(parse.moment), parse.ParseError),
    "number": Parser(text(lambda content: (parse.number(content), parse.integer(content))), parse.ParseError, writes),
    "ollama": Parser(in_file(lambda path: model_stores.ollama_layers(path, "m")), InputError),
    "pmset": Parser(
        tool(lambda output: (pmset.parse_battery(output), pmset.parse_mode(output))),
        use=writes,
    ),
    "policy": Parser(text(lambda content: policy.parse(content, "policy.toml")), InputError, writes),
    "powermetrics": Parser(data(lambda raw: powermetrics.PlistDecoder().feed(raw)), use=writes),
    "pressure": Parser(linux_source(lambda path: linux.Pressure(path.parent), "pressure/memory"), ValueError, writes),
    "profile": Parser(text(lambda content: toml_file.parse(content, "p.toml", slo.Profile)), InputError, writes),
    "ps": Parser(tool(ps.parse), use=writes),
    "quantity": Parser(text(lambda content: units.parse(content, units.SECONDS)), ValueError, writes),
    "safetensors": Parser(model_folder("model.safetensors"), InputError, writes),
    "script": Parser(in_file(read_script), InputError),
    "shards": Parser(model_folder("model.safetensors.index.json"), InputError, writes),
    "slo": Parser(text(lambda content: slo.parse(content, "slo.toml")), InputError, writes),
    "stream": Parser(data(stream), use=recorded),
    "sysctl": Parser(tool(facts.read_keys), use=writes),
    "tokenizer": Parser(model_folder("tokenizer.json"), InputError, writes),
    "toml": Parser(text(parse.toml_table), parse.ParseError),
    "traffic": Parser(in_file(traffic), InputError, json.dumps),
    "vm_stat": Parser(tool(vm_stat.parse), use=writes),
    "vmstat": Parser(linux_source(linux.Vmstat, "vmstat"), ValueError, writes),
    "worker": Parser(data(worker_line), worker_protocol.WorkerFault, recorded),
}
EXAMPLES = {"json": "manifest", "toml": "slo", "moment": "lock"}


def examples(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / EXAMPLES.get(name, name)).iterdir())]


@st.composite
def damaged(draw: st.DrawFn, sound: list[bytes]) -> bytes:
    """One of the examples, with up to four words replaced, pieces cut out or doubled, or bytes put in."""
    content = draw(st.sampled_from(sound))
    for _ in range(draw(st.integers(0, 4))):
        payload = draw(st.sampled_from(NASTY) | st.binary(max_size=8))
        if draw(st.integers(0, 3)) and (words := list(WORD.finditer(content))):
            begin, end = draw(st.sampled_from(words)).span()
        else:
            begin, end = sorted((draw(st.integers(0, len(content))), draw(st.integers(0, len(content)))))
            payload = draw(st.sampled_from([b"", payload, content[begin:end] * 2]))
        content = content[:begin] + payload + content[end:]
    return content


def check(name: str, raw: bytes, folder: Path) -> None:
    """Read *raw*, and use what comes of it."""
    parser = PARSERS[name]
    try:
        value = parser.read(raw, folder)
    except parser.error as error:  # the one documented error, and it can be printed
        str(error).encode()
        return
    parser.use(value)


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_a_parser_returns_or_raises_its_one_error(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever bytes come in: a value that can be used, or the one error."""
    folder = tmp_path_factory.mktemp(name)
    (folder / "pressure").mkdir()

    @settings(max_examples=40, suppress_health_check=[*HealthCheck], database=None)
    @given(damaged(examples(name)) | st.binary(max_size=64))
    def run(raw: bytes) -> None:
        check(name, raw, folder)

    run()


@pytest.mark.parametrize("name", sorted(set(PARSERS) - {"moment", "ollama"}))
def test_the_examples_of_a_parser_are_sound(name: str, tmp_path: Path) -> None:
    """What is damaged for a parser is read before: the damage reaches every step."""
    (tmp_path / "pressure").mkdir()
    sound = examples(name)

    for raw in sound:
        PARSERS[name].use(PARSERS[name].read(raw, tmp_path))

    assert sound


@pytest.mark.nightly  # the same parsers meet damaged and random input above, without a search by coverage
@pytest.mark.parametrize("name", ["gguf", "json", "slo", "stream", "worker"])
def test_coverage_guided_fuzzing_finds_nothing(name: str, tmp_path: Path) -> None:
    """Two seconds of a fuzzer that follows the branches of a parser, where Atheris is installed."""
    pytest.importorskip("atheris")
    tool = [
        sys.executable,
        str(Path(__file__).parents[2] / "tools" / "fuzz_parsers.py"),
        name,
        "-max_total_time=2",
        "-rss_limit_mb=4096",
    ]

    done = subprocess.run(tool, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)

    assert 0 == done.returncode, done.stderr[-3000:]
    assert [] == list(tmp_path.glob("crash-*"))
