"""How often the holdout's interval holds the truth all day, and how soon a loss is proven.

    python -m bench.proxy_days 100 11       # days of each of the eleven worlds, and a seed
    python -m bench.proxy_days losses 10    # after how many requests a loss is proven

Days of live traffic on simulated servers: events on a virtual clock, no sockets. What is simulated is around the proxy:
clients, conversations, servers that share their speed between the answers in flight and keep the prompts that they have
read. Routes, draws, loads and evidence are the proxy's own. The interval is looked at after each plain answer, and
counts only where it held the truth at every look; until it has enough to say, it says *unproven*. A loss is looked for
after every plain answer, by a policy with its defaults that lives for 30 days.
"""

import heapq
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from gatekeeper.core.clock import Instant
from gatekeeper.core.judgement import Estimate, Missing
from gatekeeper.core.policy import Policy
from gatekeeper.live import live_records
from gatekeeper.live.answer_meter import AnswerMeter
from gatekeeper.live.live_conversations import prefix_digests
from gatekeeper.live.live_evidence import Benefit
from gatekeeper.live.live_records import EndedRequest
from gatekeeper.live.live_request import LiveRequest
from gatekeeper.live.request_fields import RequestConditions
from gatekeeper.live.request_routes import RequestDecision, RequestRoutes
from tests.builders.live_server import CHAT, live_policy, published

DAY_S = 86_400.0
CHARS = 4.0
"""Of a token."""


@dataclass(frozen=True, slots=True)
class World:
    """What traffic and servers are like; times in seconds, lengths in tokens, speeds in tokens per second."""

    name: str
    ratio: float = 1.15
    """True decode speed over plain decoding's, at equal load."""
    requests: int = 2650
    """In the mean of a day."""
    holdout: float = 0.05
    turns: float = 1.0
    """Requests of a conversation, in the mean (geometric)."""
    pause: float = 60.0
    """Between an answer and the next request of its conversation, in the mean."""
    streamed: float = 1.0
    claims: bool = False
    """The server claims its decoding time, also of an answer that is not streamed."""
    prompt: float = 200.0
    """New tokens of a request; it has all tokens of its conversation before them."""
    answer: float = 150.0
    prefill: float = 400.0
    """Tokens read per second."""
    decode: float = 40.0
    caches: bool = False
    """A server reads only what it has not read of a conversation."""
    hours: float = 24.0
    """In which the traffic of the day comes."""
    crowding: float = 0.0
    """An answer takes as much longer for each further one that counts for it."""
    separate: bool = False
    """Plain decoding has a server of its own."""
    one_machine: bool = False
    """Both servers share the machine: what is in flight at one slows the other down as well."""
    diurnal: bool = False
    mix_drifts: bool = False
    gain_by_kind: float = 0.0
    """Logarithm by which the gain of one kind of conversation is above the truth, and of the other below it."""
    failing: float = 0.0
    """Share of answers that fail; their requests come again."""
    patience: float = math.inf
    """Mean time after which a client leaves."""
    longer: float = 1.0
    """Length of speculative answers over plain ones."""
    noise: float = 0.15
    between: float = 0.08
    """Standard deviation, of a logarithm, of the speeds of an answer and of a conversation."""


@dataclass(slots=True)
class Talk:
    """A conversation."""

    number: int
    left: int
    kind: bool
    log_speed: float
    tokens: float = 0.0
    digests: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Job:
    """A request at its server."""

    talk: Talk
    decision: RequestDecision
    server: str
    meter: AnswerMeter
    request: LiveRequest
    prefill: float
    """Seconds of reading left, alone on the machine."""
    tokens: float
    """Left to write."""
    total: float
    speed: float
    streamed: bool
    leaves_at: float
    fails: bool


