"""The commands of `gatekeeper remote`: each does there what it does here, and nothing travels that was not named."""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Callable

import psutil
import pytest

from gatekeeper import __version__
from tests.builders.place import ROOT, Done, Place
from tests.builders.ssh_server import free_port
from tests.run.remote.conftest import Make, Pair

Until = Callable[[Callable[[], bool]], None]
Ended = Callable[[subprocess.Popen[str]], Done]

REAL_TIME = {"time": "real", "token": "1 ms", "verify": "1.1 ms", "draft_token": "0.1 ms", "prefill": "1 ms"}
LONG = {"duration": "600 s", "sentinel_drift": 0.9}
ON = ("--on", "far")


def begun(made: Pair, until: Until, *words: str) -> subprocess.Popen[str]:
    """Start a certify that lasts for minutes, and wait until it measures over there."""
    process = made.place.start("remote", "certify", "slo.toml", *ON, *words)
    until(lambda: any(made.jobs.glob("*/run/baseline.jsonl")))
    return process


def test_a_soak_a_sweep_and_a_probe_answer_as_here(pair: Make) -> None:
    """
    The same verdict, choice and answer as the same commands give on this machine; a probe leaves no run behind.
    """
    made = pair()
    soak = ("soak", "slo.toml", "--set", "num_draft_tokens=2", "--json")

    far = [
        made.place.run("remote", *soak, *ON, "--out", "far-soak", code=0),
        made.place.run("remote", "sweep", "slo.toml", *ON, "--out", "far-sweep", "--json", code=0),
        made.place.run("remote", "probe", "slo.toml", *ON, "--seconds", "20", "--json", code=0),
    ]
    near = [
        made.place.run(*soak, code=0),
        made.place.run("sweep", "slo.toml", "--json", code=0),
        made.place.run("probe", "slo.toml", "--seconds", "20", "--json", code=0),
    ]

    outcomes = [[one["outcome"] for one in done.document["workloads"]] for done in (far[0], near[0])]
    assert outcomes[0] == outcomes[1]
    assert "far-sweep" == far[1].document["run"]
    choices = [{name: one["setting"] for name, one in done.document["workloads"].items()} for done in (far[1], near[1])]
    assert choices[0] == choices[1]
    assert near[2].document.keys() == far[2].document.keys()
    assert not [one for one in (made.place.path / "runs").iterdir() if one.is_dir() and (one / "probe.json").exists()]


def test_host_and_doctor_speak_from_over_there(pair: Make) -> None:
    """
    Their own options are passed on, their lines come as they are, and so does the exit code.
    """
    made = pair(far={"GATEKEEPER_HOST_AS": "macos"})

    host = made.place.run("remote", "host", *ON, "--samples", "2", "--interval", "0.05", "--json", code=0)
    doctor = made.place.run("remote", "doctor", *ON, "--json", code=0)
    wrong = made.place.run("remote", "host", *ON, "--sample", "x")

    assert 2 == len([json.loads(line) for line in host.out.splitlines()])
    assert __version__ == doctor.document["versions"]["gatekeeper"]
    assert 2 == wrong.code
    assert "--sample" in wrong.err


def test_a_run_is_listed_fetched_and_no_longer_waited_for(pair: Make, until: Until, ended: Ended) -> None:
    """
    A run that nobody followed to its end is listed as not fetched; fetch brings it, and then nothing waits.
    """
    made = pair(REAL_TIME, soak={"duration": "2 s", "sentinel_drift": 0.9})
    process = begun(made, until)
    early = made.place.run("remote", "fetch", json.loads((made.job() / "job.json").read_text())["run_id"], *ON, code=3)
    process.kill()
    ended(process)
    until((made.job() / "exit.json").exists)

    listed = made.place.run("remote", "list", *ON, code=0)
    fetched = made.place.run("remote", "fetch", *ON, "--json")
    nothing = made.place.run("remote", "fetch", *ON, code=2)
    unknown = made.place.run("remote", "fetch", made.job().name[:-1], *ON, code=2)
    again = made.place.run("remote", "fetch", made.job().name, *ON, "--out", "copy")

    assert "still under way" in early.err
    assert f"exit {fetched.code}, not fetched" in listed.out
    assert fetched.document == made.home(fetched, f"runs/{made.job().name}")
    assert "no run waits to be fetched" in nothing.err
    assert f"did you mean '{made.job().name}'?" in unknown.err
    assert "run: copy" in again.out


