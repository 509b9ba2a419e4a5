"""One policy for many hosts."""

from pathlib import Path
from typing import Any

import pytest

from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.fleet.cell_task import Done
from gatekeeper.fleet.cells import Cell
from gatekeeper.fleet.common_policy import common_policy
from gatekeeper.fleet.fleet_cell import CellVerdict, CellWorkload, FleetCell
from gatekeeper.fleet.fleet_json import Fleet
from tests.builders.golden_words import says

FOUR = {"draft": "d", "num_draft_tokens": 4}
TWO = {"draft": "d", "num_draft_tokens": 2}
PLAIN = {"draft": None}


def cell(
    host: str,
    *,
    exit_code: int = 0,
    expires: str | None = None,
    limits: dict[str, Any] | None = None,
    **workloads: tuple[str, dict[str, Any], float | None],
) -> FleetCell:
    """Return a cell that ended; each of its workloads has the same *limits*."""
    results = {
        name: CellWorkload(
            outcome,
            setting,
            None if ratio is None else {"center": ratio, "lo": ratio, "hi": ratio, "n": 9},
            0.95,
            limits=limits or {},
        )
        for name, (outcome, setting, ratio) in workloads.items()
    }
    done = Done(f"s@{host}", exit_code, run="run")
    return FleetCell(Cell("s", Path("s.toml"), host), done, CellVerdict("certification", expires, {}, results))


def fleet_of(*cells: FleetCell) -> Fleet:
    return Fleet("then", "now", cells)


def test_a_route_holds_where_every_host_proved_the_same_setting() -> None:
    """
    The same setting on both hosts speculates; another one on one host, or plain decoding there, does not, and the
    policy names who pays how much.
    """
    fleet = fleet_of(
        cell("a", json=("promoted", FOUR, 1.9), code=("promoted", FOUR, 1.5), chat=("promoted", FOUR, 1.3)),
        cell("b", json=("promoted", FOUR, 1.8), code=("promoted", TWO, 1.4), chat=("graded_back", PLAIN, None)),
    )

    json, code, chat = common_policy(fleet, "s")["route"]

    assert (True, FOUR) == (json["speculation"], json["setting"])
    assert "different settings" in code["because"]
    assert {"a", "b"} == code["cost"].keys()
    assert not chat["speculation"]
    assert "not promoted on b" == chat["because"]
    assert {"a"} == chat["cost"].keys()
    says("fleet", "a route holds where every host proved the same setting", chat["cost"]["a"])


def test_the_strictest_limits_of_all_hosts_hold() -> None:
    """
    A warm-up that one host needs is an obligation for all, the shortest limits and the earliest expiry hold.
    """
    json = ("promoted", FOUR, 1.9)
    first_limits = {"longest_prompt": 900, "tokens_per_byte": 0.3, "max_concurrency": 2}
    second_limits = {"longest_prompt": 800, "tokens_per_byte": 0.4, "warm_up": True, "warm_up_after": 10.0}
    cells = (
        cell("a", expires="2026-12-01T00:00:00+00:00", limits=first_limits, json=json),
        cell("b", expires="2026-11-30T23:30:00-02:00", limits=second_limits, json=json),
    )

    policy = common_policy(fleet_of(*cells), "s")

    (route,) = policy["route"]
    assert "2026-12-01T00:00:00+00:00" == policy["expires"]
    assert (800, 0.4, 2, True, 10.0) == tuple(
        route[key] for key in ("longest_prompt", "tokens_per_byte", "max_concurrency", "warm_up", "warm_up_after")
    )


def test_a_prompt_whose_length_one_host_does_not_know_is_not_certified() -> None:
    """
    Where one of the hosts does not count the tokens of prompts, the common route says nothing of their length.
    """
    json = ("promoted", FOUR, 1.9)
    counting = {"longest_prompt": 900, "tokens_per_byte": 0.3}

    (route,) = common_policy(fleet_of(cell("a", limits=counting, json=json), cell("b", json=json)), "s")["route"]

    assert not {"longest_prompt", "tokens_per_byte"} & route.keys()


def test_a_host_without_proof_refuses_the_policy() -> None:
    """
    A run that is open or unproven on one host is no reason to leave that host out silently; --only does, by name.
    """
    fleet = fleet_of(cell("a", json=("promoted", FOUR, 1.9)), cell("b", exit_code=3))

    with pytest.raises(NoProofError, match="s@b"):
        common_policy(fleet, "s")
    assert common_policy(fleet, "s", ["a"])["route"][0]["speculation"]


def test_an_unknown_slo_or_host_is_named() -> None:
    """
    A name that the fleet does not have is a mistake of the command line, with what it has.
    """
    fleet = fleet_of(cell("a", json=("promoted", FOUR, 1.9)))

    with pytest.raises(InputError, match="no SLO 'x'"):
        common_policy(fleet, "x")
    with pytest.raises(InputError, match="not certified on z"):
        common_policy(fleet, "s", ["z"])
