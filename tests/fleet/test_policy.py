"""One policy for many hosts."""

from typing import Any

import pytest

from gatekeeper.core.errors import InputError, NoProofError
from gatekeeper.fleet.policy import common

FOUR = {"draft": "d", "num_draft_tokens": 4}
TWO = {"draft": "d", "num_draft_tokens": 2}
PLAIN = {"draft": None}


def cell(host: str, **workloads: tuple[str, dict[str, Any], float | None]) -> dict[str, Any]:
    found = {
        name: {"outcome": outcome, "setting": setting, "ratio": ratio and {"center": ratio}}
        for name, (outcome, setting, ratio) in workloads.items()
    }
    known = {"slo": "s", "host": host, "name": f"s@{host}", "state": "done", "exit_code": 0, "grade": "certification"}
    return known | {"workloads": found}


def test_a_route_holds_where_every_host_proved_the_same_setting() -> None:
    """
    The same setting on both hosts speculates; another one on one host, or plain decoding there, does not, and the
    policy names who pays how much.
    """
    fleet = {
        "cells": [
            cell("a", json=("promoted", FOUR, 1.9), code=("promoted", FOUR, 1.5), chat=("promoted", FOUR, 1.3)),
            cell("b", json=("promoted", FOUR, 1.8), code=("promoted", TWO, 1.4), chat=("graded_back", PLAIN, None)),
        ]
    }

    json, code, chat = common(fleet, "s")["route"]

    assert (True, FOUR) == (json["speculation"], json["setting"])
    assert "different settings" in code["because"]
    assert {"a", "b"} == code["cost"].keys()
    assert not chat["speculation"]
    assert "not promoted on b" == chat["because"]
    assert {"a": "decodes plainly; its own policy gains 1.30x"} == chat["cost"]


def test_a_host_without_proof_refuses_the_policy() -> None:
    """
    A run that is open or unproven on one host is no reason to leave that host out silently; --only does, by name.
    """
    fleet = {"cells": [cell("a", json=("promoted", FOUR, 1.9)), cell("b") | {"exit_code": 3}]}

    with pytest.raises(NoProofError, match="s@b"):
        common(fleet, "s")
    assert common(fleet, "s", ["a"])["route"][0]["speculation"]


def test_an_unknown_slo_or_host_is_named() -> None:
    """
    A name that the fleet does not have is a mistake of the command line, with what it has.
    """
    fleet = {"cells": [cell("a", json=("promoted", FOUR, 1.9))]}

    with pytest.raises(InputError, match="no SLO 'x'"):
        common(fleet, "x")
    with pytest.raises(InputError, match="not certified on z"):
        common(fleet, "s", ["z"])
