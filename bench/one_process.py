"""How `num_draft_tokens: 0` in the mlx_lm.server that drafts differs from a server without a draft.

python bench/one_process.py --each 8 --repeats 3     # two minutes on the little pair

Each canary is answered by a server without a draft, and by one with it with no and with four draft tokens, one after
the other in random order; then come words under a penalty for repetition, and second turns with the prompt cache on.
"""

import argparse
import json
import math
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that it runs as a script, from anywhere

from gatekeeper.analysis.stats.intervals import by_canary, mean_of_logs
from gatekeeper.analysis.stats.total_time import linearise_times
from gatekeeper.backends import open_backend
from gatekeeper.backends.dialect import Counters
from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.backends.server_requests import Server
from gatekeeper.core import canary
from gatekeeper.core.canary import Canary
from gatekeeper.core.interfaces import DecodeRequest, SamplingParameters
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Answer, Setting
from gatekeeper.core.slo.subject_table import Subject

ROOT = Path(__file__).resolve().parents[1]
WORKLOADS = ("json", "math", "list", "prose")
PLAIN: Setting = (("draft", None),)
DRAFT_LENGTH = 4
TOKENS = 96
PENALTY = {"repetition_penalty": 1.3}


def drafting(tokens: int) -> Setting:
    """Return the setting of the server that drafts, with *tokens* draft tokens a round."""
    return (("draft", "little-draft"), ("num_draft_tokens", tokens))


def open_pair(folder: Path) -> ServerBackend:
    """Return the backend of the little pair on the real mlx_lm.server, with its logs in *folder*."""
    names = ("little-target", "little-draft")
    models = {name: ROOT / "models" / name for name in names}
    subject = Subject.model_validate({"backend": "mlx-server", "target": names[0], "drafts": names[1:]})
    backend = open_backend(subject, models=models, base=ROOT, logs=folder)
    assert isinstance(backend, ServerBackend)
    return backend


def canaries_of(each: int) -> list[Canary]:
    """Return the first *each* canaries of every workload."""
    texts = {name: (ROOT / "canaries" / "little" / f"{name}.jsonl").read_text() for name in WORKLOADS}
    return [prompt for name, text in texts.items() for prompt in canary.parse(text, name)[:each]]


