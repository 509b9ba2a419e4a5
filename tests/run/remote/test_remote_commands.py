"""The commands of `gatekeeper remote`: each does what the local command does, and only named variables are sent."""

import json
import shutil
import tomllib

import pytest

from gatekeeper import __version__
from tests.builders.project_folder import ROOT
from tests.builders.ssh_server import free_port
from tests.builders.waiting import until
from tests.run.remote.conftest import CERTIFY, ENDLESS, ON, REAL_TIME, Ended, Make


@pytest.mark.nightly
def test_a_soak_a_sweep_and_a_probe_answer_as_here(pair: Make) -> None:
    """
    The same verdict, choice and probe as the local commands; a probe leaves no run behind.
    """
    remote = pair()
    soak = ("soak", "slo.toml", "--set", "num_draft_tokens=2", "--json")

    ended_remotely = [
        remote.project.run("remote", *soak, *ON, "--out", "remote-soak", code=0),
        remote.project.run("remote", "sweep", "slo.toml", *ON, "--out", "remote-sweep", "--json", code=0),
        remote.project.run("remote", "try", "slo.toml", *ON, "--seconds", "20", "--json", code=0),
    ]
    ended_locally = [
        remote.project.run(*soak, code=0),
        remote.project.run("sweep", "slo.toml", "--json", code=0),
        remote.project.run("try", "slo.toml", "--seconds", "20", "--json", code=0),
    ]

    outcomes = [
        [workload["outcome"] for workload in done.document["workloads"]]
        for done in (ended_remotely[0], ended_locally[0])
    ]
    assert outcomes[0] == outcomes[1]
    assert "remote-sweep" == ended_remotely[1].document["run"]
    choices = [
        {name: workload["setting"] for name, workload in done.document["workloads"].items()}
        for done in (ended_remotely[1], ended_locally[1])
    ]
    assert choices[0] == choices[1]
    assert ended_locally[2].document.keys() == ended_remotely[2].document.keys()
    assert not [
        path for path in (remote.project.path / "runs").iterdir() if path.is_dir() and (path / "probe.json").exists()
    ]


def test_host_and_doctor_run_there(pair: Make) -> None:
    """
    Their own options are passed on, their lines come as they are, and so does the exit code.
    """
    remote = pair(remote={"GATEKEEPER_HOST_AS": "macos"})

    host = remote.project.run("remote", "host", *ON, "--samples", "2", "--interval", "0.05", "--json", code=0)
    doctor = remote.project.run("remote", "doctor", *ON, "--json", code=0)
    wrong = remote.project.run("remote", "host", *ON, "--sample", "x")

    assert 2 == len([json.loads(line) for line in host.out.splitlines()])
    assert __version__ == doctor.document["versions"]["gatekeeper"]
    assert 2 == wrong.code
    assert "--sample" in wrong.err


def test_only_named_variables_are_sent_and_none_is_written(pair: Make, ended: Ended) -> None:
    """
    A named variable is in the environment of the job and nowhere on that disk; one that is not named is not sent.
    """
    remote = pair(REAL_TIME, soak=ENDLESS).with_environment(MY_KEY="s3cr3t-4711", OTHER_KEY="s3cr3t-0815")

    process = remote.project.start(*CERTIFY, "--send-env", "MY_KEY")
    until(remote.measuring)
    process_environment = remote.process().environ()
    written = [path for path in remote.server.root.rglob("*") if path.is_file() and b"s3cr3t" in path.read_bytes()]
    remote.project.run("remote", "cancel", *ON, code=0)
    ended(process)
    unset = remote.project.run("remote", "certify", "slo.toml", *ON, "--send-env", "NOT_SET", code=2)

    assert "s3cr3t-4711" == process_environment["MY_KEY"]
    assert "OTHER_KEY" not in process_environment
    assert [] == written
    assert "this variable is not set" in unset.err


def test_a_key_the_slo_needs_has_to_be_named(pair: Make) -> None:
    """
    api_key_env alone sends nothing: exit 2 names the option, before anything is connected to.
    """
    remote = pair()
    slo = remote.project.path / "slo.toml"
    slo.write_text(slo.read_text().replace("[subject]\n", '[subject]\napi_key_env = "MY_KEY"\n'))

    done = remote.project.run("remote", "certify", "slo.toml", "--on", "nowhere.invalid", code=2)

    assert "--send-env MY_KEY" in done.err


