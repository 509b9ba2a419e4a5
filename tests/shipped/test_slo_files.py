"""The SLO files in `slos/`: what a user may rely on before a model is on the machine."""

import json
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
import pytest
from pydantic import BaseModel

from gatekeeper.analysis.plan.complaints.unprovable_objectives import BackendTraits, complaints
from gatekeeper.analysis.plan.soak_schedule import canaries_needed
from gatekeeper.analysis.stats.intervals import frozen_samples_needed
from gatekeeper.backends import open_backend
from gatekeeper.core.errors import InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.metrics import BY_NAME
from gatekeeper.core.records import Setting
from gatekeeper.core.slo import Slo, parse
from gatekeeper.core.slo.subject_table import Subject
from gatekeeper.core.system import inputs
from gatekeeper.run.plan import forecast

Json: TypeAlias = dict[str, Any]

read = cache(inputs.read)
"""With thousands of canaries, for several tests each."""
ROOT = Path(__file__).resolve().parents[2]
SLOS = ROOT / "slos"
FILES = sorted(SLOS.glob("*.toml"))
M2 = ("m2-ultra-64gb", "m2-ultra-64gb-4b", "m2-ultra-64gb-gguf")
MACHINES = (*M2, "m3-ultra-512gb", "m4-16gb", "m4-24gb", "m5-pro-48gb")
SYSTEMS = ("dflash-mlx", "llama-server", "llama-server-mtp", "lmstudio", "mtplx", "ollama")
"""One file a serving system, for whatever machine runs it."""
LITTLE = ("quickstart", "quickstart-warm-cache", "smoke")
OTHER_M4 = ("m4-24gb-inprocess", "m4-24gb-nightly", "m4-24gb-used")
"""Of the same machine as m4-24gb; tests/shipped/test_m4_24gb.py holds what they promise."""

COMMANDS = """command = ["serve", "{target}", "{draft}", "{port}"]
plain_command = ["serve", "{target}", "{port}"]
"""
INSTEAD = (
    """prefill_chunk = 1024
kv_bits = 8
""",
    """url = "http://127.0.0.1:8080/v1"
plain_url = "http://127.0.0.1:8081/v1"
""",
    """program = ["/opt/bin/serve"]
""",
)
"""How a server is reached is written in one way of three; how it reads is set where gatekeeper starts it."""

EVERY_KEY = """
#:schema ./slo.schema.json
schema = 1
name = "every-key"
why = "Each key of the format once."
confidence = 0.9
visible_harm = 0.25
max_duration = "8 h"

[host]
chip = "Apple M4"
memory_gb = 24
os = "26"
power = "ac"
ambient_c = 23.0

[subject]
backend = "mlx-server"
target = "../models/big"
drafts = ["org/small-8bit", "org/small-4bit"]
prompt_cache = "as-deployed"
args = ["--log-level", "INFO"]
served_model_name = "big"
draft_method = "draft-mtp"
command = ["serve", "{target}", "{draft}", "{port}"]
plain_command = ["serve", "{target}", "{port}"]
api_key_env = "MY_KEY"
script = "truth.json"
timeout = "90 s"
deadline = "2 min"
start_timeout = "5 min"

[subject.knobs]
num_draft_tokens = { argv = ["--draft-max", "{value}"] }
temperature = { field = "temperature" }

[sampling]
temperature = 0.7
top_p = 0.95
frequency_penalty = 0.1
presence_penalty = 0.2
repetition_penalty = 1.05
top_k = 20
min_p = 0.05
seed = 11
max_tokens = 128
thinking = false

[[workload]]
name = "tools"
tier = "medium"
canaries = "../canaries/tools.jsonl"
first = 32
context = 4000
speculation = "optional"

[[workload]]
name = "code"
canaries = "../canaries/code.jsonl"

[sweep]
prefer = "energy"
design = "grid"
repeats = 2
max_runs = 1000
stop = "early"
budget = 64
warmups = 2
draft = ["org/small-8bit", "org/small-4bit"]
num_draft_tokens = [2, 4]
block_size = [8, 16]
window = [512, 1024]
draft_n_min = [0, 2]
draft_p_min = [0.0, 0.5]
temperature = [0.0, 0.7]
max_tokens = [64, 128]
thinking = [true, false]
concurrency = [1, 2]

[sweep.default]
draft = "org/small-4bit"
num_draft_tokens = 4
block_size = 16
window = 1024
draft_n_min = 2
draft_p_min = 0.5
temperature = 0.7
max_tokens = 128
thinking = false
concurrency = 1

[soak]
duration = "20 min"
max_duration = "1.5 h"
until = "duration"
window = "240 s"
profile = "desktop"
concurrency = 2
baseline_share = 0.3
baseline_drift = 0.1

[fallback]
ladder = ["lighter-draft", "autoregressive"]

[promote]
valid_for = "7 d"

[telemetry]
endpoint = "http://127.0.0.1:4318"
headers_env = "COLLECTOR_HEADERS"
rounds = true
timeout = "10 s"
protocol = "grpc"

[[objective]]
metric = "acceptance_rate"
at_least = "55 %"
workloads = ["code"]
when = "speculating"
from = "claims"
why = "A share may be written in per cent."

[[objective]]
metric = "json_pass_delta"
at_least = -0.005
scope = "population"
why = "For all prompts like these."

[[objective]]
metric = "footprint_growth"
at_most = "1 MB/min"
why = "A rate has units too."

[[objective]]
metric = "ttft_delta"
at_most = 0.08
or_with = "warm-up"
why = "A bound that a warm-up may keep."

[[objective]]
metric = "throughput_ratio"
at_least = 0.97
against = "certified"
why = "No slower than the certified run."
"""


