"""The files a run is made from."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gatekeeper.analysis.verdict.policy.certified_policy import certified_requests
from gatekeeper.core.errors import InputError
from gatekeeper.core.manifest import File, Manifest, sha256
from gatekeeper.core.system import inputs
from gatekeeper.core.system.run_directory import RunDirectory
from tests.builders.golden_words import says
from tests.builders.manifest import manifest

SLO = """\
schema = 1
name = "made"
[subject]
backend = "scripted"
target = "t"
drafts = ["heavy"]
script = "truth.json"
[[workload]]
name = "tools"
canaries = "tools.jsonl"
first = 2
[sweep]
num_draft_tokens = [2]
[[objective]]
metric = "throughput_ratio"
at_least = 1.16
why = "it must pay"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slos").mkdir()
    (tmp_path / "slos" / "made.toml").write_text(SLO)
    lines = [f'{{"id": "c-{at}", "messages": [{{"role": "user", "content": "{at} ✓"}}]}}\n' for at in range(3)]
    (tmp_path / "slos" / "tools.jsonl").write_text("".join(lines))
    return tmp_path / "slos"


def test_everything_the_slo_names_is_read(folder: Path) -> None:
    """Texts are kept for the run directory, digests for the manifest, and `first` takes the first canaries."""
    slo_inputs = inputs.read(folder / "made.toml")

    assert ["c-0", "c-1"] == [tool.id for tool in slo_inputs.canaries["tools"]]
    assert {"inputs/slo.toml", "inputs/profile.toml", "inputs/canaries-tools.jsonl"} == slo_inputs.texts.keys()
    assert {"slo": sha256(SLO), "workload tools": sha256((folder / "tools.jsonl").read_text())} == {
        name: slo_inputs.files[name].sha256 for name in ("slo", "workload tools")
    }
    assert (2, "steady", folder) == (slo_inputs.files["workload tools"].count, slo_inputs.profile.name, slo_inputs.base)


def test_penalties_of_the_slo_are_those_of_each_canary_that_sets_none(folder: Path) -> None:
    """What [sampling] penalizes is sent with every canary, and certified with it; a canary's own penalty stays."""
    written = (folder / "tools.jsonl").read_text().replace('"id": "c-1"', '"id": "c-1", "presence_penalty": 0.1')
    (folder / "tools.jsonl").write_text(written)
    path = edited(folder, "[[workload]]", "[sampling]\npresence_penalty = 0.5\nrepetition_penalty = 1.05\n[[workload]]")

    slo_inputs = inputs.read(path)

    repetition = {"repetition_penalty": 1.05}
    expected = [{"presence_penalty": 0.5, **repetition}, {"presence_penalty": 0.1, **repetition}]
    assert expected == [prompt.options for prompt in slo_inputs.canaries["tools"]]
    requests = certified_requests(slo_inputs.slo, slo_inputs.canaries["tools"])
    assert [0.5, 0.1] == [request.presence_penalty for request in requests]


def edited(folder: Path, old: str, new: str) -> Path:
    path = folder / "made.toml"
    assert old in SLO
    path.write_text(SLO.replace(old, new))
    return path


def _not_utf8(folder: Path) -> Path:
    (folder / "made.toml").write_bytes(SLO.encode() + b"# caf\xe9\n")
    return folder / "made.toml"


def loaded(folder: Path, profile: str, line: str = "") -> Path:
    """Name a soak profile in the SLO, one that is written here where it is a file."""
    if line:
        (folder / profile).write_text(f'schema = 1\nname = "mine"\n{line}\n')
    return edited(folder, "[[objective]]", f'[soak]\nprofile = "{profile}"\n[[objective]]')


def renamed(folder: Path, canaries: str) -> Path:
    return edited(folder, '"tools.jsonl"', f'"{canaries}"')