def post(server: Server, messages: Sequence[Mapping[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return the answer of *server* to a request that does not stream."""
    body = {"messages": list(messages), "max_tokens": TOKENS, "temperature": 0.0, **fields}
    request = Request(server.root.at("/v1/chat/completions"), json.dumps(body).encode())  # noqa: S310 (our server)
    request.add_header("Content-Type", "application/json")
    with urlopen(request, timeout=120) as response:  # noqa: S310
        document: dict[str, Any] = json.load(response)
    return document


def text_of(document: Mapping[str, Any]) -> str:
    """Return what the model wrote."""
    return str(document["choices"][0]["message"]["content"])


def speeds(plain: Server, pair: Server, prompts: Sequence[Canary], repeats: int) -> Iterator[str]:
    """Yield how many times as fast each arm does the same work, after the first token and until then."""
    arms = {"alone": (plain, PLAIN), "switched": (pair, drafting(0)), "drafted": (pair, drafting(DRAFT_LENGTH))}
    answers: dict[str, dict[str, list[Answer]]] = {arm: {prompt.id: [] for prompt in prompts} for arm in arms}
    order, shuffle = list(arms), random.Random(5)
    for prompt in (prompt for _ in range(repeats) for prompt in prompts):
        shuffle.shuffle(order)
        for arm in order:
            server, setting = arms[arm]
            answer = server.answer(DecodeRequest(prompt, setting, SamplingParameters(max_tokens=TOKENS)))
            if answer.fault is not None:
                sys.exit(f"{arm}: {prompt.id}: {answer.fault}")
            answers[arm][prompt.id].append(answer)
    for title, seconds in (("decoding", decode_seconds), ("first token", first_token_seconds)):
        for arm, reference in (("switched", "alone"), ("drafted", "alone"), ("drafted", "switched")):
            totals = [
                (name, sum(map(seconds, answers[reference][name])), sum(map(seconds, of_canary)))
                for name, of_canary in answers[arm].items()
            ]
            times = [(name, before, after) for name, before, after in totals if min(before, after) > 0]
            estimate = mean_of_logs(by_canary(linearise_times(times).logs), 0.95)
            yield f"{title}, {arm} against {reference}: {shown(estimate)}, {len(times)} canaries"
    equal = sum(answers["switched"][prompt.id][0].text == answers["alone"][prompt.id][0].text for prompt in prompts)
    yield f"the same words, switched and alone: {equal} of {len(prompts)} canaries"


def decode_seconds(answer: Answer) -> float:
    """Return the time from the first piece of an answer to its last."""
    return (answer.arrivals[-1].at_ns - answer.arrivals[0].at_ns) / 1e9


def first_token_seconds(answer: Answer) -> float:
    """Return the time from the request to the first piece of its answer."""
    return (answer.arrivals[0].at_ns - answer.sent_ns) / 1e9


def shown(estimate: Estimate | Missing) -> str:
    """Return an estimate with its 95 % interval as text."""
    if isinstance(estimate, Missing):
        return estimate.because
    return f"{estimate.center:.3f}x ({estimate.lo:.3f} to {estimate.hi:.3f})"


def penalties(plain: Server, pair: Server, prompts: Sequence[Canary]) -> Iterator[str]:
    """Yield to how many canaries the words stay the same where a request has a penalty for repetition."""
    alone = [text_of(post(plain, prompt.messages, **PENALTY)) for prompt in prompts]
    for arm, length in (("switched", 0), ("drafted", DRAFT_LENGTH)):
        texts = [text_of(post(pair, prompt.messages, num_draft_tokens=length, **PENALTY)) for prompt in prompts]
        equal = sum(text == plain_text for text, plain_text in zip(texts, alone, strict=True))
        yield f"with repetition_penalty 1.3, the same words, {arm} and alone: {equal} of {len(prompts)} canaries"


def next_turns(pair: Server, prompts: Sequence[Canary]) -> Iterator[str]:
    """Yield how much of the second turn's drafts is accepted after a drafted and after a switched first turn."""
    for name, length in (("drafted", DRAFT_LENGTH), ("switched", 0)):
        drafted = accepted = cached = 0
        for prompt in prompts:
            first = [{"role": "user", "content": f"{name}. {prompt.messages[-1]['content']}"}]
            answer = {"role": "assistant", "content": text_of(post(pair, first, num_draft_tokens=length))}
            before = pair.counters() or Counters()
            usage = post(pair, [*first, answer, *prompt.messages], num_draft_tokens=DRAFT_LENGTH)["usage"]
            gain = (pair.counters() or Counters()).since(before)
            drafted += gain.drafted or 0
            accepted += gain.accepted or 0
            cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        share = accepted / drafted if drafted else math.nan
        yield f"second turn, the first one {name}: {share:.3f} accepted of {drafted}; {cached} prompt tokens cached"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--each", type=int, default=6, help="canaries of each workload")
    parser.add_argument("--repeats", type=int, default=2, help="answers of each arm to a canary")
    options = parser.parse_args()
    prompts = canaries_of(options.each)
    with tempfile.TemporaryDirectory() as logs, ExitStack() as stack:
        backend = open_pair(Path(logs))
        plain, pair = (stack.enter_context(backend.start(setting)) for setting in (PLAIN, drafting(DRAFT_LENGTH)))
        for line in speeds(plain, pair, prompts, options.repeats):
            print(line, flush=True)
        for line in penalties(plain, pair, prompts):
            print(line, flush=True)
        pair.close()
        cached = stack.enter_context(backend.start(drafting(DRAFT_LENGTH), cache=True))
        for line in next_turns(cached, prompts):
            print(line, flush=True)


if __name__ == "__main__":
    main()