@pytest.mark.nightly
def test_a_named_key_is_there_during_the_preflight(pair: Make) -> None:
    """
    A run with a named key gets as far as its server, which is down: the inventory does not miss the key.
    """
    remote = pair().with_environment(MY_KEY="s3cr3t-4711")
    down = f"http://127.0.0.1:{free_port()}/v1"
    for name in ("t", "d"):
        shutil.copytree(ROOT / "models/little-draft-lite", remote.project.path / name)
    subject = {"backend": "openai", "target": "t", "drafts": ["d"], "url": down, "plain_url": down}
    further = {"api_key_env": "MY_KEY", "knobs": {"num_draft_tokens": {"field": "n"}}}
    slo = tomllib.loads((remote.project.path / "slo.toml").read_text())
    slo["objective"] = [objective for objective in slo["objective"] if objective["metric"] != "token_agreement"]
    remote.project.write_slo({**slo, "subject": {**subject, **further}})

    done = remote.project.run("remote", "certify", "slo.toml", *ON, "--send-env", "MY_KEY", "--ship-models")

    assert 0 != done.code
    assert "is not set" not in done.err
    assert down.removesuffix("/v1") in done.err


def test_no_shell_reads_a_name(pair: Make) -> None:
    """
    Quotes, spaces, dollars and semicolons in the SLO's path, the run directory and the remote home are only characters.
    """
    remote = pair()
    odd = "a 'b\" ; touch pwned; $(touch pwned) `touch pwned` *"
    (remote.project.path / odd).mkdir()
    for path in list(remote.project.path.iterdir()):
        if path.is_file():
            (remote.project.path / odd / path.name).write_text(path.read_text())
    hosts = remote.project.path / "soak/hosts.toml"
    environment = hosts.read_text()
    hosts.write_text(environment + f'home = "~/{odd.replace(chr(34), "")}"\n')

    remote.project.run("remote", "certify", f"{odd}/slo.toml", *ON, "--out", f"{odd}/run", code=0)

    assert "promoted" == remote.project.verdict(f"{odd}/run")["outcome"]
    assert [] == list(remote.project.path.parent.rglob("pwned*"))
    assert (remote.server.home / odd.replace('"', "") / "jobs").is_dir()


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("certify", "none.toml", "--on", "mini"), 2, "does not exist"),
        (("certify", "slo.toml"), 2, "--on"),
        (("certify", "slo.toml", "--on", "-oProxyCommand=x"), 2, "is not a valid host name"),
        (("certify", "slo.toml", "--on", "mini", "--hosts", "none.toml"), 2, "cannot read hosts file"),
        (("certify", "slo.toml", "--on", "mini", "--patience", "soon"), 2, "--patience"),
        (("certify", "slo.toml", "--on", "mini", "--out", "."), 2, "is not empty"),
        (("certify", "slo.toml", "--on", "mini", "--resume"), 2, "no unfinished run of this command"),
        (("attach", "--on", "mini"), 2, "no run is running"),
        (("cancel", "--on", "mini"), 2, "no run is running"),
        (("sertify", "slo.toml", "--on", "mini"), 2, "did you mean 'certify'?"),
        (("certify", "slo.toml", "--on", "nowhere.invalid"), 3, "nowhere.invalid"),
    ],
)
def test_a_wrong_command_says_what_to_do(pair: Make, words: tuple[str, ...], code: int, sentence: str) -> None:
    """
    A wrong command line is 2, a host that cannot be reached 3; each says what is wrong and what to do.
    """
    remote = pair()

    done = remote.project.run("remote", *words)

    assert (code, True) == (done.code, sentence in done.err), done.err
    assert [] == remote.registry()


def test_an_objective_that_is_refused_there_is_refused_here(pair: Make) -> None:
    """
    An objective no run could prove ends with 2 and the words of the gatekeeper there; no run directory is made.
    """
    remote = pair(
        objective=[{"metric": "ttft", "at_most": "1 s", "why": "p99", "scope": "population"}],
        soak={"max_duration": "1 s"},
    )

    ended_locally = remote.project.run("certify", "slo.toml", "--out", "here")
    ended_remotely = remote.project.run("remote", "certify", "slo.toml", *ON, "--out", "there")

    assert (2, 2) == (ended_locally.code, ended_remotely.code)
    assert ended_locally.err.splitlines()[0].removeprefix("gatekeeper: ") in ended_remotely.err
    assert not (remote.project.path / "there").exists()
