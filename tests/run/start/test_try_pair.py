"""`gatekeeper try`: the pair it finds, and the sentence it says."""

from pathlib import Path

import pytest

from gatekeeper.core.errors import HostLacksError
from gatekeeper.report.commands.try_document import try_pair_document
from gatekeeper.report.document_text import render_text
from gatekeeper.run.start import try_pair
from tests.builders.golden_words import says
from tests.builders.project_folder import ROOT, ProjectFolder


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without models in any cache."""
    for name in ("HF_HOME", "OLLAMA_MODELS", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_pair_in_the_folder_models_is_found(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The little pair of this repository is found beside the caches: the larger is the target."""
    (empty / "models").symlink_to(ROOT / "models")
    monkeypatch.setattr(try_pair, "missing_backends", dict)

    pair = try_pair.find_pair()

    assert ("mlx", "models/little-target") == (pair.backend, pair.target.name)
    assert "models/little-draft" in [draft.name for draft in pair.drafts]


def test_no_pair_and_no_backend_are_said(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without models, or without the program that runs them, the error says what to do; its exit code is 3."""
    with pytest.raises(HostLacksError, match="no target and draft") as nothing:
        try_pair.find_pair()
    (empty / "models").symlink_to(ROOT / "models")
    monkeypatch.setattr(try_pair, "missing_backends", lambda: {"mlx": "pip install it", "llama-server": "brew"})
    with pytest.raises(HostLacksError) as alone:
        try_pair.find_pair()
    says("run", "no pair and no backend are said", alone.value.message)

    assert (3, "pip install it") == (nothing.value.exit_code, alone.value.hint)
    assert "--target" in nothing.value.hint


def test_a_target_without_a_draft_is_refused(empty: Path) -> None:
    """Half a pair, a draft of another vocabulary, and the target as its own draft are exit code 2."""
    (empty / "models").symlink_to(ROOT / "models")
    project, target = ProjectFolder(empty, {}), ("try", "--target", "models/little-target")

    drafts = ((), ("--draft", "models/little-draft-alien"), ("--draft", "models/little-target"))
    refused = [project.run(*target, *words, code=2).err for words in drafts]
    says("run", "half a pair, another vocabulary and the target itself", "\n".join(refused))
    says("run", "a draft without its target", project.run("try", "--draft", "d", code=2).err)
    says("run", "a target that is not here", project.run("init", "--target", "gone", "--draft", "d", code=2).err)


def test_figures_are_shown_where_they_do_not_decide() -> None:
    """Each workload has its ratio, or what its speeds say; the last line names the whole pair."""
    figures = {
        "answer": "unclear",
        "ratio": None,
        "lo": None,
        "hi": None,
        "plain_tok_s": 200.0,
        "drafting_tok_s": 250.0,
    }
    document = {
        "sentence": "Drafting is not decided.",
        "workloads": {
            "json": figures | {"acceptance_rate": 0.75, "next": "run it for longer"},
            "code": figures
            | {"ratio": 1.4, "lo": 0.9, "hi": 1.8, "acceptance_rate": None, "next": "run it for longer"},
        },
        "notes": ["other programs used 1.9 of 2 cores: make 1.9: close them for figures that decide more"],
        "next": "gatekeeper init --target t --draft d",
    }

    says("run", "figures are shown where they do not decide", render_text(try_pair_document(document, verbose=False)))
