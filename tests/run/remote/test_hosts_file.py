"""The hosts file: names, and what is wrong with them, located."""

from pathlib import Path

import pytest

from gatekeeper.core.errors import InputError
from gatekeeper.run.remote import hosts_file

FILE = """schema = 1

[host.mini]
ssh = "anna@mini.local"
home = "/Volumes/fast/gatekeeper"

[host.mini.models]
"../models/qwen" = "~/models/qwen"

[host.bare]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.toml"
    path.write_text(FILE)
    return path


def test_a_name_is_what_the_file_says(file: Path) -> None:
    """
    A named host has its own address and places; without an address its name is what ssh knows.
    """
    address, mini = hosts_file.find("mini", file)

    assert ("anna@mini.local", "/Volumes/fast/gatekeeper") == (address, mini.home)
    assert {"../models/qwen": "~/models/qwen"} == mini.models
    assert "bare" == hosts_file.find("bare", file)[0]


def test_an_unknown_name_is_sshs_own(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A hosts file is optional: a name that it does not have is an ssh address.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    assert ("studio.local", hosts_file.HostSettings()) == hosts_file.find("studio.local", file)
    assert ("mini", hosts_file.HostSettings()) == hosts_file.find("mini", None)


def test_the_projects_file_comes_before_the_users(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    soak/hosts.toml of this folder, else the one of the user.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.config/gatekeeper").mkdir(parents=True)
    (tmp_path / "home/.config/gatekeeper/hosts.toml").write_text('[host.mini]\nssh = "theirs"\n')

    users = hosts_file.find("mini", None)[0]
    (tmp_path / "soak").mkdir()
    (tmp_path / "soak/hosts.toml").write_text(file.read_text())

    assert ("theirs", "anna@mini.local") == (users, hosts_file.find("mini", None)[0])


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ('[host.mini]\nshh = "x"\n', "line 2: host.mini.shh: unknown key"),
        ("[host.mini]\nssh = 3\n", "line 2: host.mini.ssh: "),
        ('[host.mini.models]\n"a" = "models/a"\n', "host.mini.models"),
        ("schema = 2\n", "line 1: schema"),
        ("[host.mini\n", "not TOML"),
    ],
)
def test_what_is_wrong_is_located(file: Path, written: str, sentence: str) -> None:
    """
    A mistake is exit 2 with its file, line and key.
    """
    file.write_text(written)

    with pytest.raises(InputError) as refused:
        hosts_file.find("mini", file)

    assert f"{file}" in refused.value.message
    assert sentence in refused.value.message


def test_a_mistyped_key_is_answered_with_the_nearest(file: Path) -> None:
    """
    `shh` was meant to be `ssh`.
    """
    file.write_text('[host.mini]\nshh = "x"\n')

    with pytest.raises(InputError) as refused:
        hosts_file.find("mini", file)

    assert "did you mean 'ssh'?" == refused.value.hint


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    """
    --hosts with a path that is not there is exit 2.
    """
    with pytest.raises(InputError, match="cannot read hosts file"):
        hosts_file.find("mini", tmp_path / "none.toml")