def schema() -> Json:
    document: Json = json.loads((SLOS / "slo.schema.json").read_text("utf-8"))
    return document


def kind_of(subject: Subject) -> BackendTraits:
    paths = {name: Path(name) for name in (subject.target, *subject.drafts)}
    backend = open_backend(subject, models=paths, base=Path(), logs=Path())
    return BackendTraits(backend.name, backend.sight, backend.streams, backend.knobs, backend.caches)


def table(path: Path) -> Json:
    return tomllib.loads(path.read_text("utf-8"))


def written_keys(model: BaseModel) -> set[str]:
    return {f"{type(model).__name__}.{key}" for key in model.model_fields_set} | {
        key
        for value in dict(model).values()
        for part in (value if isinstance(value, tuple) else value.values() if isinstance(value, dict) else [value])
        if isinstance(part, BaseModel)
        for key in written_keys(part)
    }


def every_key(model: type[BaseModel], models: set[type[BaseModel]]) -> set[str]:
    models.add(model)
    keys = {f"{model.__name__}.{key}" for key in model.model_fields}
    for field in model.model_fields.values():
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, BaseModel) and inner not in models:
                keys |= every_key(inner, models)
    return keys


def test_the_shipped_files_are_these() -> None:
    """There are files for five machines, one for each of six systems, two to start with and one to test with."""
    assert sorted((*MACHINES, *OTHER_M4, *SYSTEMS, *LITTLE)) == sorted(path.stem for path in FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_file_is_read_with_everything_it_names(path: Path) -> None:
    """It bears its file's name, names canaries and a profile that are there, follows the schema, and can be proven."""
    slo_inputs = read(path)
    slo = slo_inputs.slo

    assert (path.stem, slo.soak.profile) == (slo.name, slo_inputs.profile.name)
    assert all(slo_inputs.canaries[workload.name] for workload in slo.workload)
    assert ["#:schema", "./slo.schema.json"] == path.read_text("utf-8").splitlines()[0].split()
    errors = jsonschema.Draft202012Validator(schema()).iter_errors(tomllib.loads(path.read_text("utf-8")))
    assert [] == [error.message for error in errors]
    notes = complaints(slo, slo_inputs.canaries, kind_of(slo.subject), {})
    assert [] == [complaint for complaint in notes if complaint.weight == "never"]


@pytest.mark.parametrize("name", [*MACHINES, *SYSTEMS])
def test_a_file_can_certify(name: str) -> None:
    """It draws no complaint, soaks long enough for a certificate, and names its machine or has a control workload."""
    slo_inputs = read(SLOS / f"{name}.toml")
    slo, host = slo_inputs.slo, slo_inputs.slo.host

    assert [] == complaints(slo, slo_inputs.canaries, kind_of(slo.subject), {})
    assert slo.soak.duration >= 600
    if name in MACHINES:
        assert host.chip is not None
        assert (float(re.findall(r"-([0-9]+)gb", name)[0]), "ac") == (host.memory_gb, host.power)
    else:
        assert "random" in {workload.name for workload in slo.workload}
        assert slo.sampling.thinking is False


@pytest.mark.parametrize("name", [*MACHINES, *SYSTEMS])
def test_every_file_is_planned_without_its_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither models nor programs need be on this machine: `plan` names what is missing, and forecasts the rest."""
    monkeypatch.setenv("PATH", "")

    document, code = forecast(SLOS / f"{name}.toml", 30.0)

    assert ExitCode.UNPROVEN == code
    assert document["expected_total_seconds"] > 600
    assert "the models" in {complaint["about"] for complaint in document["complaints"]}
    assert {"never"}.isdisjoint(complaint["weight"] for complaint in document["complaints"])


@pytest.mark.parametrize("name", MACHINES)
def test_a_census_fits_into_the_longest_soak(name: str) -> None:
    """All canaries that the objectives want, in both arms, fit into the soak's longest duration."""
    slo_inputs = read(SLOS / f"{name}.toml")
    slo = slo_inputs.slo
    draft: Setting = (("draft", slo.subject.drafts[0]),)

    pairs = sum(
        canaries_needed(slo, workload.name, draft, slo_inputs.canaries[workload.name]).paired
        for workload in slo.workload
    )

    assert pairs / slo.soak.baseline_share * 10 <= slo.soak.max_duration


def test_the_readmes_worked_file_can_certify(tmp_path: Path) -> None:
    """The file that slos/README.md explains line by line is complete: it can be copied, and draws no complaint."""
    text = (SLOS / "README.md").read_text("utf-8").split("```toml\n")[1].split("```")[0]
    (tmp_path / "mine.toml").write_text(text)
    slo_inputs = read(tmp_path / "mine.toml")

    notes = complaints(slo_inputs.slo, slo_inputs.canaries, kind_of(slo_inputs.slo.subject), {})

    assert [] == notes
    assert jsonschema.Draft202012Validator(schema()).is_valid(tomllib.loads(text))


def test_the_documents_count_of_canaries_is_the_judges() -> None:
    """The table of canaries per quantile in docs/reference/slo-files.md is what preflight asks for."""
    page = (ROOT / "docs" / "reference" / "slo-files.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| p\d", line)]
    counts_said = {row[2:5]: [int(cell) for cell in row.split("|")[2:5]] for row in rows}

    counts_needed = {
        name: [frozen_samples_needed(q, 1 - 0.05 / steps) for steps in (1, 2, 3)]
        for name, q in (("p50", 0.5), ("p95", 0.99))
    }

    assert counts_needed == counts_said


