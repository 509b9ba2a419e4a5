"""Identity: a server that answers with other models than the certified ones is found out."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gatekeeper.backends.listening_process import find_process
from gatekeeper.backends.models import artifacts
from gatekeeper.core.hidden_keys import Address
from gatekeeper.core.manifest import Manifest
from gatekeeper.core.system.files import HashCache
from gatekeeper.live.running import model_identity
from tests.builders import manifest as build
from tests.builders.golden_words import says

MODELS = Path(__file__).parents[3] / "models"
HASHES = HashCache(None)
SERVE = (
    "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); s.accept()"
)


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    target, draft = (artifacts.freeze(name, MODELS / f"little-{name}", HASHES) for name in ("target", "draft"))
    return build.manifest(target=target, drafts=(draft,))


@contextmanager
def served(*argv: object) -> Iterator[str]:
    """Run a process that listens, with *argv* on its command line, in the folder of the models."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", SERVE, *map(str, argv)], stdout=subprocess.PIPE, text=True, cwd=MODELS
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


CERTIFIED = ("--model", MODELS / "little-target", "--draft-model", "little-draft")


@pytest.mark.parametrize(
    ("argv", "because"),
    [
        (CERTIFIED, "started with the draft little-draft"),
        (("--model", MODELS / "little-target"), None),
        (("--model", MODELS / "little-draft-bad"), "which was not certified"),
        ((), None),
    ],
)
def test_a_plain_server_has_the_target_and_no_draft(
    argv: tuple[object, ...], because: str | None, manifest: Manifest
) -> None:
    """A draft or another model on the command line of the plain server is named: its answers would be no baseline."""
    with served(*argv) as url:
        why = model_identity.drafting_plain(manifest, Address(url), HASHES)

    assert because is None or because in str(why)
    assert (because is None) == (why is None)


@pytest.mark.parametrize(
    ("argv", "because"),
    [
        (CERTIFIED, None),
        (("--model=little-target", "--draft-model=little-draft", "--port", "80"), None),
        (("--model", "little-target"), None),
        (("--port", "80"), None),
        (
            ("--model", "little-target", "--draft-model", "little-draft-bad"),
            "little-draft-bad, which was not certified: it has the digest",
        ),
        (("--model", "little-draft", "--draft-model", "little-draft"), "without the certified target 'target'"),
    ],
)
def test_models_on_the_command_line_are_compared(
    manifest: Manifest, argv: tuple[object, ...], because: str | None
) -> None:
    """Every model a local server was started with has to be a certified one, the target among them."""
    with served(*argv) as url:
        process = find_process(url)
        assert process is not None
        difference = model_identity.uncertified_model(manifest, model_identity.models_on_command_line(process, HASHES))

    assert because is None if difference is None else because is not None and because in difference


def test_a_damaged_model_is_no_certified_one(manifest: Manifest, tmp_path: Path) -> None:
    """A folder that looks like a model but cannot be read as one is a mismatch, not an error."""
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"short")
    with served("--model", tmp_path) as url:
        process = find_process(url)
        assert process is not None
        difference = model_identity.uncertified_model(manifest, model_identity.models_on_command_line(process, HASHES))

    says("deployed_servers", "a damaged model is no certified one", difference)


def test_files_that_changed_on_disk_are_found(manifest: Manifest, tmp_path: Path) -> None:
    """A certified model that was updated in place, or is gone, is not the one that was certified."""
    places = {"target": MODELS / "little-target", "draft": MODELS / "little-draft"}
    swapped = {**places, "draft": MODELS / "little-draft-bad"}
    missing_draft = {**places, "draft": tmp_path / "gone"}

    assert model_identity.changed_on_disk(manifest, places, HASHES) is None
    assert "'draft' changed on disk" in (model_identity.changed_on_disk(manifest, swapped, HASHES) or "")
    assert "'draft' cannot be read" in (model_identity.changed_on_disk(manifest, missing_draft, HASHES) or "")
    assert model_identity.changed_on_disk(manifest, {}, HASHES) is None


@pytest.mark.parametrize(
    ("reported", "names", "differs"),
    [
        ("org/Qwen3-8B-4bit", {"qwen3-8b-4bit"}, False),
        ("/models/Qwen3-8B-4bit/", {"qwen3-8b-4bit"}, False),
        ("qwen3-8b-4bit.gguf", {"qwen3-8b-4bit"}, False),
        ("default_model", {"qwen3-8b-4bit"}, False),
        (None, {"qwen3-8b-4bit"}, False),
        ("anything", set(), False),
        ("org/Qwen3-4B-4bit", {"qwen3-8b-4bit"}, True),
    ],
)
def test_names_are_compared_without_their_place(reported: str | None, names: set[str], *, differs: bool) -> None:
    """A path, a hub id and a file name the same model; a name that means nothing is no witness."""
    assert differs == (model_identity.other_name(reported, frozenset(names)) is not None)
