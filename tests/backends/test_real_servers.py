"""The real servers of other projects: each is tested where its program is installed, else skipped with a reason.

`tools/install_servers FOLDER` gives each an environment of its own and prints the variables that name them. vLLM drafts
with the little pair. Of the others plain decoding can be tried: their drafts are MTP heads or DFlash drafts, which it
has none of. So a start that drafts must never look like one that works.
"""

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psutil
import pytest

from gatekeeper.analysis.plan.complaints.probed_capabilities import ProbeAnswers, confirmed_sight, probe_findings
from gatekeeper.backends import open_backend
from gatekeeper.backends.dialects import dialect_of
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.backends.server_requests import Server
from gatekeeper.core.errors import InputError
from gatekeeper.core.interfaces import DecodeRequest
from gatekeeper.core.metrics.metric import Sight
from gatekeeper.core.records import Answer, Setting, setting
from gatekeeper.core.slo.subject_table import Subject
from tests.backends.conftest import MODELS, PLAIN, canary, make_request

pytestmark = [pytest.mark.mlx, pytest.mark.slow]
WORKLOADS = ("json", "code", "list", "prose", "random")


class System(NamedTuple):
    """One server, and a setting of it that cannot draft with the little pair."""

    variable: str
    hopeless: Setting
    starts: bool = True
    """False: it does not start on Linux, with an error that names the reason; its answers are untested."""
    args: tuple[str, ...] = ()
    joins: bool = False
    """Tokens that wait for the connection come as one chunk."""


VLLM_ARGS = ("--max-model-len", "1024", "--enforce-eager", "--dtype", "float32", "--kv-cache-memory-bytes", "268435456")
"""Without them it compiles for minutes, takes half of the memory, and decodes the little pair in bfloat16."""
SYSTEMS = {
    "dflash-mlx": System("DFLASH_MLX", setting(draft="little-draft", block_size=4), starts=False),
    "mlx-omni": System("MLX_OMNI_SERVER", setting(draft="little-draft"), starts=False),
    "mlx-vlm": System("MLX_VLM_SERVER", setting(draft="little-draft", block_size=4)),
    "mtplx": System("MTPLX", setting(draft="mtp", num_draft_tokens=3), starts=False),
    "rapid-mlx": System("RAPID_MLX", setting(draft="mtp", num_draft_tokens=3)),
    "vllm": System("VLLM", setting(draft="mtp", num_draft_tokens=3), args=VLLM_ARGS, joins=True),
    "vllm-mlx": System("VLLM_MLX", setting(draft="mtp", num_draft_tokens=1)),
}
Open = Callable[..., ServerBackend]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Open:
    """Return the backend of a real server by its name."""

    def get(name: str, draft: str = "") -> ServerBackend:
        variable, dialect = SYSTEMS[name].variable, dialect_of(name)
        program = shlex.split(os.environ.get(variable, "")) or list(dialect.program)
        if shutil.which(program[0]) is None:
            pytest.skip(f"no {program[0]}: set {variable} (tools/install_servers makes one), or put it on PATH")
        folder = tmp_path_factory.mktemp(name)
        drafts = [draft or dict(SYSTEMS[name].hopeless)["draft"]]
        written = {"backend": name, "target": "little-target", "drafts": drafts, "program": program}
        written["args"] = list(SYSTEMS[name].args)
        waits = {"start_timeout": "120 s" if SYSTEMS[name].starts else "30 s", "timeout": "60 s"}
        subject = Subject.model_validate(written | waits)
        backend = open_backend(subject, models=MODELS, base=folder, logs=folder / "logs")
        assert isinstance(backend, ServerBackend)
        return backend

    return get


