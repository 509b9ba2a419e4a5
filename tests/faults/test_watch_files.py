"""The files of a watch: a log or an overlay that is damaged or missing never turns speculation on again."""

import json
import os
import shutil
import tomllib
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.errors import GatekeeperError
from tests.builders.deployment import SETTING, Answering, Deployed, WatchOutput
from tests.builders.descriptors import few_descriptors

BAD_DRAFT = {"drift": [{"of": "acceptance", "by": -0.95, "over": "1 s", "after": "60 s"}]}
Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def deployed_once(tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """A deployed policy whose watch turned speculation off for a bad draft, and ended. The draft is good now."""
    deployed = Deployed.scripted(tmp_path_factory.mktemp("watched"), BAD_DRAFT)
    deployed.watch(1)
    shutil.copy(deployed.path / "watch.jsonl", deployed.path / "old.jsonl")
    deployed.watch(60)
    deployed.truth()
    assert not is_on(deployed)
    assert ["down", "down"] == [entry["change"] for entry in read(deployed.path / "watch.jsonl", "change")]
    return deployed


@pytest.fixture
def off(deployed_once: Deployed, tmp_path: Path) -> Deployed:
    """A copy of it."""
    shutil.copytree(deployed_once.path, tmp_path / "copy")
    return replace(deployed_once, path=tmp_path / "copy")


def is_on(deployed: Deployed) -> bool:
    return bool(tomllib.loads(deployed.overlay)["route"][0]["speculation"])


def read(path: Path, kind: str) -> list[dict[str, Any]]:
    return [entry for line in path.read_text().splitlines() if (entry := json.loads(line))["kind"] == kind]


def with_checksum(entry: dict[str, Any]) -> str:
    """Return the line of an entry as a watch writes it: only what it says is wrong."""
    text = json.dumps(entry)
    return f'{text[:-1]}, "crc": "{zlib.crc32(text.encode()):08x}"}}'


def lines(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Return what passes each line that holds a change through *change*, whose None removes it."""

    def damage(log: Path) -> None:
        lines_left = []
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            entry.pop("crc")
            new = change(entry) if entry["kind"] == "change" else line
            lines_left.append(with_checksum(new) if isinstance(new, dict) else str(new))
        log.write_text("".join(f"{line}\n" for line in lines_left if line != "None"))

    return damage


def flipped(log: Path) -> None:
    content = log.read_bytes()
    at = content.rindex(b'"to_step": 2') + len(b'"to_step": ')
    log.write_bytes(content[:at] + b"0" + content[at + 1 :])


def cut(log: Path, *, inside: bool) -> None:
    content = log.read_bytes()
    at = content.index(b"\n", content.index(b'"kind": "begun"')) + 1
    log.write_bytes(content[: at + 20 * inside])


def of_another_certificate(log: Path) -> None:
    lines_left = []
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        entry.pop("crc")
        changed = {**entry, "verdict_sha256": "0" * 64} if "verdict_sha256" in entry else entry
        lines_left.append(with_checksum(changed))
    log.write_text("\n".join(lines_left) + "\n")


FOUND: dict[str, Damage] = {
    "a flipped digit": flipped,
    "cut inside a line": lambda log: cut(log, inside=True),
    "garbage": lambda log: log.write_bytes(os.urandom(4000)),
    "zeros, as after a power failure": lambda log: log.write_bytes(bytes(4000)),
    "emptied": lambda log: log.write_bytes(b""),
    "deep JSON": lines(lambda _: "[" * 100_000 + "]" * 100_000),
    "a number of 5,000 digits": lines(lambda entry: json.dumps(entry)[:-1] + ', "n": ' + "9" * 5000 + "}"),
    "a line of megabytes": lines(lambda entry: json.dumps({**entry, "because": "x" * 2_000_000})),
    "times that are none": lines(lambda entry: {**entry, "at": 7}),
    "steps that are text": lines(lambda entry: {**entry, "to_step": "0"}),
    "another encoding": lambda log: log.write_bytes(log.read_text().encode("utf-16")),
    "the head cut off": lambda log: log.write_text("".join(log.read_text().splitlines(keepends=True)[-3:])),
}
"""Damage that a reader of the log can see."""
HIDDEN: dict[str, Damage] = {
    "cut between two lines": lambda log: cut(log, inside=False),
    "an older copy of it": lambda log: shutil.copy(log.with_name("old.jsonl"), log),
    "its changes removed": lines(lambda _: None),
    "rotated away": lambda log: log.rename(log.with_name("watch.jsonl.2026")),
    "deleted": Path.unlink,
    "the log of another certificate": of_another_certificate,
}
"""Damage that leaves a log which could be whole."""


@pytest.mark.parametrize("way", [*FOUND, *HIDDEN])
def test_a_damaged_log_does_not_turn_speculation_on(off: Deployed, way: str) -> None:
    """Speculation was turned off and the log of it is damaged: by the overlay it stays off, code 1."""
    {**FOUND, **HIDDEN}[way](off.path / "watch.jsonl")

    code, output = off.watch(1)

    assert (1, False, []) == (code, is_on(off), output.changes)
    assert (way in FOUND) == any("of the log" in line or "the log holds" in line for line in output.messages)


@pytest.mark.parametrize("way", FOUND)
def test_a_damaged_log_without_an_overlay_is_off(off: Deployed, way: str) -> None:
    """Where the overlay is lost too, nothing shows that speculation was on: it is off."""
    (off.path / "policy.live.toml").unlink()
    FOUND[way](off.path / "watch.jsonl")

    code, output = off.watch(1)

    assert (1, False) == (code, is_on(off))
    assert "every guard is kept" in output.of("begun")[0]["routes"][0]["standing"]["because"]


OVERLAYS: dict[str, Damage] = {
    "deleted": Path.unlink,
    "emptied": lambda path: path.write_text(""),
    "garbage": lambda path: path.write_bytes(os.urandom(500)),
    "newer": lambda path: path.write_text(path.read_text().replace("schema = 1", "schema = 2")),
    "deep": lambda path: path.write_text("x = " + "[" * 5000),
    "of an older version": lambda path: path.write_text(path.read_text().replace("verdict_sha256", "other_sha256")),
    "a link": lambda path: path.symlink_to(path.rename(path.with_name("elsewhere")).name),
}


@pytest.mark.parametrize("way", OVERLAYS)
def test_a_damaged_overlay_does_not_turn_speculation_on(off: Deployed, way: str) -> None:
    """With a sound log the log decides; with the log moved away as well, what cannot be read is not "as certified"."""
    OVERLAYS[way](off.path / "policy.live.toml")
    shutil.copytree(off.path, off.path.parent / "both", symlinks=True)
    with_log = replace(off, path=off.path.parent / "both")
    (with_log.path / "watch.jsonl").unlink()

    assert (1, False) == (off.watch(1)[0], is_on(off))
    if way != "deleted":  # without both files it is a first watch
        assert (1, False) == (with_log.watch(1)[0], is_on(with_log))


def test_what_is_off_for_damage_comes_back_by_evidence(off: Deployed) -> None:
    """A route that is off because its log cannot be read is tried again, step by step, once its guards are kept."""
    (off.path / "policy.live.toml").unlink()
    (off.path / "watch.jsonl").write_bytes(b"")

    code, output = off.watch(200)

    assert (0, ["try 2>1", "settled 1>1", "try 1>0", "settled 0>0"]) == (code, output.changes)
    assert is_on(off)


@pytest.mark.parametrize("way", [*FOUND, *HIDDEN])
def test_a_damaged_log_does_not_turn_speculation_off_either(tmp_path: Path, way: str) -> None:
    """Where nothing was turned off, the overlay shows it: speculation goes on, whatever the log looks like."""
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    with deployed.session(output) as session:
        session.run(1)
        shutil.copy(tmp_path / "watch.jsonl", tmp_path / "old.jsonl")
        session._outputs.note("change", workload="nowhere", change="off", from_step=0, to_step=2, because="")
    {**FOUND, **HIDDEN}[way](tmp_path / "watch.jsonl")

    code, _ = deployed.watch(1)

    assert (0, SETTING) == (code, tomllib.loads(deployed.overlay)["route"][0]["setting"])


def test_a_reset_is_both_files(off: Deployed) -> None:
    """A person who has mended the server moves the log and the overlay away: the watch begins as certified."""
    for name in ("watch.jsonl", "policy.live.toml"):
        (off.path / name).rename(off.path / f"{name}.old")

    assert (0, True) == (off.watch(1)[0], is_on(off))


def test_a_policy_that_was_edited_keeps_what_the_overlay_says(off: Deployed) -> None:
    """With the log lost, a policy that lists other steps below the certified one does not turn its route on."""
    (off.path / "watch.jsonl").unlink()
    off.policy(route={"ladder": []})

    assert (1, False) == (off.watch(1)[0], is_on(off))


def test_an_overlay_that_is_a_folder_is_an_error(off: Deployed) -> None:
    """A folder at the overlay's place is found before any request: code 4, with what to do."""
    (off.path / "policy.live.toml").unlink()
    (off.path / "policy.live.toml").mkdir()

    with pytest.raises(GatekeeperError, match="Is a directory") as refused:
        off.watch(1)

    assert (4, True) == (refused.value.exit_code, "--overlay" in refused.value.hint)


def test_a_round_without_an_overlay_written_is_not_a_success(tmp_path: Path) -> None:
    """The overlay's folder goes away after the start: readers never get what was found, so `--rounds 1` is code 4."""
    folder = tmp_path / "etc"
    folder.mkdir()
    deployed, output = Deployed.scripted(tmp_path), WatchOutput()
    with deployed.session(output, overlay=folder / "live.toml") as session:
        shutil.rmtree(folder)
        code = session.run(1)

    assert (4, True) == (code, any("cannot write" in line for line in output.messages))


@pytest.mark.parametrize(
    "name", [".policy.live.toml.fresh", ".policy.live.toml.lock", ".watch.jsonl.lock", "watch.jsonl", "watch.jsonl.1"]
)
def test_a_link_beside_the_overlay_is_not_followed(tmp_path: Path, name: str) -> None:
    """Whoever may write next to the policy cannot make the watch empty, write or append to another file."""
    deployed = Deployed.scripted(tmp_path)
    target = tmp_path / "other"
    target.write_text("mine")
    (tmp_path / name).symlink_to(target)

    if name.endswith(".fresh"):  # it is removed, and a new file written in its place
        assert 0 == deployed.watch(1)[0]
    else:
        with pytest.raises(GatekeeperError, match="it is a link") as refused:
            deployed.watch(1)
        assert 4 == refused.value.exit_code

    assert "mine" == target.read_text()


def test_an_overlay_that_is_a_link_is_replaced(tmp_path: Path) -> None:
    """The overlay is put in the place of a link; the file that it pointed to stays as it was."""
    deployed = Deployed.scripted(tmp_path)
    target = tmp_path / "other"
    target.write_text("mine")
    (tmp_path / "policy.live.toml").symlink_to(target)

    deployed.watch(1)

    assert ("mine", False) == (target.read_text(), (tmp_path / "policy.live.toml").is_symlink())


def test_a_watch_without_descriptors_blames_no_server(tmp_path: Path) -> None:
    """Where no connection can be opened a round has no evidence and no route moves; later it goes on."""
    output = WatchOutput()
    errors = {"metric": "error_rate", "at_most": 0.2, "for": 0.0}
    with Answering() as server:
        deployed = Deployed.served(tmp_path, server.url)
        deployed.policy(guards=[errors], watch={"interval": 0.1, "duty": 0.5})
        with deployed.session(output, url=server.url) as session:
            session.run(1)
            with few_descriptors(0):
                without = session.run(2)
            again = session.run(1)

    assert (4, 0, []) == (without, again, output.changes)
    assert any("no evidence in this round" in line for line in output.messages)
    assert tomllib.loads(deployed.overlay)["route"][0]["speculation"] is True