def test_only_named_variables_travel_and_none_is_written(pair: Make, until: Until, ended: Ended) -> None:
    """
    A named variable is in the environment of the job and nowhere on that disk; one that is not named stays here.
    """
    made = pair(REAL_TIME, soak=LONG)
    secrets = {"MY_KEY": "s3cr3t-4711", "OTHER_KEY": "s3cr3t-0815"}
    made = Pair(Place(made.place.path, {**made.place.environment, **secrets}), made.server)

    process = begun(made, until, "--send-env", "MY_KEY")
    there = psutil.Process(json.loads((made.job() / "pids.json").read_text())["gatekeeper"]).environ()
    written = [path for path in made.server.root.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]
    made.place.run("remote", "cancel", *ON, code=0)
    ended(process)
    unset = made.place.run("remote", "certify", "slo.toml", *ON, "--send-env", "NOT_SET", code=2)

    assert "s3cr3t-4711" == there["MY_KEY"]
    assert "OTHER_KEY" not in there
    assert [] == written
    assert "no such variable here" in unset.err


def test_a_key_the_slo_needs_has_to_be_named(pair: Make) -> None:
    """
    api_key_env alone sends nothing: exit 2 names the option, before anything is connected to.
    """
    made = pair()
    slo = made.place.path / "slo.toml"
    slo.write_text(slo.read_text().replace("[subject]\n", '[subject]\napi_key_env = "MY_KEY"\n'))

    done = made.place.run("remote", "certify", "slo.toml", "--on", "nowhere.invalid", code=2)

    assert "--send-env MY_KEY" in done.err


def test_a_key_that_is_named_is_there_when_that_machine_is_looked_at(pair: Make) -> None:
    """
    A run with a named key comes as far as its server, which is down here: looking around does not miss the key.
    """
    made = pair()
    made = Pair(Place(made.place.path, {**made.place.environment, "MY_KEY": "s3cr3t-4711"}), made.server)
    down = f"http://127.0.0.1:{free_port()}/v1"
    for name in ("t", "d"):
        shutil.copytree(ROOT / "models/little-draft-lite", made.place.path / name)
    subject = {"backend": "openai", "target": "t", "drafts": ["d"], "url": down, "plain_url": down}
    further = {"api_key_env": "MY_KEY", "knobs": {"num_draft_tokens": {"field": "n"}}}
    made.place.write_slo(
        tomllib.loads((made.place.path / "slo.toml").read_text()) | {"subject": {**subject, **further}}
    )

    done = made.place.run("remote", "certify", "slo.toml", *ON, "--send-env", "MY_KEY", "--ship-models")

    assert 0 != done.code
    assert "is not set" not in done.err
    assert down.removesuffix("/v1") in done.err


