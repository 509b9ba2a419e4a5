"""What the little pair promises: the shipped bytes, the shipped canaries, and drafting that is honest either way."""

import hashlib
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "models"
CANARIES = ROOT / "canaries" / "little"
WORKLOADS = ("json", "tools", "code", "list", "math", "prose", "random")
FOLDERS = ("little-target", "little-draft", "little-draft-lite", "little-draft-bad", "little-draft-alien")


@dataclass(frozen=True)
class Drafting:
    tokens: list[int]
    drafted: int
    accepted: int


def canaries(workload: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CANARIES / f"{workload}.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def load() -> Any:
    return pytest.importorskip("mlx_lm").load


@pytest.fixture(scope="module")
def target(load: Any) -> Any:
    return load(str(MODELS / "little-target"))


@pytest.fixture(scope="module")
def draft(load: Any) -> Any:
    return load(str(MODELS / "little-draft"))[0]


def answer(target: Any, canary: dict[str, Any], draft: Any = None, draft_tokens: int = 3) -> Drafting:
    """Generate greedily; without the answer's last, possibly shortened round, drafted is rounds times draft length."""
    from mlx_lm import stream_generate  # noqa: PLC0415

    model, tokenizer = target
    prompt = tokenizer.apply_chat_template(canary["messages"], tools=canary.get("tools"), add_generation_prompt=True)
    speculation = {} if draft is None else {"draft_model": draft, "num_draft_tokens": draft_tokens}
    pieces = list(stream_generate(model, tokenizer, prompt, max_tokens=canary["max_tokens"], **speculation))
    ends = [place for place, piece in enumerate(pieces) if not piece.from_draft]
    complete = pieces[: ends[-1] + 1] if ends else []
    return Drafting(
        tokens=[piece.token for piece in pieces],
        drafted=len(ends) * draft_tokens,
        accepted=sum(piece.from_draft for piece in complete),
    )


def acceptance(target: Any, draft: Any, workload: str, count: int) -> float:
    answers = [answer(target, canary, draft) for canary in canaries(workload)[:count]]
    return sum(each.accepted for each in answers) / sum(each.drafted for each in answers)


def test_every_shipped_file_has_its_sum() -> None:
    """SHA256SUMS names every file of every model folder, and each file has the bytes it names."""
    shipped = {
        file.relative_to(MODELS).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for folder in FOLDERS
        for file in (MODELS / folder).iterdir()
    }
    lines = (MODELS / "SHA256SUMS").read_text(encoding="utf-8").splitlines()

    promised = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}

    assert promised == shipped


def test_the_canary_files_are_what_their_command_writes(tmp_path: Path) -> None:
    """`python models/corpus.py --write DIR` writes the shipped canaries, byte for byte."""
    subprocess.run([sys.executable, str(MODELS / "corpus.py"), "--write", str(tmp_path)], check=True)

    assert {f"{name}.jsonl" for name in WORKLOADS} == {file.name for file in tmp_path.iterdir()}
    for file in tmp_path.iterdir():
        assert file.read_bytes() == (CANARIES / file.name).read_bytes()


def test_training_never_sees_a_canary() -> None:
    """Thousands of training examples, drawn with the seeds that training uses, share no prompt with the canaries."""
    script = (
        "import itertools, json, sys; from models.corpus import training_examples as draw;"
        "print(json.dumps([e.prompt for s in sys.argv[1:] for e in itertools.islice(draw(s, {}), 3000)]))"
    )
    seeds = ["tokenizer", "alien", *(f"{folder} examples" for folder in FOLDERS)]
    drawn = subprocess.run(
        [sys.executable, "-c", script, *seeds], check=True, cwd=ROOT, capture_output=True, encoding="utf-8"
    )
    trained = set(json.loads(drawn.stdout))
    held_out = {line["messages"][0]["content"] for workload in WORKLOADS for line in canaries(workload)}

    assert len(trained) > 1000
    assert set() == trained & held_out


@pytest.mark.mlx
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_folder_is_a_model_mlx_lm_can_run(load: Any, folder: str) -> None:
    """mlx-lm loads each folder, takes its tools and its end token from it, and generates."""
    model, tokenizer = load(str(MODELS / folder))
    canary = canaries("tools")[0] | {"max_tokens": 4}

    spoken = answer((model, tokenizer), canary)

    assert 1 <= len(spoken.tokens) <= 4
    assert tokenizer.has_tool_calling
    assert {tokenizer.convert_tokens_to_ids("<|im_end|>")} == tokenizer.eos_token_ids


@pytest.mark.mlx
@pytest.mark.parametrize(
    "workload",
    [pytest.param(name, marks=[] if name in {"json", "tools"} else [pytest.mark.nightly]) for name in WORKLOADS],
)
def test_greedy_drafting_changes_no_token(target: Any, draft: Any, workload: str) -> None:
    """At temperature 0 an answer with a draft has exactly the tokens of the answer without one."""
    for canary in canaries(workload)[:2]:
        assert answer(target, canary).tokens == answer(target, canary, draft).tokens


@pytest.mark.mlx
def test_the_draft_knows_json_and_cannot_guess_codes(target: Any, draft: Any) -> None:
    """The draft is accepted far more often on JSON than on random codes."""
    assert acceptance(target, draft, "json", 4) > 0.6
    assert acceptance(target, draft, "random", 4) < 0.2


@pytest.mark.nightly
@pytest.mark.mlx
def test_the_bad_draft_is_a_negative_control(load: Any, target: Any) -> None:
    """A hardly trained draft is mostly refused, even on JSON."""
    bad, _ = load(str(MODELS / "little-draft-bad"))

    assert acceptance(target, bad, "json", 4) < 0.4