@dataclass(slots=True)
class Day:
    """A simulation that runs until its end."""

    world: World
    rng: np.random.Generator
    seconds: float = DAY_S
    look: Callable[["Day"], bool] | None = None
    """Called after each answer that is evidence; ends the simulation by returning True."""
    now: float = 0.0
    answered: int = 0
    arm: str | None = None
    """Of the newest answer."""
    is_ended: bool = False
    """By `look`."""
    jobs: list[Job] = field(default_factory=list)
    _due: list[tuple[float, int, Talk]] = field(default_factory=list)
    _read: dict[tuple[str, int], float] = field(default_factory=dict)
    _talks: int = 0
    routes: RequestRoutes = field(init=False)
    policy: Policy = field(init=False)

    def __post_init__(self) -> None:
        self.routes = RequestRoutes(self.rng.random, lambda: round(self.now * 1e9))
        # Servers cache prompts: the time of whole answers is no evidence then, and takes no share of the error.
        self.policy = live_policy(1000, cache="on", holdout=self.world.holdout)
        published(self.routes, of=self.policy)

    def run(self) -> "Day":
        """Simulate all events in their order."""
        arrival = self._next_arrival(0.0)
        while True:
            change = min((self._until_change(job) for job in self.jobs), default=math.inf)
            due = self._due[0][0] if self._due else math.inf
            event = min(self.now + change, due, arrival)
            if event >= self.seconds:
                return self
            self._go_on(event - self.now)
            self.now = event
            if event == arrival:
                self._talks += 1
                self._begin(self._new_talk())
                arrival = self._next_arrival(event)
            elif event == due:
                self._begin(heapq.heappop(self._due)[2])
            elif self._change():
                return self

    def benefit(self) -> Benefit:
        """Return what the proxy shows now."""
        benefit = self.routes.evidence.benefit("easy")
        assert benefit is not None
        return benefit

    def instant(self) -> Instant:
        """Return this moment, as the watch has it."""
        return Instant(round(self.now * 1e9), datetime.fromtimestamp(self.now, UTC))

    def _next_arrival(self, after: float) -> float:
        """Return when the next conversation begins: a Poisson process within the busy hours."""
        world, busy = self.world, self.world.hours * 3600
        most = world.requests / world.turns / busy * (1.9 if world.diurnal else 1.0)
        while True:
            after += self.rng.exponential(1 / most)
            if after % DAY_S > busy:
                after += DAY_S - after % DAY_S
            level = 1 + 0.9 * math.sin(2 * math.pi * (after % DAY_S) / busy)
            if not world.diurnal or self.rng.random() * 1.9 < level:
                return after

    def _new_talk(self) -> Talk:
        share = (0.2 + 0.6 * (self.now % DAY_S) / DAY_S) if self.world.mix_drifts else 0.5
        turns = int(self.rng.geometric(1 / self.world.turns))
        return Talk(self._talks, turns, bool(self.rng.random() < share), self.rng.normal(0, self.world.between))

    def _begin(self, talk: Talk) -> None:
        world, rng = self.world, self.rng
        talk.left -= 1
        prompt = world.prompt * math.exp(rng.normal(0, 0.4))
        talk.tokens += prompt
        before = talk.digests or prefix_digests(str(talk.number), [("system", "")])
        talk.digests = (*before, *prefix_digests(before[-1].hex(), [("user", str(rng.random()))]))
        size = round(talk.tokens * CHARS)
        as_certified = RequestConditions(prompt_bytes=size, messages=1, options={"temperature": "0"}, model="t")
        request = LiveRequest(CHAT, prompt_chars=size, prefixes=talk.digests, conditions_of_long=as_certified)
        decision = self.routes.decide(request)
        server = "plain" if world.separate and not decision.speculative else "speculative"
        read = min(self._read.get((server, talk.number), 0.0), talk.tokens) if world.caches else 0.0
        # Two kinds of conversations differ in their speed and length, so that a mix that drifts confounds.
        log_speed = math.log(world.decode) + talk.log_speed + rng.normal(0, world.noise) + (0.2 if talk.kind else -0.2)
        if decision.speculative:
            log_speed += math.log(world.ratio) + world.gain_by_kind * (1 if talk.kind else -1)
        tokens = world.answer * math.exp(rng.normal(0, 0.6)) * (world.longer if decision.speculative else 1.0)
        tokens *= 1.3 if talk.kind else 0.8
        streamed = bool(rng.random() < world.streamed)
        meter = AnswerMeter(round(self.now * 1e9), streamed=streamed, status=200)
        meter.served = self.routes.load.begin(server)
        self.routes.begin()
        talk.tokens += tokens
        self._read[server, talk.number] = talk.tokens
        self.jobs.append(
            Job(
                talk,
                decision,
                server,
                meter,
                request,
                (request.prompt_chars / CHARS - read) / world.prefill * math.exp(rng.normal(0, 0.1)),
                tokens,
                tokens,
                math.exp(log_speed),
                streamed,
                self.now + rng.exponential(world.patience) if math.isfinite(world.patience) else math.inf,
                bool(rng.random() < world.failing),
            )
        )

    def _pace(self, job: Job) -> float:
        """Return how much slower an answer is than alone on the machine."""
        crowd = [other for other in self.jobs if self.world.one_machine or other.server == job.server]
        return 1 / (1 + self.world.crowding * (len(crowd) - 1))

    def _until_change(self, job: Job) -> float:
        pace = self._pace(job)
        work = job.prefill if job.prefill > 0 else job.tokens / job.speed
        return min(work / pace, max(0.0, job.leaves_at - self.now))

    def _go_on(self, seconds: float) -> None:
        for job, pace in [(job, self._pace(job)) for job in self.jobs]:
            if job.prefill > 0:
                job.prefill -= seconds * pace
            else:
                job.tokens -= seconds * pace * job.speed

    def _change(self) -> bool:
        """Let the first text come, or an answer end, of the requests that are due for it."""
        for job in list(self.jobs):
            now_ns = round(self.now * 1e9)
            if self.now >= job.leaves_at:
                self._end(job, live_records.CLIENT_LEFT)
            elif job.prefill <= 1e-9 and job.meter.first_ns is None and job.tokens == job.total:
                job.prefill = 0.0
                job.meter.first_ns = now_ns
                if job.streamed and job.meter.served is not None:
                    job.meter.served.first_text()
                if job.fails:
                    self._end(job, "status 500")
            elif job.meter.first_ns is not None and job.tokens <= 1e-6 and self._end(job, None):
                return True
        return False

    def _end(self, job: Job, fault: str | None) -> bool:
        """Count an answer as the proxy does; return whether the simulation ends."""
        self.jobs.remove(job)
        self.routes.end()
        meter, talk, now_ns = job.meter, job.talk, round(self.now * 1e9)
        assert meter.served is not None
        meter.served.end()
        meter.chars, meter.last_ns = round((job.total - job.tokens) * CHARS), now_ns
        decode_s = (now_ns - (meter.first_ns or now_ns)) / 1e9
        if not meter.streamed:
            claim = b',"timings":{"predicted_ms":%f}' % (1e3 * decode_s) if self.world.claims else b""
            meter.first_ns = meter.last_ns = None
            meter.feed(b'{"content":"%s"%s}' % (b"x" * meter.chars, claim), now_ns)
        ended = EndedRequest("POST", datetime.now(UTC), meter, job.request, job.decision, job.server, 200, fault)
        ended.measure(now_ns, None)
        if fault is not None and fault != live_records.CLIENT_LEFT:
            ended.status = 500
            talk.left += 1
            heapq.heappush(self._due, (self.now + 1.0, self.answered, talk))
        elif talk.left > 0 and fault is None:
            heapq.heappush(self._due, (self.now + self.rng.exponential(self.world.pause), self.answered, talk))
        self.answered += 1
        if not ended.is_evidence:
            return False
        self.routes.evidence.add(live_records.observation(ended), now_ns)
        self.arm = job.decision.arm
        self.is_ended = self.look is not None and self.look(self)
        return self.is_ended


