"""What launchd, systemd and cron are given, read by their own readers or held against their manuals."""

import os
import plistlib
import pwd
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core import toml_file
from gatekeeper.fleet.cells import HostSettings, HostsFile
from tests.builders.golden_words import says

SOAK = Path(__file__).parents[2] / "soak"
PLISTS = sorted((SOAK / "launchd").glob("*.plist"))
NIGHTLY = [path for path in PLISTS if "nightly" in path.stem]
DAEMONS = [path for path in PLISTS if "UserName" in path.read_text()]
UNITS = sorted((SOAK / "systemd").iterdir())

# The keys of launchd.plist(5), and what each takes; the ones that no soak wants are left out.
LAUNCHD: dict[str, type | tuple[type, ...]] = {
    "Label": str,
    "ProgramArguments": list,
    "WorkingDirectory": str,
    "EnvironmentVariables": dict,
    "StartCalendarInterval": (dict, list),
    "ProcessType": str,
    "LowPriorityIO": bool,
    "LowPriorityBackgroundIO": bool,
    "Nice": int,
    "RunAtLoad": bool,
    "KeepAlive": bool,
    "ThrottleInterval": int,
    "ExitTimeOut": int,
    "StandardOutPath": str,
    "StandardErrorPath": str,
    "Umask": (int, str),
    "UserName": str,
}


def plist(path: Path) -> dict[str, Any]:
    read: dict[str, Any] = plistlib.loads(path.read_bytes())
    return read


@pytest.mark.parametrize("path", PLISTS, ids=lambda path: path.stem)
def test_launchd_knows_every_key(path: Path) -> None:
    """A file named by its label, with keys of launchd.plist(5) and values of their types; every path is whole."""
    read = plist(path)

    assert path.stem == read["Label"]
    assert [] == [key for key, value in read.items() if not isinstance(value, LAUNCHD[key])]
    for key in ("WorkingDirectory", "StandardOutPath", "StandardErrorPath"):
        assert read[key].startswith("/Users/YOU/")
    program = "gatekeeper/soak/nightly.sh" if path in NIGHTLY else ".local/bin/gatekeeper"
    assert read["ProgramArguments"][0] == f"/Users/YOU/{program}"
    assert all(isinstance(word, str) for word in read["ProgramArguments"])


@pytest.mark.parametrize("path", NIGHTLY, ids=lambda path: path.stem)
def test_launchd_runs_it_once_a_night(path: Path) -> None:
    """At a time of day and at no other, never again because it failed, with time to end its servers."""
    read = plist(path)

    assert {"Hour", "Minute"} == read["StartCalendarInterval"].keys()
    assert not read["RunAtLoad"]
    assert "KeepAlive" not in read
    assert read["ExitTimeOut"] >= 60
    assert read["EnvironmentVariables"]["PATH"].startswith("/Users/YOU/.local/bin:/opt/homebrew/bin:")


LAUNCHCTL = """case "$1 $(cat "$HOME/loaded" 2>/dev/null)" in
"bootstrap yes") echo "Bootstrap failed: 5: Input/output error" >&2; exit 5 ;;
bootstrap*) echo yes > "$HOME/loaded" ;;
"bootout yes") echo ending > "$HOME/loaded" ;;
bootout*) exit 3 ;;
esac"""
"""As launchctl it refuses what is loaded already, and to end what is not."""


def installed(*words: str, home: Path, times: int = 1) -> str:
    """Run `soak/launchd/install` with *words* in a checkout in *home*; return what launchctl was given.

    Root's commands are stand-ins: what is written to a place of the system is in `home/NAME`.
    """
    (home / "Library" / "LaunchAgents").mkdir(parents=True)
    (home / "bin").mkdir()
    called = home / "called"
    records = f'printf "<%s>" "$@" >> {shlex.quote(str(called))}'
    sudo = f'[ "$1" = tee ] && cat > {shlex.quote(str(home))}/"${{2##*/}}"'
    sudo = f'{sudo} || {{ [ "$1" != launchctl ] || {{ shift; {shlex.quote(str(home / "bin/launchctl"))} "$@"; }}; }}'
    for name, script in {"launchctl": f"{records}\n{LAUNCHCTL}", "sudo": f"{records}\n{sudo}"}.items():
        (home / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (home / "bin" / name).chmod(0o755)
    shutil.copytree(SOAK, home / "gatekeeper" / "soak")
    environment = {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "HOME": str(home)}
    program = home / "gatekeeper" / "soak" / "launchd" / "install"
    for _ in range(times):
        subprocess.run([program, *words], cwd=home, env=environment, check=True, timeout=60)
    return called.read_text()


def check_places(path: Path, placed: Path, home: Path) -> dict[str, Any]:
    """Return the plist as it was placed, after checking that its places are this user's and its program can start."""
    read = plist(placed)
    assert not re.search("YOU|>NAME<", placed.read_text())
    assert str(home / "gatekeeper") == read["WorkingDirectory"]
    assert path not in NIGHTLY or os.access(read["ProgramArguments"][0], os.X_OK)
    assert Path(read["StandardOutPath"]).parent == home / "Library" / "Logs"
    return read


@pytest.mark.parametrize("path", [path for path in PLISTS if "proxy" in path.stem or path not in DAEMONS])
def test_an_agent_is_put_in_place(path: Path, tmp_path: Path) -> None:
    """Every place is this user's, whatever stands in its name, and what launchd is to start can start."""
    home = tmp_path / "Ann & Bob's home"

    called = installed(path.stem, home=home)

    placed = home / "Library" / "LaunchAgents" / path.name
    check_places(path, placed, home)
    assert f"<bootstrap><gui/{os.getuid()}><{placed}>" in called


@pytest.mark.parametrize("path", DAEMONS, ids=lambda path: path.stem)
def test_a_daemon_is_put_in_place(path: Path, tmp_path: Path) -> None:
    """As root's file, which launchd demands, in the system's domain; it runs as the user who installs it."""
    home = tmp_path / "Ann & Bob's home"

    called = installed("--daemon", path.stem, home=home)

    place = f"/Library/LaunchDaemons/{path.name}"
    read = check_places(path, home / path.name, home)
    assert (pwd.getpwuid(os.getuid()).pw_name, str(home)) == (read["UserName"], read["EnvironmentVariables"]["HOME"])
    loaded = f"<bootout><system/{path.stem}>", f"<bootstrap><system><{place}>"
    assert (
        f"<tee><{place}><chown><root:wheel><{place}><chmod><644><{place}>"
        + "".join(f"<launchctl>{words}{words}" for words in loaded)
        == called
    )


def test_systemd_reads_every_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say of them, in a home folder with a space in its name."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    home = tmp_path / "a home"
    (home / "run").mkdir(parents=True)
    shutil.copytree(SOAK, home / "gatekeeper" / "soak")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "SYSTEMD_UNIT_PATH": f"{home / 'gatekeeper' / 'soak' / 'systemd'}:",
    }

    for unit in UNITS:
        command: list[str | Path] = [
            "systemd-analyze",
            "--user",
            "verify",
            "--man=no",
            home / "gatekeeper" / "soak" / "systemd" / unit.name,
        ]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        if "Failed to initialize manager" in ran.stderr:
            pytest.skip("systemd-analyze cannot work here")

        assert (0, []) == (ran.returncode, [line for line in ran.stderr.splitlines() if "gatekeeper" in line]), unit


