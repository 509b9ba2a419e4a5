"""The log: it survives crashes and full files, and never grows without bound."""

import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.errors import GatekeeperError
from gatekeeper.live.watch_log import Log, entries
from tests.builders.disk import largest_file
from tests.builders.golden_words import says

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def log(path: Path, limit: int = 10_000, state: dict[str, Any] | None = None) -> Log:
    return Log(path, wall=lambda: NOW, state=lambda: state or {}, limit=limit)


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    """What was written is read again, with its time and kind, over several sessions."""
    path = tmp_path / "watch.jsonl"
    for number in range(3):
        with log(path) as watch_log:
            watch_log.write("look", number=number)

    expected = [{"at": "2026-01-01T00:00:00.000000Z", "kind": "look", "number": number} for number in range(3)]
    assert expected == list(entries(path))


@pytest.mark.parametrize("torn", [b'{"at": "2026", "kind": "lo', b"\x00\xff\xfe", b"[]", b'{"kind": 3}', b""])
def test_a_torn_line_is_damage(tmp_path: Path, torn: bytes) -> None:
    """A crash inside a line loses that line alone, and a reader learns of it."""
    path = tmp_path / "watch.jsonl"
    with log(path) as watch_log:
        watch_log.write("first")
    path.write_bytes(path.read_bytes() + torn)
    with log(path) as watch_log:
        watch_log.write("second")

    assert ["first", *(["damaged"] if torn else []), "second"] == [entry["kind"] for entry in entries(path)]


def test_every_flipped_bit_is_damage(tmp_path: Path) -> None:
    """A flipped bit may leave another valid entry, a step of 0 instead of 2: the checksum of the line finds it."""
    path = tmp_path / "watch.jsonl"
    with log(path) as watch_log:
        written = watch_log.write("change", to_step=2)
    content = path.read_bytes()
    undamaged = []
    for place in range(0, 8 * (len(content) - 1), 3):  # of each byte some, and each of the eight
        flipped = bytearray(content)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        undamaged += [entry for entry in entries(path) if entry["kind"] != "damaged"]

    assert [] == [entry for entry in undamaged if {name: entry.get(name) for name in written} != written]


def test_a_line_without_a_checksum_is_damaged(tmp_path: Path) -> None:
    """Nothing shows that it is what was written."""
    path = tmp_path / "watch.jsonl"
    path.write_text('{"at": "2026-01-01T00:00:00Z", "kind": "look"}\n')

    assert [{"kind": "damaged"}] == list(entries(path))


def test_a_full_log_is_put_aside_with_its_state(tmp_path: Path) -> None:
    """Past its limit the file begins anew with the state, one old file is kept, and both stay small."""
    path = tmp_path / "watch.jsonl"
    with log(path, limit=2000, state={"routes": {"json": "plain"}}) as watch_log:
        for number in range(1000):
            watch_log.write("look", number=number)

    first, *rest = entries(path)
    assert ("state", {"json": "plain"}) == (first["kind"], first["routes"])
    assert 999 == rest[-1]["number"]
    assert {"watch.jsonl", "watch.jsonl.1"} == {path.name for path in tmp_path.iterdir()}
    assert all(path.stat().st_size < 2200 for path in tmp_path.iterdir())


def test_a_private_log_stays_private(tmp_path: Path) -> None:
    """A file that its owner alone may read is followed by one that its owner alone may read."""
    path = tmp_path / "live.jsonl"
    with log(path, limit=200) as watch_log:
        path.chmod(0o600)
        for number in range(20):
            watch_log.write("request", number=number)

    assert [0o600, 0o600] == [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()]


def test_a_crash_between_two_names_loses_nothing(tmp_path: Path) -> None:
    """If the full file was renamed and no new one begun, the next session continues with the full one."""
    path = tmp_path / "watch.jsonl"
    with log(path) as watch_log:
        watch_log.write("first")
    path.rename(watch_log.previous)
    with log(path):
        pass

    assert ["first"] == [entry["kind"] for entry in entries(path)]


def test_a_full_disk_is_an_error_and_costs_no_later_entry(tmp_path: Path) -> None:
    """A file that cannot grow ends in an error; once there is room, the next entry is a line of its own."""
    path = tmp_path / "watch.jsonl"
    with log(path) as watch_log:
        watch_log.write("look")
        with largest_file(path.stat().st_size + 10), pytest.raises(GatekeeperError, match=r"watch\.jsonl"):
            watch_log.write("look")
        watch_log.write("change")

    assert ["look", "change"] == [entry["kind"] for entry in entries(path)]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A log that is a link would append to another file: it is refused, for reading too."""
    target = tmp_path / "other"
    target.write_text("mine")
    (tmp_path / "watch.jsonl").symlink_to(target)

    with pytest.raises(GatekeeperError) as refused:
        log(tmp_path / "watch.jsonl").__enter__()
    says("watch", "a link is not followed (1)", refused.value.message)
    with pytest.raises(GatekeeperError) as refused:
        list(entries(tmp_path / "watch.jsonl"))
    says("watch", "a link is not followed (2)", refused.value.message)

    assert "mine" == target.read_text()


def test_what_is_no_file_is_no_log(tmp_path: Path) -> None:
    """A device that can be read for ever, or a folder, is refused before it is read."""
    for place in (Path("/dev/zero"), tmp_path):
        with pytest.raises(GatekeeperError, match="it is not a regular file"):
            list(entries(place))


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    """NaN and infinity never reach the log, where other readers would choke on them: they are null."""
    path = tmp_path / "watch.jsonl"
    with log(path) as watch_log:
        watch_log.write("look", value=float("nan"), guards={"ratio": (1.5, float("inf"))})

    assert [(None, [1.5, None])] == [(entry["value"], entry["guards"]["ratio"]) for entry in entries(path)]
