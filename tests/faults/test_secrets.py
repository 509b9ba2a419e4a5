"""Keys in addresses: they reach the server that they are for, and nothing else, whatever that server sends back."""

import base64
import json
import re
import shutil
import struct
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gatekeeper.core.hidden_keys import Address, hide_keys
from gatekeeper.core.system import inputs
from tests.builders.background_server import BackgroundServer, QuietHandler
from tests.builders.deployment import Deployed
from tests.builders.project_folder import Done, ProjectFolder, canary_lines, project_folder

PASSWORD, QUERY, COLLECTOR, SHORT, OLD = "pw-8Xk2Qz71", "query-3Jv9Lm55", "otlp-6Tn4Rb80", "k7Qx2Zp", "old-1Fd8Wc36"
BASIC = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
KEYS = (PASSWORD, QUERY, COLLECTOR, SHORT, OLD, BASIC)


class Echo(BackgroundServer):
    """A server that wants a key, and writes what it was sent into everything that it answers."""

    def __init__(self, key: str) -> None:
        super().__init__(_Handler)
        self.wanted, self.served, self.refused, self.refused_then = key, 0, 0, -1


class _Handler(QuietHandler, BaseHTTPRequestHandler):
    server: Echo

    def do_GET(self) -> None:
        document = {"status": "ok", "version": self._heard(), "data": [{"id": "big"}], "error": self._heard()}
        self._send(200, json.dumps(document).encode())

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.wanted not in self._heard():
            self.server.refused += 1
            self._send(401, json.dumps({"error": f"wrong key: {self._heard()}"}).encode())
            return
        self.server.served += 1
        if self.server.served % 5 == 0:
            self._send(500, f"cannot serve {self._heard()}".encode())
            return
        request_text = self._heard()
        words = [request_text, " ", *(request_text[at : at + 3] for at in range(0, len(request_text), 3)), "."]
        choices: list[dict[str, Any]] = [{"delta": {"content": word}} for word in words]
        choices.append({"delta": {}, "finish_reason": "stop"})
        pieces: list[Mapping[str, Any]] = [{"choices": [{"index": 0, **choice}]} for choice in choices]
        usage = {"prompt_tokens": 5, "completion_tokens": len(words)}
        pieces.append({"choices": [], "usage": usage, "timings": {"draft_n": 4, "draft_n_accepted": 3}})
        lines = [f"data: {json.dumps({'id': request_text, 'model': request_text, **piece})}\n\n" for piece in pieces]
        self._send(200, "".join([*lines, "data: [DONE]\n\n"]).encode())

    def _heard(self) -> str:
        return f"{self.path} {self.headers['Authorization']}"

    def _send(self, status: int, body: bytes) -> None:
        self.send(status, body, "text/event-stream", self._heard())


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Echo, Echo]]:
    with Echo(BASIC) as drafting, Echo(QUERY) as plain:
        yield drafting, plain


def model(folder: Path, name: str) -> None:
    """Write the smallest folder that counts as a model."""
    (folder / name).mkdir()
    (folder / name / "config.json").write_text(json.dumps({"vocab_size": 8}))
    header = json.dumps({"w": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}).encode()
    weights = struct.pack("<Q", len(header)) + header + b"\0" * 64
    (folder / name / "model.safetensors").write_bytes(weights)


def write_slo(project: ProjectFolder, drafting: Echo, plain: Echo, **subject: Any) -> None:
    slo = {
        "schema": 1,
        "name": "keyed",
        "subject": {
            "backend": "openai",
            "target": "big",
            "drafts": ["small"],
            "url": f"http://user:{PASSWORD}@{drafting.host}/v1",
            "plain_url": f"http://{plain.host}/v1?api_key={QUERY}",
            **subject,
        },
        "workload": [{"name": "easy", "canaries": "easy.jsonl", "speculation": "optional"}],
        "sweep": {"repeats": 1, "budget": 12, "draft": ["small"]},
        "soak": {"duration": "0.5 s", "max_duration": "1 s"},
        "telemetry": {"endpoint": f"http://otel:{COLLECTOR}@127.0.0.1:9/?token={COLLECTOR}"},
        "objective": [{"metric": "error_rate", "at_most": 1, "why": "it may fail"}],
    }
    text = f'# the old one: url = "http://user:{OLD}@127.0.0.1:1/v1"\n' + tomli_w.dumps(slo)
    (project.path / "slo.toml").write_text(text)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory, servers: tuple[Echo, Echo]) -> tuple[ProjectFolder, Done]:
    """A run of two real servers whose addresses hold keys, and what certify printed."""
    folder = tmp_path_factory.mktemp("keyed")
    project = project_folder(folder).with_environment(GATEKEEPER_HOST_LOCK=str(folder / "lock"))
    for name in ("big", "small"):
        model(project.path, name)
    (project.path / "easy.jsonl").write_text(canary_lines("easy", 6))
    write_slo(project, *servers)
    done = project.run("certify", "slo.toml", "--out", "runs/run-1")
    for server in servers:
        server.refused_then = server.refused
    return project, done