@pytest.fixture(scope="module", params=[name for name, system in SYSTEMS.items() if system.starts])
def running(request: pytest.FixtureRequest, real: Open) -> Iterator[tuple[ServerBackend, Server]]:
    """Each server in turn, decoding plainly; when it is closed nothing of it is left."""
    backend = real(request.param)
    with backend.start(PLAIN) as server:
        family = [psutil.Process(pid) for pid in server.pids()]
        family += [child for process in family for child in process.children(recursive=True)]
        yield backend, server
    _, survivors = psutil.wait_procs(family, timeout=10)
    # A dead child of a dead server stays a zombie until its new parent reaps it.
    assert [] == [process for process in survivors if process.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture(scope="module")
def reference(shared_backend: Any) -> Callable[[str], Answer]:
    """Return the answers of our own mlx worker."""
    return lambda workload: shared_backend("mlx").system(PLAIN).answer(make_request(workload, PLAIN))


@pytest.mark.parametrize("workload", WORKLOADS)
def test_plain_decoding_is_that_of_mlx(
    running: tuple[ServerBackend, Server], reference: Callable[[str], Answer], workload: str
) -> None:
    """Greedy answers come whole, token for token those of our own mlx worker."""
    expected = reference(workload)

    answer = running[1].answer(make_request(workload, PLAIN))

    assert (None, expected.prompt_tokens) == (answer.fault, answer.prompt_tokens)
    assert (expected.text, expected.finish) == (answer.text, answer.finish)
    assert answer.output_tokens is not None
    # The token that ends an answer has no text; some count it.
    joined = answer.output_tokens - len(answer.arrivals)
    assert joined in {0, 1} or (SYSTEMS[running[0].name].joins and joined > 0)
    assert not answer.claims.drafted


def test_a_forecast_of_a_cold_prompt_is_kept(running: tuple[ServerBackend, Server]) -> None:
    """A prompt with a system message is cold the third time too, or the sight does not hold COLD."""
    backend, server = running
    system_message = {"role": "system", "content": "you are a careful friend of stoats and badgers. " * 20}
    again = canary("prose").model_copy(
        update={"messages": (system_message, *canary("prose").messages), "max_tokens": 8}
    )

    answers = [server.answer(DecodeRequest(again, PLAIN, make_request("prose", PLAIN).sampling)) for _ in range(3)]

    assert server.process is not None
    log = server.process.log.read_text("utf-8", "replace")
    assert not any("cache HIT" in line for line in log.splitlines())
    if Sight.COLD in confirmed_sight(ProbeAnswers(answers[-1], None), backend.sight, uncached=backend.uncached):
        assert not any(answer.claims.cached_tokens for answer in answers)


@pytest.mark.parametrize("name", sorted(SYSTEMS))
def test_a_draft_that_cannot_work_never_looks_like_one(real: Open, name: str) -> None:
    """It is an error, or each answer is a fault, or drafting is not shown: no acceptance is ever reported."""
    backend, which = real(name), SYSTEMS[name].hopeless
    answer, hint = None, ""

    try:
        with backend.start(which) as server:
            answer = server.answer(make_request("prose", which))
    except InputError as refused:
        hint = refused.hint

    if answer is None:
        assert "last lines of" in hint
        return
    glance = ProbeAnswers(None, answer)
    sight = confirmed_sight(glance, backend.sight, uncached=backend.uncached)
    kinds = {finding.kind for finding in probe_findings(glance, backend.sight, backend.draft_hint)}
    silent = kinds & {"silent_speculation", "drafting_not_shown"}
    assert answer.fault is not None or silent or Sight.CLAIMED_ROUNDS not in sight
    assert not answer.claims.accepted


def test_vllm_drafts_as_it_claims(real: Open, reference: Callable[[str], Answer]) -> None:
    """The words stay plain decoding's, and each round gives one token of the target beside what was accepted."""
    which, claims = setting(draft="little-draft", num_draft_tokens=4), []

    with real("vllm", "little-draft").start(which) as server:
        for workload in WORKLOADS:
            answer = server.answer(make_request(workload, which))
            assert (None, reference(workload).text) == (answer.fault, answer.text)
            claims.append(answer.claims)
            rounds, accepted = answer.claims.rounds or 0, answer.claims.accepted or 0
            assert answer.output_tokens is not None
            assert 0 <= accepted + rounds + 1 - answer.output_tokens <= 4  # the end is in the last round

    assert all(claim.accepted == sum(claim.accepted_by_position) for claim in claims)
    assert all(0 < (claim.accepted or 0) <= (claim.drafted or 0) for claim in claims)