def test_the_schema_explains_every_key() -> None:
    """Every key of every table says what it means, and every metric what it measures."""
    schema_written = schema()
    tables = {"Slo": schema_written, **schema_written["$defs"]}

    silent = [
        f"{name}.{key}"
        for name, described in tables.items()
        for key, value in described["properties"].items()
        if "description" not in value and "description" not in tables.get(value.get("$ref", "").rsplit("/", 1)[-1], {})
    ]

    assert [] == silent
    assert [*BY_NAME] == [objective["const"] for objective in tables["Objective"]["properties"]["metric"]["oneOf"]]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('metric = "acceptance_rate"', 'metric = "aceptance_rate"'),
        ('at_least = "55 %"', 'at_least = "55 %"\nat_most = 1.0'),
        ('at_least = "55 %"', 'at_least = "55 parsecs"'),
        ('at_least = "55 %"', ""),
        ('backend = "mlx-server"', 'backend = "mlx-servr"'),
        ("confidence = 0.9", "confidence = 1.5"),
        ('duration = "20 min"', 'duratoin = "20 min"'),
        ('temperature = { field = "temperature" }', 'temperature = { field = "temperature", argv = ["-t"] }'),
        ("schema = 1", "schema = 2"),
        ("num_draft_tokens = 4", "num_draft_tokens = 0"),
    ],
)
def test_the_schema_refuses_what_gatekeeper_refuses(written: str, instead: str) -> None:
    """A mistake that one key shows is refused by the schema in an editor and by gatekeeper alike."""
    broken = EVERY_KEY.replace(written, instead, 1)

    valid = jsonschema.Draft202012Validator(schema()).is_valid(tomllib.loads(broken))

    assert broken != EVERY_KEY
    assert not valid
    with pytest.raises(InputError):
        parse(broken, "broken.toml")


def test_every_key_of_the_format_is_read() -> None:
    """A file that writes every key once is valid for the schema and arrives in SI base units."""
    slo = parse(EVERY_KEY, "every-key.toml")
    other_texts = [EVERY_KEY.replace(COMMANDS, instead) for instead in INSTEAD]

    written = written_keys(slo).union(*(written_keys(parse(text, "every-key.toml")) for text in other_texts))
    assert every_key(Slo, set()) - {"Objective.at_most"} <= written
    validator = jsonschema.Draft202012Validator(schema())
    assert [[], [], [], []] == [list(validator.iter_errors(tomllib.loads(text))) for text in (EVERY_KEY, *other_texts)]
    assert (1200.0, 5400.0, 240.0) == (slo.soak.duration, slo.soak.max_duration, slo.soak.window_s)
    assert [0.55, -0.005] == [objective.threshold for objective in slo.objective[:2]]
    assert pytest.approx(1e6 / 60) == slo.objective[2].threshold