@pytest.fixture
def project(certified: tuple[ProjectFolder, Done], servers: tuple[Echo, Echo]) -> Iterator[ProjectFolder]:
    """The folder of that run, whose SLO is written anew after each test."""
    yield certified[0]
    write_slo(certified[0], *servers)


def leaks(folder: Path, *ended: Done) -> list[str]:
    """Name the files in *folder*, and what was printed, that hold a key; the SLO that a person wrote is left out."""
    files = [path for path in folder.rglob("*") if path.is_file() and path != folder / "slo.toml"]
    contents = [(str(path), path.read_bytes()) for path in files]
    contents += [(text[:2000], text.encode()) for done in ended for text in (done.out, done.err)]
    return [f"{key} in {name}" for name, content in contents for key in KEYS if key.encode() in content]


def test_the_servers_get_their_keys(certified: tuple[ProjectFolder, Done], servers: tuple[Echo, Echo]) -> None:
    """User and password go into the header, a query stays in the path: every request was served."""
    assert all(server.served > 5 for server in servers)
    assert [0, 0] == [server.refused_then for server in servers], certified[1]


def test_a_run_stores_and_prints_no_key(certified: tuple[ProjectFolder, Done]) -> None:
    """Whatever the servers echo, files and terminal hold the address without its key."""
    project, done = certified
    run = project.path / "runs" / "run-1"

    assert [] == leaks(project.path, done)
    versions = json.loads((run / "manifest.json").read_text())["versions"]
    assert re.fullmatch(r"http://hidden-[0-9a-f]{8}@127\.0\.0\.1:\d+/v1", versions["url"])
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/v1\?api_key=hidden-[0-9a-f]{8}", versions["plain_url"])
    records = "".join(path.read_text() for path in run.glob("*.jsonl"))
    assert all("*" * len(key) in records for key in (BASIC, QUERY))


COMMANDS = [
    ("judge", "runs/run-1", "--json"),
    *(("report", "runs/run-1", "--format", form) for form in ("html", "markdown", "json", "junit", "text")),
    ("admit", "slo.toml", "--run", "runs/run-1", "--json"),
    ("certify", "slo.toml", "--out", "runs/run-1", "--resume"),
    ("plan", "slo.toml"),
    ("history", "runs"),
    ("compare", "runs/run-1", "runs/run-1"),
    ("report", "runs/run-1", "--to", "otlp"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[::3]))
def test_no_command_prints_a_key(certified: tuple[ProjectFolder, Done], words: tuple[str, ...]) -> None:
    """What reads the run or its SLO file knows the address without its key."""
    project, first = certified

    done = certified[0].run(*words)

    assert [] == leaks(project.path, done)
    assert 4 != done.code
    if words[0] == "certify":  # the stored SLO is the one that is given, though its key is hidden
        assert first.code == done.code
    if words[-1] == "otlp":
        assert 2 == done.code
        assert all(word in done.err for word in ("telemetry.endpoint", "http://hidden-"))


def test_another_key_is_another_slo(project: ProjectFolder, servers: tuple[Echo, Echo]) -> None:
    """The digest that is left tells two keys apart, for admit and for --resume."""
    write_slo(project, *servers, plain_url=f"http://{servers[1].host}/v1?api_key=query-other-0001")

    admitted = project.run("admit", "slo.toml", "--run", "runs/run-1", "--json")
    resumed = project.run("certify", "slo.toml", "--out", "runs/run-1", "--resume")

    assert "other_slo" == admitted.document["reason"]
    assert admitted.document["because"].endswith(": subject")
    assert (2, True) == (resumed.code, "differs in: subject" in resumed.err)


def test_a_refused_key_is_not_printed(project: ProjectFolder, servers: tuple[Echo, Echo]) -> None:
    """A server that quotes the wrong key in its refusal does not get it into the error."""
    write_slo(project, *servers, url=f"http://user:{SHORT}@{servers[0].host}/v1")

    done = project.run("certify", "slo.toml", "--only", "sweep", "--out", "refused", code=2)

    assert "wrong key: " in done.err
    assert [] == leaks(project.path, done)


def test_a_short_key_of_the_environment_is_masked(project: ProjectFolder) -> None:
    """A key of seven letters from api_key_env is echoed in errors and answers, and masked there."""
    with Echo(SHORT) as server:
        write_slo(project, server, server, url=f"http://{server.host}/v1", api_key_env="SHORT_KEY")
        keyed = project.with_environment(SHORT_KEY=SHORT)
        done = keyed.run("certify", "slo.toml", "--only", "sweep", "--out", "short", code=0)

    assert [] == leaks(project.path, done)


