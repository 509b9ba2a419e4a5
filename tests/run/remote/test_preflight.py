"""What stops a run before it begins, and what is only said: clocks, disks, models, hosts."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core import slo
from gatekeeper.core.manifest import Model
from gatekeeper.run.remote.preflight import ENVIRONMENT_BYTES, of_inventory, of_link
from gatekeeper.run.remote.upload import Wanted
from tests.run.remote.conftest import Make

NOW = datetime(2026, 11, 21, tzinfo=UTC)
PLENTY = 1e12
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
    ("skew", "round_trip", "weight"),
    [
        (0.0, 0.01, None),
        (1.9, 0.01, None),
        (-2.5, 0.01, "note"),
        (2.5, 2.0, None),  # the comparison itself may be off by so much
        (299.0, 0.01, "note"),
        (-301.0, 0.01, "stops"),
        (86400.0, 0.01, "stops"),
    ],
)
def test_clocks_that_are_apart(skew: float, round_trip: float, weight: str | None) -> None:
    """
    Above two seconds it is said, above five minutes nothing is begun, by no more than the comparison can tell.
    """
    found = of_link({"skew_s": skew, "round_trip_s": round_trip, "free_bytes": PLENTY}, installed=True)

    assert ([] if weight is None else [weight]) == [one.weight for one in found]
    assert all("clock" == one.about and one.hint for one in found)


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
    Room for the environment, the models that are sent, and the run itself is asked for before anything is written.
    """
    found = of_link({"skew_s": 0.0, "free_bytes": free}, installed=installed, ships_bytes=ships)

    assert (["disk"] if stops else []) == [one.about for one in found]
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


def told(**changes: Any) -> dict[str, Any]:
    facts = {"chip": "Apple M4", "memory_bytes": 24 * 2**30, "os": "26.1", "power_source": "ac"}
    document = {"host": facts, "models": {}, "manifest": None, "refused": None, "occupant": None, "sleeps_after": None}
    return document | changes


def test_a_host_as_promised_is_not_remarked() -> None:
    """
    The promised chip, memory, generation and mains power: nothing to say.
    """
    promised = written(chip="Apple M4", memory_gb=24, os="26", power="ac")

    assert [] == of_inventory(told(), promised, (), None, now=NOW)


def test_another_host_than_promised_is_said() -> None:
    """
    Each fact that is not as promised is one note, as a run here would doubt it.
    """
    promised = written(chip="Apple M2", memory_gb=16, os="15", power="ac")
    facts = told()["host"] | {"power_source": "battery"}

    found = of_inventory(told(host=facts), promised, (), None, now=NOW)

    assert ["note"] * 5 == [one.weight for one in found]
    assert ["host"] * 4 + ["power"] == [one.about for one in found]


def test_a_machine_that_falls_asleep_is_said() -> None:
    """
    The run itself is kept awake; that the machine sleeps between runs decides if it can be reached.
    """
    (found,) = of_inventory(told(sleeps_after=600.0), written(), (), None, now=NOW)

    assert ("note", "sleep") == (found.weight, found.about)
    assert "10 min" in found.message


@pytest.mark.parametrize(
    ("here", "there", "weight", "said"),
    [
        (MODEL, {"digest": "a" * 64}, None, ""),
        (MODEL, {"digest": "b" * 64}, "stops", "another one there"),
        (MODEL, {"missing": "not on this machine", "hint": "hf download m"}, "stops", "it is not there"),
        (None, {"missing": "not on this machine", "hint": "hf download m"}, "stops", "it is not there"),
        (None, {"digest": "b" * 64}, None, ""),
        (MODEL, {}, "stops", "another one there"),  # an inventory that leaves a model out proves nothing
    ],
)
def test_models_there_against_those_here(
    here: Model | None, there: dict[str, str], weight: str | None, said: str
) -> None:
    """
    The same bytes or none: missing ones are named with what fetches them, others of the same name stop the run.
    """
    found = of_inventory(told(models={"m": there}), written(), (Wanted("m", None, here),), None, now=NOW)

    assert ([] if weight is None else [weight]) == [one.weight for one in found]
    assert all(said in one.message for one in found)


def test_a_clock_apart_is_noticed_for_real(pair: Make) -> None:
    """
    A machine whose clock is a minute ahead is said so; one that is ten minutes behind is not begun on, exit 3.
    """
    if FAKETIME is None:
        pytest.skip("no libfaketime on this machine (Debian: faketime)")
    off = {"LD_PRELOAD": str(FAKETIME)}
    ahead = pair(far={**off, "FAKETIME": "+60s"})
    noted = ahead.place.run("remote", "certify", "slo.toml", "--on", "far", code=0)
    behind = pair(far={**off, "FAKETIME": "-600s"})

    refused = behind.place.run("remote", "certify", "slo.toml", "--on", "far", "--out", "other", code=3)

    # As near as a busy machine lets the two be compared.
    assert re.search(r"clock: its clock is (1 min|(5[0-9]|6[0-9])(\.\d)? s) ahead of this machine's", noted.err)
    assert re.search(r"clock: its clock is (9\.\d|10(\.\d)?) min behind this machine's", refused.err)
    assert not behind.jobs.exists()