BASE = World("base")
OWN_SERVER = World("plain server of its own", hours=8, crowding=0.3, separate=True)
STICKY = World(
    "sticky conversations, 70 % not streamed", turns=4, streamed=0.3, caches=True, separate=True, prefill=800
)
STICKY_LONG = replace(STICKY, name="the same, prompts of 2,000 tokens, short answers", prompt=2000, answer=40)
WORLDS = (
    BASE,
    World("load shared by both arms", hours=8, crowding=0.3),
    World("load that follows the hour", crowding=0.3, diurnal=True),
    World("mix of requests drifts", mix_drifts=True),
    World("gain differs by kind", gain_by_kind=0.1),
    World("failed requests come again", failing=0.03),
    World("impatient clients leave", patience=60.0),
    World("longer answers", longer=1.3),
    OWN_SERVER,
    STICKY,
    STICKY_LONG,
)


def held(world: World, seed: int) -> tuple[bool, bool, Estimate | Missing]:
    """Return whether speed and time to first token held the truth all day, and the speed at its end."""
    misses = {"speed": False, "ttft": False}

    def look(day: Day) -> bool:
        if day.arm == "holdout" or day.answered % 100 == 0:
            benefit = day.benefit()
            for name, truth in (("speed", world.ratio), ("ttft", 1.0)):
                estimate = getattr(benefit, name)
                misses[name] |= isinstance(estimate, Estimate) and not estimate.lo <= truth <= estimate.hi
        return False

    day = Day(world, np.random.default_rng(seed), look=look).run()
    return not misses["speed"], not misses["ttft"], day.benefit().speed