UNKNOWN_SET = "made.toml: line 10: workload[1].canaries: unknown canary set 'jsn'"
WRONG: dict[str, tuple[Callable[[Path], Path], str, str]] = {
    "no such SLO": (lambda folder: folder / "mode.toml", "mode.toml does not exist", "made.toml"),
    "a folder": (lambda folder: folder, "is a folder", "name a file in it"),
    "not UTF-8": (_not_utf8, "is not UTF-8", "UTF-8"),
    "no such canaries": (lambda folder: renamed(folder, "tool.jsonl"), "line 10: workload[1].canaries", "tools.jsonl"),
    # A path that ends in .jsonl is that file or an error, even where a shipped set has its name.
    "a path is no name": (lambda folder: renamed(folder, "json.jsonl"), "does not exist", ""),
    "no such set": (lambda folder: renamed(folder, "jsn"), UNKNOWN_SET, "did you mean 'json'?"),
    "where a set is looked for": (lambda folder: renamed(folder, "jsn"), "unknown canary set", "slos/canaries"),
    "no such profile": (lambda folder: loaded(folder, "steddy"), "unknown soak profile 'steddy'", "steady"),
    "no such tier": (lambda folder: loaded(folder, "long-context"), "names the tier long", 'tier = "long"'),
    "no weight": (lambda folder: loaded(folder, "mine.toml", "mix = { other = 1 }"), "tools no weight", "add a weight"),
    "a bad profile": (lambda folder: loaded(folder, "mine.toml", "arival = 1"), "line 3: arival: unknown", "arrival"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said(folder: Path, wrong: str) -> None:
    """Code 2, with the file, the place in it and the nearest name."""
    change, says, hint = WRONG[wrong]

    with pytest.raises(InputError) as refused:
        inputs.read(change(folder))

    assert says in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize("place", ["tools.jsonl", "canaries/tools.jsonl", "../canaries/tools.jsonl"])
def test_a_set_is_found_by_its_name(folder: Path, place: str) -> None:
    """A name stands for the project's own file, in the SLO's folder or in `canaries/` below or beside it."""
    (folder / place).parent.mkdir(exist_ok=True)
    text = (folder / "tools.jsonl").read_text()
    (folder / "tools.jsonl").rename(folder / place)

    slo_inputs = inputs.read(edited(folder, '"tools.jsonl"', '"tools"'))

    assert ("tools.jsonl", sha256(text)) == (
        slo_inputs.files["workload tools"].name,
        slo_inputs.files["workload tools"].sha256,
    )


@pytest.mark.parametrize("name", ["tools", "little/tools"])
def test_a_shipped_set_is_found_by_its_name(folder: Path, name: str) -> None:
    """Where the project has no such file the name stands for the shipped set, whose digest is recorded."""
    (folder / "tools.jsonl").unlink()

    slo_inputs = inputs.read(edited(folder, '"tools.jsonl"', f'"{name}"'))

    shipped = inputs.shipped_folder("canaries") / f"{name}.jsonl"
    assert sha256(shipped.read_text("utf-8")) == slo_inputs.files["workload tools"].sha256


def frozen(slo_inputs: inputs.Inputs) -> Manifest:
    files = slo_inputs.files
    return manifest(slo=files["slo"], canaries={"tools": files["workload tools"]}, profile=files["profile"])


def stored(folder: Path, texts: dict[str, str]) -> RunDirectory:
    run = RunDirectory.open(folder / "run", resume=False)
    for name, text in texts.items():
        run.write(name, text)
    run.close()
    return run


def test_stored_inputs_are_the_frozen_ones(folder: Path) -> None:
    """A run directory's copies give back the same inputs, and none has changed."""
    slo_inputs = inputs.read(folder / "made.toml")

    again, changed = inputs.stored_inputs(stored(folder, slo_inputs.texts), frozen(slo_inputs))

    assert ([], slo_inputs.slo, slo_inputs.canaries, slo_inputs.profile) == (
        changed,
        again.slo,
        again.canaries,
        again.profile,
    )


@pytest.mark.parametrize("name", [inputs.SLO_NAME, inputs.PROFILE_NAME, "inputs/canaries-tools.jsonl"])
def test_a_changed_copy_is_named(folder: Path, name: str) -> None:
    """An SLO loosened after the run, other canaries or another load are not what was frozen."""
    slo_inputs = inputs.read(folder / "made.toml")
    run = stored(folder, {**slo_inputs.texts, name: slo_inputs.texts[name] + "\n"})

    _, changed = inputs.stored_inputs(run, frozen(slo_inputs))

    says("core", "a changed copy is named", "; ".join(changed), name=name)


def test_canaries_that_the_slo_no_longer_names_are_named(folder: Path) -> None:
    """A workload that was taken out of a stored SLO leaves its canaries behind."""
    slo_inputs = inputs.read(folder / "made.toml")
    file_name = "inputs/canaries-other.jsonl"
    run = stored(folder, {**slo_inputs.texts, file_name: "other"})
    canaries = {**frozen(slo_inputs).canaries, "other": File(name="o", sha256=sha256("other"))}

    _, changed = inputs.stored_inputs(run, frozen(slo_inputs).model_copy(update={"canaries": canaries}))

    says("core", "a changed copy is named", "; ".join(changed), name=file_name)
