"""mlx_lm.server with another kernel for several tokens, and a planted defect: what its log-probabilities show."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gatekeeper.analysis.metrics.words.scored_answers import later_leads, left_to_continue, plain_lead
from gatekeeper.backends import open_backend
from gatekeeper.backends.server_requests import Server
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import DecodeRequest
from gatekeeper.core.records import Scored, setting
from gatekeeper.core.slo.subject_table import Subject
from tests.backends.conftest import MODELS, PLAIN, make_request
from tests.builders.project_folder import ROOT

pytestmark = [pytest.mark.mlx, pytest.mark.slow]
DRAFTING = setting(draft="little-draft", num_draft_tokens=4)
CANARIES = 8


def leads_of_partings(folder: Path, *options: str) -> list[float]:
    """Return plain decoding's lead at each token of a drafted answer that it would not have written, in nats."""
    script = folder / "server.py"
    script.write_text(
        f"import runpy, sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        'runpy.run_module("bench.exactness.perturbed", run_name="__main__", alter_sys=True)\n'
    )
    subject = Subject.model_validate(
        {
            "backend": "mlx-server",
            "target": "little-target",
            "drafts": ["little-draft"],
            "program": [sys.executable, str(script), "server", "-slogits=0.07", *options],
        }
    )
    backend = open_backend(subject, models=MODELS, base=folder, logs=folder / "logs")
    lines = (ROOT / "canaries" / "little" / "prose.jsonl").read_text("utf-8").splitlines()[:CANARIES]
    records: dict[str, list[Scored]] = {}
    for arm, knobs in (("candidate", DRAFTING), ("plain", PLAIN)):
        with backend.start(knobs) as server:
            assert isinstance(server, Server)
            for canary in map(Canary.model_validate_json, lines):
                request = DecodeRequest(canary, knobs, make_request("prose", knobs, max_tokens=64).sampling)
                record = server.request_scores(request)
                assert record is not None
                records.setdefault(canary.id, []).append(replace(record, canary=canary.id, arm=arm))
                while (remainder := left_to_continue(records[canary.id])) is not None:
                    more = server.continue_answer(request, remainder.drafting.first(remainder.after), remainder.tokens)
                    record = more or Scored("", "", "", fault="unreadable")
                    records[canary.id].append(replace(record, canary=canary.id, arm="plain", after=remainder.after))
    leads: list[float] = []
    for drafting, plain, *continued in records.values():
        first, _ = plain_lead(plain, drafting)
        leads += [] if first is None else [first, *(lead for lead, _ in later_leads(continued, drafting))]
    return leads


@pytest.mark.nightly
def test_a_kernel_alone_turns_small_leads(tmp_path: Path) -> None:
    """Plain decoding goes on from each token that the draft wrote otherwise: it preferred its own a little."""
    leads = leads_of_partings(tmp_path)

    assert len(leads) > CANARIES
    assert max(leads) < 1


@pytest.mark.nightly
@pytest.mark.parametrize("defect", ["stale:0.1", "unverified:0.1", "shifted:0.1"])
def test_a_defect_shows_by_large_leads(tmp_path: Path, defect: str) -> None:
    """What an engine does wrong in a tenth of its rounds: plain decoding preferred its own token by far."""
    assert max(leads_of_partings(tmp_path, f"-sdefect={defect}")) > 2