def test_a_failed_night_is_mailed(tmp_path: Path) -> None:
    """The shell of the unit that tells of it: the line reaches mail as it is, whatever the host is called."""
    text = (SOAK / "systemd" / "gatekeeper-nightly-failed.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    (tmp_path / "mail").write_text('#!/bin/sh\nprintf "<%s>" "$@"; cat\n')
    (tmp_path / "mail").chmod(0o755)
    host = "mini $(touch hacked)"
    (tmp_path / "runs" / host).mkdir(parents=True)
    (tmp_path / "runs" / host / "last.txt").write_text("m4: failed\n")

    ran = subprocess.run(
        shlex.split(command.replace("$$", "$")),
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOST": host, "MAILTO": "ann"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    says("shipped", "a failed night is mailed", ran.stdout.removesuffix("\n"), host=host)
    assert not (tmp_path / "hacked").exists()


def test_the_unit_of_a_fleet_gives_the_script_words_it_knows(tmp_path: Path) -> None:
    """Its command line, as systemd splits it, is one that the script accepts, as far as to look for gatekeeper."""
    text = (SOAK / "systemd" / "gatekeeper-nightly-fleet.service").read_text()
    settings = dict(re.findall(r'^Environment="?(\w+)=(.*?)"?$', text, re.MULTILINE))
    (command,) = re.findall(r"^ExecStart=%h/gatekeeper/(.*)$", text, re.MULTILINE)
    words: list[str] = []
    for word in command.split():
        variable = re.fullmatch(r"\$\{(\w+)\}", word)
        words += [settings[variable[1]]] if variable else settings[word[1:]].split() if word.startswith("$") else [word]

    ran = subprocess.run(
        ["bash", SOAK.parent / words[0], *words[1:]],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "GATEKEEPER": "/nowhere/gatekeeper"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    says("shipped", "the unit of a fleet gives the script words it knows", ran.stdout.removesuffix("\n"))
    assert ["slos/m4-24gb.toml", "slos/m4-16gb.toml"] == words[-2:]
    assert (tmp_path / "runs/nightly-fleet/last.txt").is_file()


def test_the_hosts_example_is_a_hosts_file() -> None:
    """Gatekeeper's own reader takes it, and every key that there is stands in it."""
    file = SOAK / "hosts.example.toml"
    read = toml_file.parse(file.read_text(), str(file), HostsFile)

    assert {"mini", "studio"} == read.host.keys()
    used = {key for host in read.host.values() for key in host.model_fields_set}
    assert HostSettings.model_fields.keys() == used


@pytest.mark.parametrize(
    ("unit", "lines"),
    [
        ("gatekeeper-nightly", {"KillMode=mixed", "Type=oneshot", "OnFailure=gatekeeper-nightly-failed.service"}),
        ("gatekeeper-nightly-fleet", {"KillMode=mixed", "OnFailure=gatekeeper-nightly-fleet-failed.service"}),
        ("gatekeeper-proxy", {"Restart=on-failure", "TimeoutStopSec=90"}),
    ],
)
def test_systemd_ends_a_service_as_it_ends_itself(unit: str, lines: set[str]) -> None:
    """A night gets one signal and is not started again; the proxy is, and has time to drain."""
    text = (SOAK / "systemd" / f"{unit}.service").read_text()

    assert lines <= set(text.splitlines())
    assert ("proxy" in unit) == ("Restart=" in text)
