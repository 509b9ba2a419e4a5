"""The draws: first tokens of a few short prompts, sampled many times in both arms, each with a seed of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gatekeeper.desk import Desk, Request
from gatekeeper.terms.canary import Canary
from gatekeeper.terms.records import Generation, Role, Setting
from gatekeeper.terms.slo import Slo
from gatekeeper.verdict.draws import DRAWS, PROMPTS, TOKENS
from gatekeeper.verdict.plan import plain_of, sampling_for

Observe = Callable[[str, dict[str, object]], None]


@dataclass(frozen=True, slots=True)
class Draws:
    """What one distribution check is given."""

    slo: Slo
    name: str
    """The soak it belongs to."""
    settings: Mapping[str, Setting]
    """Of the workloads whose distribution is checked."""
    resident: Setting
    canaries: Mapping[str, Sequence[Canary]]
    before: tuple[Generation, ...] = ()
    """What an earlier, interrupted segment recorded."""


def draw(
    given: Draws, open_desk: Callable[[], Desk], *, record: Callable[[Generation], None], observe: Observe
) -> None:
    """Draw in the plain arm, then in the candidate's; no two draws share a seed, so all are independent."""
    done = {one.key for one in given.before}

    def note(one: Generation) -> None:
        record(one)
        observe("answer", {"generation": one, "soak": given.name})

    for arm, resident in (("plain", plain_of(given.resident)), ("candidate", given.resident)):
        missing = [one for one in _requests(given, arm) if one.key not in done]
        if missing:
            with open_desk() as desk:
                desk.open(resident)
                desk.ask_all(iter(missing), 1, note)


def shortest(canaries: Sequence[Canary]) -> list[Canary]:
    """Return the canaries with the shortest prompts, by the letters of their messages."""
    return sorted(canaries, key=lambda one: (sum(len(str(said.get("content"))) for said in one.messages), one.id))[
        :PROMPTS
    ]


def _requests(given: Draws, arm: str) -> Iterator[Request]:
    seed = given.slo.sampling.seed
    for name, candidate in given.settings.items():
        knobs = candidate if arm == "candidate" else plain_of(candidate)
        setting = tuple((knob, value) for knob, value in knobs if knob not in {"max_tokens", "concurrency"})
        for canary in shortest(given.canaries[name]):
            short = canary.model_copy(update={"max_tokens": TOKENS})
            for number in range(DRAWS):
                seed += 1
                own = 2 * seed + (arm == "candidate")
                yield Request(
                    trial=given.name,
                    key=f"{arm}-{number}:{name}/{canary.id}",
                    workload=name,
                    canary=short,
                    arm=arm,
                    setting=setting,
                    sampling=replace(sampling_for(given.slo, short, setting, 1), seed=own),
                    role=Role.DRAW,
                    repeat=number,
                )
