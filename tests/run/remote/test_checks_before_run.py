"""Checks before a remote run, which prevent it or are only reported: clocks, disks, models, hosts."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core import slo
from gatekeeper.core.manifest import Model
from gatekeeper.run.remote.checks_before_run import ENVIRONMENT_BYTES, check_clock, check_disk, check_inventory
from gatekeeper.run.remote.upload import NamedModel
from tests.run.remote.conftest import Make

NOW = datetime(2026, 11, 21, tzinfo=UTC)
FAKETIME = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))), None)
MODEL = Model(
    name="m",
    digest="a" * 64,
    files={},
    bytes=1,
    quantisation="",
    vocabulary=None,
    tokens_sha256=None,
    template_sha256=None,
)


@pytest.mark.parametrize(
    ("skew", "round_trip", "stops"),
    [
        (0.0, 0.01, []),
        (1.9, 0.01, []),
        (-2.5, 0.01, [False]),
        (2.5, 2.0, []),  # the comparison itself may be off by so much
        (299.0, 0.01, [False]),
        (-301.0, 0.01, [True]),
        (86400.0, 0.01, [True]),
    ],
)
def test_clocks_that_are_apart(skew: float, round_trip: float, stops: list[bool]) -> None:
    """
    More than two seconds apart is a remark, more than five minutes prevents the run, minus the error of the comparison.
    """
    clock = list(check_clock({"skew_s": skew, "round_trip_s": round_trip}))

    assert stops == [remark.stops for remark in clock]
    assert all("clock" == remark.about and remark.hint for remark in clock)


@pytest.mark.parametrize(
    ("free", "installed", "ships", "stops"),
    [
        (1e9, True, 0.0, False),
        (1e9, False, 0.0, True),
        (1e9, True, 5e9, True),
        (5e9, False, 1e9, False),
        (0, True, 0, True),
    ],
)
def test_a_disk_too_small_stops_the_run(free: float, installed: bool, ships: float, stops: bool) -> None:
    """
    The environment, the uploaded models and the run itself must fit before anything is written.
    """
    disk = check_disk({"free_bytes": free}, installed=installed, upload_bytes=ships)

    assert (["disk"] if stops else []) == [remark.about for remark in disk]
    assert 1e9 < ENVIRONMENT_BYTES


def written(**host: Any) -> slo.Slo:
    tables = {
        "schema": 1,
        "name": "s",
        "subject": {"backend": "mlx", "target": "m"},
        "workload": [{"name": "w", "canaries": "c.jsonl"}],
        "objective": [{"metric": "throughput_ratio", "at_least": 1.0, "why": "."}],
        **({"host": host} if host else {}),
    }
    return slo.Slo.model_validate(tables)


def inventory(**changes: Any) -> dict[str, Any]:
    facts = {"chip": "Apple M4", "memory_bytes": 24 * 2**30, "os": "26.1", "power_source": "ac"}
    document = {"host": facts, "models": {}, "manifest": None, "refused": None, "occupant": None, "sleeps_after": None}
    return document | changes


def test_the_host_of_the_slo_is_not_remarked() -> None:
    """
    The chip, memory, OS and mains power of the SLO: no remark.
    """
    requirements = written(chip="Apple M4", memory_gb=24, os="26", power="ac")

    assert [] == list(check_inventory(inventory(), requirements, (), None, now=NOW))


def test_another_host_than_that_of_the_slo_is_a_remark() -> None:
    """
    Each fact that differs from the SLO is one note, as in a local run.
    """
    requirements = written(chip="Apple M2", memory_gb=16, os="15", power="ac")
    facts = inventory()["host"] | {"power_source": "battery"}

    remarks = list(check_inventory(inventory(host=facts), requirements, (), None, now=NOW))

    assert not any(remark.stops for remark in remarks)
    assert ["host"] * 4 + ["power"] == [remark.about for remark in remarks]


def test_a_machine_that_falls_asleep_is_a_remark() -> None:
    """
    The run itself is kept awake; that the machine sleeps between runs decides if it can be reached.
    """
    (remark,) = check_inventory(inventory(sleeps_after=600.0), written(), (), None, now=NOW)

    assert (False, "sleep") == (remark.stops, remark.about)
    assert "10 min" in remark.message


@pytest.mark.parametrize(
    ("local", "remote", "stops", "message"),
    [
        (MODEL, {"digest": "a" * 64}, False, ""),
        (MODEL, {"digest": "b" * 64}, True, "are not the local ones"),
        (MODEL, {"missing": "not on this machine", "hint": "hf download m"}, True, "not on the remote host"),
        (None, {"missing": "not on this machine", "hint": "hf download m"}, True, "not on the remote host"),
        (None, {"digest": "b" * 64}, False, ""),
        (MODEL, {}, True, "are not the local ones"),  # an inventory that leaves a model out proves nothing
    ],
)
def test_remote_models_against_local_ones(
    local: Model | None, remote: dict[str, str], stops: bool, message: str
) -> None:
    """
    The same bytes or none: missing ones are named with how to get them, others of the same name stop the run.
    """
    remarks = list(
        check_inventory(inventory(models={"m": remote}), written(), (NamedModel("m", None, local),), None, now=NOW)
    )

    assert [True] * stops == [remark.stops for remark in remarks]
    assert all(message in remark.message for remark in remarks)


@pytest.mark.nightly
def test_a_clock_apart_is_noticed_for_real(pair: Make) -> None:
    """
    A clock that is a minute ahead is a remark; on a host ten minutes behind no run is started, exit 3.
    """
    if FAKETIME is None:
        pytest.skip("no libfaketime on this machine (Debian: faketime)")
    off = {"LD_PRELOAD": str(FAKETIME)}
    ahead = pair(remote={**off, "FAKETIME": "+60s"})
    noted = ahead.project.run("remote", "certify", "slo.toml", "--on", "mini", code=0)
    behind = pair(remote={**off, "FAKETIME": "-600s"})

    refused = behind.project.run("remote", "certify", "slo.toml", "--on", "mini", "--out", "other", code=3)

    # As near as a busy machine lets the two be compared.
    (lead,), (lag,) = re.findall(r"is (.*?) ahead", noted.err), re.findall(r"is (.*?) behind", refused.err)
    assert re.fullmatch(r"1 min|[56]\d(\.\d)? s", lead)
    assert re.fullmatch(r"(9\.\d|10(\.\d)?) min", lag)
    assert not behind.jobs.exists()