def test_names_with_a_meaning_to_a_shell_mean_nothing(pair: Make) -> None:
    """
    Quotes, spaces, dollars and semicolons in the SLO's path, the run directory and the far home are only characters.
    """
    made = pair()
    odd = "a 'b\" ; touch pwned; $(touch pwned) `touch pwned` *"
    (made.place.path / odd).mkdir()
    for path in list(made.place.path.iterdir()):
        if path.is_file():
            (made.place.path / odd / path.name).write_text(path.read_text())
    hosts = made.place.path / "soak/hosts.toml"
    environment = hosts.read_text()
    hosts.write_text(environment + f'home = "~/{odd.replace(chr(34), "")}"\n')

    made.place.run("remote", "certify", f"{odd}/slo.toml", *ON, "--out", f"{odd}/run", code=0)

    assert "promoted" == made.place.verdict(f"{odd}/run")["outcome"]
    assert [] == list(made.place.path.parent.rglob("pwned*"))
    assert (made.server.home / odd.replace('"', "") / "jobs").is_dir()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("certify", "none.toml", "--on", "far"), 2, "does not exist"),
        (("certify", "slo.toml"), 2, "--on"),
        (("certify", "slo.toml", "--on", "-oProxyCommand=x"), 2, "is no host"),
        (("certify", "slo.toml", "--on", "far", "--hosts", "none.toml"), 2, "cannot read hosts file"),
        (("certify", "slo.toml", "--on", "far", "--patience", "soon"), 2, "--patience"),
        (("certify", "slo.toml", "--on", "far", "--out", "."), 2, "is not empty"),
        (("certify", "slo.toml", "--on", "far", "--resume"), 2, "no unfinished run of this command"),
        (("attach", "--on", "far"), 2, "no run is under way"),
        (("cancel", "--on", "far"), 2, "no run is under way"),
        (("sertify", "slo.toml", "--on", "far"), 2, "did you mean 'certify'?"),
        (("certify", "slo.toml", "--on", "nowhere.invalid"), 3, "nowhere.invalid"),
    ],
)
def test_what_is_wrong_with_a_command_is_said(pair: Make, words: tuple[str, ...], code: int, said: str) -> None:
    """
    A wrong command line is 2, a machine that can not be reached 3; each says what and what to do.
    """
    made = pair()

    done = made.place.run("remote", *words)

    assert (code, True) == (done.code, said in done.err), done.err
    assert [] == made.ledger()


def test_what_gatekeeper_there_refuses_is_refused_here(pair: Make) -> None:
    """
    A promise no run could prove ends with 2 and the words of the gatekeeper over there; no run directory is made up.
    """
    made = pair(
        objective=[{"metric": "ttft", "at_most": "1 s", "why": "p99", "scope": "population"}],
        soak={"max_duration": "1 s"},
    )

    here = made.place.run("certify", "slo.toml", "--out", "here")
    there = made.place.run("remote", "certify", "slo.toml", *ON, "--out", "there")

    assert here.code == there.code
    assert here.code in {2, 3}
    assert here.err.splitlines()[0].removeprefix("gatekeeper: ") in there.err
    assert not (made.place.path / "there").exists()


def test_nobody_waits_for_ever(pair: Make, until: Until, ended: Ended) -> None:
    """
    With the other machine gone for longer than --patience: exit 3, and what to do; it comes back, and so does the run.
    """
    made = pair(REAL_TIME, soak={"duration": "3 s", "sentinel_drift": 0.9})
    process = begun(made, until, "--patience", "1 s", "--out", "run")

    made.server.stop()
    gone = ended(process)
    made.server.start()
    done = made.place.run("remote", "certify", "slo.toml", *ON, "--out", "run")

    assert 3 == gone.code
    assert "the run goes on there; the same command attaches to it" in gone.err
    assert "attached to " in done.err
    made.home(done)


def test_somebody_else_s_run_is_ended_by_its_name_alone(pair: Make, until: Until, ended: Ended) -> None:
    """
    Cancel without a name ends no run of another owner: it says whose it is, and how to end it all the same.
    """
    made = pair(REAL_TIME, soak=LONG)
    process = begun(made, until)
    bob = Place(made.place.path, {**made.place.environment, "GATEKEEPER_OWNER": "bob@desk"})

    unnamed = bob.run("remote", "cancel", *ON, code=2)
    goes_on = process.poll() is None
    named = bob.run("remote", "cancel", made.job().name, *ON, code=0)
    done = ended(process)

    assert f"gatekeeper remote cancel {made.job().name} --on far" in unnamed.err
    assert goes_on
    assert "ended by itself" in named.out
    assert "was cancelled by bob@desk" in done.err
