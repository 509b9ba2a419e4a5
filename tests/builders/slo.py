"""Objectives, canaries and answers made by hand, so that every figure in a test can be checked on paper."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gatekeeper.analysis.metrics.paired_answers import PairedAnswers, pair_answers
from gatekeeper.core.canary import Canary
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.records import Answer, Claims, Generation, Role, Rounds, Setting, StoredRecords, setting
from gatekeeper.core.records.arrivals import Arrival
from gatekeeper.core.slo import Slo

SECOND = 1_000_000_000
FAST = setting(draft="heavy", num_draft_tokens=4)
PLAIN = setting(draft=None)

Twins = tuple[list[Generation], list[Generation]]


def canary(name: str = "c-00", **more: Any) -> Canary:
    return Canary.model_validate({"id": name, "messages": [{"role": "user", "content": f"Say {name}."}], **more})


def canaries(count: int, prefix: str = "c", **more: Any) -> tuple[Canary, ...]:
    return tuple(canary(f"{prefix}-{number:03}", **more) for number in range(count))


def objective(metric: str, **more: Any) -> dict[str, Any]:
    bound = {} if {"at_least", "at_most"} & more.keys() else {"at_least": 1.0}
    return {"metric": metric, "why": "a test promises it", **bound, **more}


def slo(*objectives: Mapping[str, Any], **changes: Any) -> Slo:
    """Return a small SLO: one workload `easy`, two drafts, draft lengths 2 and 4."""
    return Slo.model_validate(
        {
            "schema": 1,
            "name": "made",
            "subject": {"backend": "scripted", "target": "t", "drafts": ["heavy", "light"], "script": "truth.json"},
            "workload": [{"name": "easy", "canaries": "easy.jsonl"}],
            "sweep": {"repeats": 1, "num_draft_tokens": [2, 4], "default": {"num_draft_tokens": 4}},
            "soak": {"duration": "600 s"},
            "objective": list(objectives) or [objective("throughput_ratio", at_least=1.16)],
            **changes,
        }
    )


def arrivals(
    times_s: Sequence[float],
    tokens: Sequence[int | None] | None = None,
    drafted: Sequence[bool | None] | None = None,
    ids: Sequence[int | None] | None = None,
) -> tuple[Arrival, ...]:
    """Return arrivals at *times_s*, one token each unless told."""
    count = len(times_s)
    return tuple(
        Arrival(round(at * SECOND), count_here, proposed, token)
        for at, count_here, proposed, token in zip(
            times_s, tokens or [1] * count, drafted or [None] * count, ids or [None] * count, strict=True
        )
    )


def answer(
    times_s: Sequence[float] = (0.1, 0.2, 0.3),
    *,
    sent_s: float = 0.0,
    ended_s: float | None = None,
    tokens: Sequence[int | None] | None = None,
    drafted: Sequence[bool | None] | None = None,
    ids: Sequence[int | None] | None = None,
    **more: Any,
) -> Answer:
    """Return an answer whose arrivals come at *times_s* after it was sent; it ends with the last one unless told."""
    last = ended_s if ended_s is not None else max(times_s, default=0.0)
    counted = [token for token in (tokens or [1] * len(times_s)) if token is not None]
    return Answer(
        sent_ns=round(sent_s * SECOND),
        ended_ns=round((sent_s + last) * SECOND),
        arrivals=arrivals([sent_s + at for at in times_s], tokens, drafted, ids),
        **{"output_tokens": sum(counted), "finish": "stop", "text": "ok", **more},
    )


def generation(made: Answer, name: str = "c-000", *, arm: str = "candidate", **more: Any) -> Generation:
    knobs: Setting = FAST if arm == "candidate" else PLAIN
    fields: dict[str, Any] = {
        "trial": "soak-1",
        "key": f"{arm}-{name}-{made.sent_ns}",
        "workload": "easy",
        "setting": knobs,
        "role": Role.MEASURED,
        "repeat": 0,
        "pair": "",
        "concurrency": 1,
        "at": f"2026-01-01T00:00:{made.sent_ns // SECOND % 60:02}.000000Z",
        **more,
    }
    return Generation(canary=name, arm=arm, answer=made, **fields)


def steady(seconds: float, count: int = 8, *, first_s: float = 0.1, sent_s: float = 0.0, **more: Any) -> Answer:
    """Return *count* tokens, *seconds* apart, the first one after *first_s*."""
    return answer([first_s + seconds * number for number in range(count)], sent_s=sent_s, **more)


def counted(rounds: int, drafted: int, accepted: int) -> Rounds:
    return Rounds(rounds, drafted, accepted)


def claimed(drafted: int, accepted: int) -> Claims:
    return Claims(drafted=drafted, accepted=accepted)


def evidence(
    answers: Sequence[Generation], plain: Sequence[Generation] = (), known: Sequence[Canary] = (), **more: Any
) -> PairedAnswers:
    """Gather *answers* and *plain*; the frozen set is the canaries they name, unless *known* says otherwise."""
    names = {one.canary: canary(one.canary) for one in (*answers, *plain)}
    frozen = {prompt.id: prompt for prompt in known} or names
    bare = PairedAnswers("easy", frozen, tuple(answers), tuple(plain), level=0.95, seed=7, greedy=True)
    return pair_answers(replace(bare, **more))


def followed(**records: Sequence[Any] | str) -> dict[str, StoredRecords[Any]]:
    """Return what the follow-ups of a soak recorded, by their names; a text is the trouble of its file."""
    return {
        name: StoredRecords((), stored) if isinstance(stored, str) else StoredRecords(tuple(stored))
        for name, stored in records.items()
    }


def grown(name: str, drafting: Answer | None = None, plain: Answer | None = None) -> list[Generation]:
    """Return the records of a conversation with a warm cache: every turn of an arm has the same answer."""
    same = answer(text="x")
    turns = [
        generation(same, prompt, arm="plain", role=Role.COLD, key=f"cold:{prompt}", pair=f"{name}#0")
        for prompt in (name, f"{name}+x")
    ]
    for arm, reply in (("candidate", drafting or same), ("plain", plain or same)):
        for turn, prompt in enumerate((name, name, name, f"{name}+x")):
            key, pair = f"{arm}-{turn}:{prompt}", f"{name}#{turn}"
            turns.append(generation(reply, prompt, arm=arm, role=Role.WARM, repeat=turn, key=key, pair=pair))
    return turns


def known(estimate: Estimate | Missing) -> Estimate:
    assert isinstance(estimate, Estimate), estimate
    return estimate


def near(value: float) -> Any:
    import pytest  # noqa: PLC0415  benches use this module where the tests' tools are not installed

    return pytest.approx(value)


def because(missing: Estimate | Missing) -> str:
    assert isinstance(missing, Missing), missing
    return missing.because


def twins(
    count: int,
    drafted_answer: Callable[[int], Answer],
    plain: Callable[[int], Answer],
    *,
    role: Role = Role.BASELINE,
) -> Twins:
    """Return *count* pairs, one per canary."""
    drafted = [generation(drafted_answer(at), f"c-{at:03}", pair=f"p{at}") for at in range(count)]
    plain_answers = [generation(plain(at), f"c-{at:03}", arm="plain", role=role, pair=f"p{at}") for at in range(count)]
    return drafted, plain_answers


def spread(count: int, make: Callable[[int], Answer], repeats: int = 1) -> list[Generation]:
    return [generation(make(at), f"c-{at:03}", key=f"{at}.{again}") for at in range(count) for again in range(repeats)]


def marked(passes: Sequence[bool], arm: str, **more: Any) -> list[Generation]:
    """Answer canary number n of the frozen set rightly or wrongly."""
    role = Role.MEASURED if arm == "candidate" else Role.BASELINE
    return [
        generation(answer(text="right" if ok else "wrong", **more), f"c-{at:03}", arm=arm, role=role)
        for at, ok in enumerate(passes)
    ]