def print_worlds(days: int, seed: int = 1) -> float:
    """Print a row for each world; return the least share of days that held."""
    print("| world | speed held | first token held | days with an interval | bias | half-width |")
    print("|---|---|---|---|---|---|")
    least = 1.0
    for world in WORLDS:
        speeds, ttfts, ends = zip(*(held(world, seed * 10_000 + day) for day in range(days)), strict=True)
        shares = sum(speeds) / days, sum(ttfts) / days
        estimates = [end for end in ends if isinstance(end, Estimate)]
        cells = [*(f"{share:.1%}" for share in shares), f"{len(estimates) / days:.0%}"]
        if estimates:
            cells.append(f"{np.mean([math.log(estimate.center / world.ratio) for estimate in estimates]):+.1%}")
            cells.append(f"{np.mean([math.log(estimate.hi / estimate.lo) / 2 for estimate in estimates]):.1%}")
        else:
            cells += ["unproven", "unproven"]
        print(f"| {world.name} |", " | ".join(cells), "|", flush=True)
        least = min(least, *shares)
    return least


def requests_until_off(world: World, days: float, seed: int) -> int | None:
    """Return after how many requests the live guard turns the route off; None where it does not."""

    def look(day: Day) -> bool:
        return day.arm == "holdout" and bool(day.routes.evidence.judge("easy", day.policy, day.instant()))

    day = Day(world, np.random.default_rng(seed), seconds=days * DAY_S, look=look).run()
    return day.answered if day.is_ended else None


def print_losses(runs: int = 10) -> None:
    """Print after how many requests a loss is proven in three days: how often, the median, and nine of ten."""
    print("| world | decode speed over plain | holdout | proven | requests: median, nine of ten |")
    print("|---|---|---|---|---|")
    for world in (BASE, OWN_SERVER, STICKY, STICKY_LONG):
        for ratio in (0.5, 0.7, 0.9):
            for holdout in (0.02, 0.05):
                losing = replace(world, ratio=ratio, holdout=holdout)
                counts = [requests_until_off(losing, 3, 100 + run) for run in range(runs)]
                ordered = sorted(math.inf if count is None else count for count in counts)
                at = [ordered[(runs - 1) // 2], ordered[math.ceil(0.9 * runs) - 1]]
                shown = ", ".join(f"{count:,}" if math.isfinite(count) else "not in three days" for count in at)
                proven = sum(count is not None for count in counts)
                print(f"| {world.name} | {ratio} | {holdout:.0%} | {proven} of {runs} | {shown} |", flush=True)


def main(what: str = "100", *numbers: str) -> None:
    """Run one of the commands above."""
    if what == "losses":
        print_losses(*map(int, numbers))
    else:
        print_worlds(int(what), *map(int, numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