def test_a_stored_slo_has_no_key_to_run_with(project: ProjectFolder) -> None:
    """The copy in a run directory cannot be certified: the error says which key is missing."""
    shutil.copy(project.path / "runs" / "run-1" / "inputs" / "slo.toml", project.path / "stored.toml")

    done = project.run("certify", "stored.toml", "--out", "again", code=2)

    assert all(word in done.err for word in ("subject.url", "http://hidden-"))


def test_the_slo_of_a_run_is_found_by_its_stored_text(
    certified: tuple[ProjectFolder, Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's file with the key is the one of the run, whose copy has none: annotations and paths name it."""
    monkeypatch.chdir(certified[0].path)

    path, text = inputs.find_slo_file(Path("runs/run-1"), None)

    assert ("slo.toml", True) == (str(path), "hidden-" in text)


def test_a_watch_stores_and_prints_no_key(tmp_path: Path, servers: tuple[Echo, Echo]) -> None:
    """The server gets the key of `watch --url`; log, overlay, lock and terminal do not hold it."""
    served, address = servers[0].served, servers[0].host
    Deployed.served(tmp_path, f"http://{address}")
    project = ProjectFolder(tmp_path, project_folder(tmp_path).environment)
    words = (
        "watch",
        "policy.toml",
        "--run",
        "run",
        "--slo",
        "slo.toml",
        "--rounds",
        "1",
        "--no-host",
        "--json",
        "--url",
    )

    done = project.run(*words, f"http://user:{PASSWORD}@{address}/v1")
    wrong = project.run(*words, f"http://user:{SHORT}@{address}/v1")
    misspelt = project.run(*words, f"user:{PASSWORD}@{address}", code=2)

    assert servers[0].served > served
    assert "http://hidden-" in json.loads(done.out.splitlines()[0])["url"]
    assert [] == leaks(tmp_path, done, wrong, misspelt)


@pytest.mark.parametrize("key", ["args", "why"])
def test_a_key_elsewhere_in_the_slo_is_refused(project: ProjectFolder, key: str, servers: Any) -> None:
    """An address with a key in another place would be recorded: code 2 before anything is written."""
    if key == "args":
        write_slo(project, *servers, args=["--proxy", f"http://user:{OLD}@127.0.0.1:1"])
    else:
        path = project.path / "slo.toml"
        path.write_text(path.read_text().replace("it may fail", f"see https://wiki/?token={OLD}"))

    done = project.run("certify", "slo.toml", "--out", "elsewhere", code=2)

    assert ("in an address" in done.err, OLD in done.err) == (True, False)
    assert not (project.path / "elsewhere").exists()


WRITTEN = [
    ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
    (f"http://user:{PASSWORD}@h:80/v1", "http://hidden-#@h:80/v1"),
    (f"http://{PASSWORD}@[::1]:80", "http://hidden-#@[::1]:80"),
    (f"http://h/v1?api_key={QUERY}&x=1", "http://h/v1?api_key=hidden-#&x=hidden-#"),
    (f"http://h?{QUERY}", "http://h?hidden-#"),
    (f"http://h/#{QUERY}", "http://h/#hidden-#"),
    (f"http://user:a/{PASSWORD}@h", "http://hidden-#"),
    (f"http://user:a#{PASSWORD}@h", "http://hidden-#"),
    (f"http://user:@{PASSWORD}@h/", "http://hidden-#@h/"),
    (f"user:{PASSWORD}@h:80", "hidden-#@h:80"),
    (f"http://[{PASSWORD}/", "http://hidden-#"),
    ("http://h/a@2/v1", "http://h/a@2/v1"),
]


@pytest.mark.parametrize(("text", "expected"), WRITTEN)
def test_an_address_is_shown_without_its_key(text: str, expected: str) -> None:
    """However it is written, an address shows no key, and what is shown is shown the same when it is read again."""
    address = Address(text)

    assert expected == re.sub(r"hidden-[0-9a-f]{8}", "hidden-#", address)
    assert (address, text) == (Address(str(address)), address.given)
    assert ("#" in expected) == Address(str(address)).is_incomplete


def test_the_path_goes_before_the_query() -> None:
    """A request keeps the query of its address behind the path."""
    assert "http://u:p@h/x/v1/models?k=v" == Address("http://u:p@h/x/v1/?k=v#f").at("/v1/models")


def test_keys_in_comments_are_hidden() -> None:
    """An address in a comment is hidden where it holds a password or a value by the name of a key, else it stays."""
    text = "# http://u:p@h, https://docs/?page=2, http://h/?api_key=k"

    assert "# http://hidden-#@h, https://docs/?page=2, http://h/?api_key=hidden-#" == re.sub(
        r"hidden-[0-9a-f]{8}", "hidden-#", hide_keys(text, ())
    )
