"""What tests of the real little pair share: the smoke SLO with absolute paths, a run, and runs that noise decided."""

import json
import shutil
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import tomli_w

from gatekeeper.backends.models import artifacts
from gatekeeper.core.system.files import HashCache
from gatekeeper.core.system.inputs import find_canaries
from tests.builders.deployment import policy_of, seal, write_run
from tests.builders.project_folder import ROOT, Done, ProjectFolder

LITTLE_SETTING = {"draft": "../models/little-draft", "num_draft_tokens": 3}


def smoke(
    project: ProjectFolder, *, only: str | None = None, seconds: float = 6, tokens: int | None = None, **subject: Any
) -> ProjectFolder:
    """Write the shipped smoke SLO with absolute paths; *subject* changes its [subject].

    With *only* one workload, which may then decode plainly, one draft length is swept. *tokens* limits the answers, for
    tests that only need some.
    """
    slo = tomllib.loads((ROOT / "slos" / "smoke.toml").read_text())
    slo["subject"] |= {
        "target": str(ROOT / "models" / "little-target"),
        "drafts": [str(ROOT / "models" / "little-draft")],
        **subject,
    }
    for workload in slo["workload"]:
        file = find_canaries(workload["canaries"], ROOT / "slos")
        if tokens is not None:
            canaries = (json.loads(line) | {"max_tokens": tokens} for line in file.read_text().splitlines())
            file = project.path / file.name
            file.write_text("".join(json.dumps(canary) + "\n" for canary in canaries))
        workload["canaries"] = str(file)
    if only is not None:
        slo["workload"] = [
            workload | {"speculation": "optional"} for workload in slo["workload"] if workload["name"] == only
        ]
        slo["sweep"] |= {"num_draft_tokens": [4]}
    slo["soak"] |= {"duration": f"{seconds} s"}
    slo["soak"].pop("max_duration", None)
    project.write_slo(slo)
    return project


END_OF_ANSWER = str(json.loads((ROOT / "models" / "little-target" / "config.json").read_text())["eos_token_id"])
"""The token that ends an answer: long answers are asked for by a bias against it."""
LONGEST_PROMPT = 1000
"""Tokens of the longest prompt that the run is said to have certified."""


def promoted_run(
    path: Path,
    *,
    guards: Sequence[Mapping[str, Any]] = (),
    more: Sequence[str] = (),
    off: Sequence[str] = (),
    setting: Mapping[str, Any] = LITTLE_SETTING,
    **policy: Any,
) -> Path:
    """Write a run of tests/watched.toml as it stands after a promotion: the certify before it takes most of a minute.

    It has the workload `json`, and those named in *more* and *off*; the policy turns the latter off.
    """
    slo = (ROOT / "tests" / "watched.toml").read_text()
    names = ("json", *more, *off)
    for name in names[1:]:
        slo += f'\n[[workload]]\nname = "{name}"\ncanaries = "../canaries/little/{name}.jsonl"\nfirst = 12\n'
    canaries = {
        f"canaries-{name}.jsonl": (ROOT / "canaries" / "little" / f"{name}.jsonl").read_text() for name in names
    }
    profile = (ROOT / "soak" / "profiles" / "steady.toml").read_text()
    models = ("../models/little-target", setting["draft"])
    target, draft = (artifacts.freeze(str(name), ROOT / "tests" / str(name), HashCache(None)) for name in models)
    now = datetime.now(UTC)
    write_run(
        path,
        {"slo.toml": slo, "profile.toml": profile, **canaries},
        now,
        setting,
        backend="mlx-server",
        shares_process=False,
        restart_knobs=("draft",),
        target=target,
        drafts=(draft,),
    )
    routes: list[dict[str, Any]] = [
        {
            "workload": name,
            "speculation": name not in off,
            "setting": {} if name in off else setting,
            "longest_prompt": LONGEST_PROMPT,
            "models": ["../models/little-target", "default_model"],
            "request": [
                {},
                {"tools": True},
                {"response_format": {"type": "json_object"}},
                {"logit_bias": {END_OF_ANSWER: -100.0}},
            ],
        }
        for name in names
    ]
    written = {**policy_of(path, now), "slo": "watched", "route": routes, "guard": list(guards), **policy}
    (path / "policy.toml").write_text(tomli_w.dumps(written))
    seal(path)
    return path


def outcomes(verdict: dict[str, Any]) -> dict[str, str]:
    return {workload["name"]: workload["outcome"] for workload in verdict["workloads"]}


ATTEMPTS = 3
"""How often a run is made whose outcome other work on the machine may have decided: then it counts as it ended."""
TIMES = {"throughput_ratio", "answer_throughput_ratio", "ttft_delta", "warm_cache_turn_ratio"}
"""The objectives on time; all others hold at any speed, and are demanded of every run."""


def certified_as(project: ProjectFolder, hoped: dict[str, str], *, slo: str | Path = "slo.toml") -> Done:
    """Certify until the workloads end as *hoped*; repeat only a run that noise disturbed, at most ATTEMPTS times.

    An interval that decides nothing shows noise too: two processes may differ by more than the answers of each.
    """
    for _ in range(ATTEMPTS):
        shutil.rmtree(project.path / "run", ignore_errors=True)
        ran = project.run("certify", str(slo), "--out", "run")
        verdict = project.verdict()
        checks = [check for work in verdict["workloads"] for check in work["checks"] if check["metric"] not in TIMES]
        assert len(hoped) <= len(checks)
        assert {"pass"} == {check["outcome"] for check in (*checks, *verdict["host_checks"])}, ran.out
        assert ran.code == verdict["exit_code"]
        if outcomes(verdict) == hoped:
            return ran
        undecided = "no gain was proven" in ran.out or "unproven" in outcomes(verdict).values()
        assert undecided or not quiet(project.path / "run"), f"on a quiet machine: {ran.out}"
    raise AssertionError(f"{ATTEMPTS} runs did not end as hoped, the last one so: {ran.out}")


def quiet(run: Path) -> bool:
    """Tell whether the machine was quiet: nine of ten answers took as long as their like, in each arm."""
    paces: dict[str, dict[tuple[str, str], list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in (record for path in run.glob("*.jsonl") for record in records(path) if "role" in record):
        answer = record["answer"]
        if record["role"] != "warmup" and not answer["fault"]:
            alike = record["canary"], json.dumps(record["setting"])
            paces[record["arm"]][alike].append(answer["output_tokens"] / (answer["ended_ns"] - answer["sent_ns"]))
    for groups in paces.values():
        strayed = [abs(pace / median(group) - 1) for group in groups.values() if len(group) > 2 for pace in group]
        if len(strayed) > 1 and quantiles(strayed, n=10)[-1] >= 0.15:
            return False
    return True


def records(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith('{"trial"')]
