"""A session: one watch of a policy and its server, round after round, from its start to its end."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any, Self

from gatekeeper import host
from gatekeeper.analysis.plan.settings import plain_of
from gatekeeper.backends.dialects import running_dialect
from gatekeeper.backends.server_requests import NOT_PLAIN
from gatekeeper.core.clock import Clock, Instant, clock_gap, stamp
from gatekeeper.core.errors import GatekeeperError, InputError
from gatekeeper.core.exit_codes import ExitCode
from gatekeeper.core.policy import Policy
from gatekeeper.core.system.own_limits import OwnLimitError
from gatekeeper.live import terminal_lines
from gatekeeper.live.canary_round import CanaryRound, DutyBudget
from gatekeeper.live.early_warnings import EarlyWarning, EarlyWarnings
from gatekeeper.live.guards.guard_judgement import GuardContext, GuardResult, server_seconds
from gatekeeper.live.guards.recent_samples import RecentHost
from gatekeeper.live.outputs import Outputs, Say, Write
from gatekeeper.live.overlay import OverlayRoute, PublishedRoutes, read_overlay
from gatekeeper.live.request_routes import RequestRoutes
from gatekeeper.live.routes import LoggedRoutes, RouteChange, Routes, read_log
from gatekeeper.live.running import certified_run
from gatekeeper.live.running.certified_run import CertifiedRun, PolicyFile
from gatekeeper.live.running.deployed_server import DeployedServer, attach, seen_process
from gatekeeper.live.running.model_identity import ModelIdentity
from gatekeeper.live.running.server_differences import ServerConditions
from gatekeeper.live.watch_config import WatchConfig, host_interval
from gatekeeper.live.watch_log import entries

SLACK_S = 15.0
"""An overlay is valid for two intervals, twice the last round, the commands' limits, and this for a slow collector."""


UNISSUED = timedelta(days=1)
"""With a clock so far before the policy's issue, its expiry cannot be determined."""


class Session:
    """Watches while it is entered: `run_round` once, or `run` until it is interrupted."""

    def __init__(
        self,
        config: WatchConfig,
        certified: CertifiedRun,
        policy_file: PolicyFile,
        server: DeployedServer,
        identity: ModelIdentity,
        clock: Clock,
        *,
        say: Say,
        write: Write,
        traffic: RequestRoutes | None = None,
    ) -> None:
        """Watch the server of *config*; *say* and *write* show messages and log entries; *traffic* is real requests."""
        self._config, self.certified, self._policy_file = config, certified, policy_file
        self._traffic = traffic
        self._server, self._identity, self._clock = server, identity, clock
        policy, now, slo = config.apply(policy_file.policy), Instant.of(clock), certified.inputs.slo
        url = config.url or slo.subject.url
        self._url = url or "unknown address"
        self._samples_host = config.samples_host(policy, url)
        self._host_interval = host_interval(policy)
        self.routes = Routes(policy, switched=server.both_arms, now=now)
        self.budget = DutyBudget(policy.watch.duty, policy.watch.interval, now.now_ns)
        self._outputs = Outputs(config, certified, clock, url=self._url, say=say, write=write, state=self._snapshot)
        self.metrics = self._outputs.metrics
        self._round = CanaryRound(slo, certified.inputs.canaries, server, clock)
        self._early_warnings = EarlyWarnings(server.name)
        self._conditions = ServerConditions()
        self._host, self._sampling = RecentHost(), ExitStack()
        self._sampler: host.Sampler | None = None
        self._stack = ExitStack()
        self._last, self._rested, self._took = now, 0.0, 0.0
        self._identified: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        """Take the locks, continue from the log, and show what is watched."""
        with ExitStack() as stack:
            stack.enter_context(self._outputs)
            stack.callback(self._sampling.close)
            routes = self.routes
            routes.restore(*self._read_routes(), self._last)
            watch = routes.policy.watch
            self._outputs.say(
                terminal_lines.describe_start(self._url, routes.policy.slo, routes.standings, routes.rules)
            )
            if (edited := self._policy_file.edited) is not None:
                self._outputs.say(edited, terminal_lines.WARNING)
            self._outputs.say(terminal_lines.canary_cost(watch.duty, watch.interval))
            seconds = server_seconds(routes.policy, both_arms=self.both_arms)
            for line in (
                terminal_lines.time_to_half(seconds, watch.duty),
                terminal_lines.warm_ups(routes.policy.route),
            ):
                if line is not None:
                    self._outputs.say(line)
            self._publish_traffic([self._overlay_route(route.workload) for route in routes.policy.route], until_ns=0)
            digest = self._policy_file.sha256
            self._outputs.note("begun", policy_sha256=digest, url=self._url, duty=watch.duty, **self._snapshot())
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        """Write a last overlay with the reason of the end, and release everything."""
        reason = f"failed: {error}" if kind is not None else "finished: all --rounds done"
        if kind is KeyboardInterrupt:
            reason = "interrupted"
        try:
            with suppress(GatekeeperError) if kind is not None else ExitStack():
                self._outputs.end(reason)  # a log that cannot be written has ended the session already
        finally:
            self._stack.close()

    def _read_routes(self) -> tuple[LoggedRoutes, PublishedRoutes]:
        """Read the log and the overlay; report what of them cannot be read."""
        certificate = self.certified.verdict_sha256
        logged = read_log(entries(self._config.log_path), certificate, is_new=self._outputs.has_new_log)
        published = read_overlay(self._config.overlay_path, certificate)
        for damage in filter(None, (logged.damage, published.damage)):
            self._outputs.note("unreadable", because=damage)
            self._outputs.say(f"{damage}: what it may have turned off stays off", terminal_lines.WARNING)
        return logged, published

    @property
    def both_arms(self) -> bool:
        """Return whether plain decoding can be requested: by a field of the request, or at another address."""
        return self._server.both_arms

    def run(self, rounds: int | None) -> int:
        """Run *rounds* rounds, without end if None; return the exit code: 4 where the last overlay was not written."""
        for number in count() if rounds is None else range(rounds):
            if number:
                self._rest()
            self.run_round()
        return self.routes.exit_code if self._outputs.overlay_fault is None else ExitCode.INTERNAL_ERROR

    def run_round(self) -> None:
        """Check clock, policy and models, request canaries; then judge, switch and report."""
        begun = Instant.of(self._clock)
        expected, interval = self._rested, self.routes.policy.watch.interval
        self._take_gap(clock_gap(self._last, begun, expected=expected, interval=interval))
        self._reread_policy()
        barred, contradiction = policy_fault(self.routes.policy, begun.wall), None
        try:
            if self._traffic is not None:
                barred = barred or self._traffic.not_plain or None
            barred = barred or self._identify() or self._request_canaries(begun)
            contradiction = None if barred is not None else self._contradiction()
        except OwnLimitError as error:  # no fault of the server: without evidence for long the routes are turned off
            self._outputs.note("own_limit", because=error.message)
            self._outputs.say(f"no evidence in this round: {error.message}", terminal_lines.WARNING)
        if barred is None and contradiction is None:
            self._keep_sampling()
            context, policy = self._context(), self.routes.policy
            for name in self.routes.watched:
                now = Instant.of(self._clock)
                live = () if self._traffic is None else self._traffic.judge(name, policy, now)
                changes = self.routes.judge(name, self._host, context, now, live)
                self._warn(name, self._early_warnings.without_evidence(*self.routes.last_round(name), now.now_ns))
                self._apply(changes)
        if barred is not None:
            for name in self.routes.rules:
                self._apply(self.routes.bar(name, str(barred), Instant.of(self._clock)))
        if contradiction is not None:
            for name in self.routes.rules:
                self._apply(self.routes.hold(name, str(contradiction), Instant.of(self._clock)))
        self._last, self._rested = Instant.of(self._clock), 0.0
        self._took = (self._last.now_ns - begun.now_ns) / 1e9
        self._publish()
        self._report()

    def _rest(self) -> None:
        self._rested = max(0.0, self.routes.policy.watch.interval - self._took)
        self._clock.sleep(self._rested)

    def _take_gap(self, gap: str | None) -> bool:
        """Drop the evidence from before a *gap* in the clock; return whether there was one."""
        if gap is None:
            return False
        self._outputs.note("gap", because=gap)
        self._outputs.say(f"{gap}: earlier evidence is dropped", terminal_lines.WARNING)
        self._host.forget()
        self.routes.forget(Instant.of(self._clock))
        return True

    def _reread_policy(self) -> None:
        file, before = self._policy_file, self._policy_file.sha256
        news = file.reread()
        if news is None:
            return
        self._outputs.say(news, terminal_lines.WARNING)
        if file.sha256 == before:
            self._outputs.note("policy_refused" if file.trouble is not None else "policy_back", because=news)
            return
        changes = self.routes.edit(self._config.apply(file.policy), Instant.of(self._clock))
        watch = self.routes.policy.watch
        self.budget.duty, self.budget.interval = watch.duty, watch.interval
        self._outputs.note("policy", policy_sha256=file.sha256, because=news, **self._snapshot())
        self._apply(changes)

    def _identify(self) -> str | None:
        """Return why the server does not run the certified models; None if no difference was found."""
        identity, first = self._identity, self._identified is None
        difference = identity.check()
        if identity.restarted:
            self._round.expect_cold_answers()
            if (document := identity.document()) != self._identified:
                self._outputs.note("server", **document)
                self._identified = document
        if first:
            self._outputs.say(identity.describe())
        return difference

    def _request_canaries(self, begun: Instant) -> str | None:
        """Request what the budget allows; return that another model answered, or that plain is not plain; else None."""
        watch = self.routes.policy.watch
        for answer in self._round.send(self.routes.requests(), watch.canaries, self.budget):
            generation, is_sound = answer.generation, answer.generation.answer.fault is None
            other_model = self._identity.check_answer(generation.answer.claims.model, sound=is_sound)
            if other_model is not None:
                return other_model
            if not is_sound and str(generation.answer.fault).startswith(NOT_PLAIN):
                return f"plain decoding is {generation.answer.fault}"
            if (warning := self._early_warnings.check_answer(generation)) is not None:
                self._warn(generation.workload, [warning])
            self.routes.add(generation, counts=answer.counts)
            self._conditions.add_answer(generation.answer)
        now = Instant.of(self._clock)
        passed = (now.now_ns - begun.now_ns) / 1e9
        gap = self._take_gap(clock_gap(begun, now, expected=passed, interval=watch.interval))
        if not gap and (gain := self._server.counter_gain()) is not None:
            self._host.add_gain(gain)
        return None

    def _contradiction(self) -> str | None:
        """Return how the server contradicts the policy's conditions; None if it does not, as far as it tells."""
        conditions = self._conditions
        if self._identity.restarted:
            process = seen_process(self._identity.process, self._server.name)
            conditions.check(self.routes.policy, process, self._server.fetch)
            self._outputs.note("conditions", parts=[asdict(part) for part in conditions.found])
            self._outputs.say(conditions.describe())
        return conditions.difference

    def _context(self) -> GuardContext:
        inputs = self.certified.inputs
        canaries = {name: {canary.id: canary for canary in canary_set} for name, canary_set in inputs.canaries.items()}
        greedy = inputs.slo.sampling.temperature == 0
        return GuardContext(self.routes.policy, canaries, greedy, self._host_interval, inputs.slo.confidence)

    def _keep_sampling(self) -> None:
        """Start to sample the host, and restart a sampler that failed."""
        if not self._samples_host or (self._sampler is not None and self._sampler.fault is None):
            return
        if self._sampler is not None:
            self._outputs.note("sampler_failed", because=self._sampler.fault)
            self._outputs.say(f"the host is not sampled: {self._sampler.fault}", terminal_lines.WARNING)
        self._sampling.close()
        self._sampler = self._sampling.enter_context(self._new_sampler())

    def _new_sampler(self) -> host.Sampler:
        return host.Sampler(
            None, clock=self._clock, pids=self._identity.pids, record=self._host.add_sample,
            interval=self._host_interval, phase="watch",
        )  # fmt: skip

    def _warn(self, workload: str, warnings: Iterable[EarlyWarning]) -> None:
        for warning in warnings:
            self._outputs.note(warning.kind, workload=workload, **warning.detail)
            self._outputs.say(
                warning.text, terminal_lines.GOOD if warning.kind == "answering" else terminal_lines.WARNING
            )

    def _apply(self, changes: Sequence[RouteChange]) -> None:
        """Log changes, publish them, and then act on them."""
        for change in changes:
            self._outputs.announce_change(change)
        if changes:
            self._publish()
        for change in changes:
            route = self._overlay_route(change.workload)
            self._outputs.act(change, route, self.routes.policy.watch.on_change)

    def _overlay_route(self, name: str) -> OverlayRoute:
        route = self.routes.overlay_route(name)
        return replace(route, request=self._server.request_fields(route.setting))

    def _publish(self) -> None:
        policy = self.routes.policy
        watch = policy.watch
        seconds = 2 * watch.interval + 2 * self._took + len(watch.on_change) * self._config.limit + SLACK_S
        routes = [self._overlay_route(route.workload) for route in policy.route]
        # First: who reads the overlay may rely on it.
        self._publish_traffic(routes, until_ns=Instant.of(self._clock).now_ns + round(seconds * 1e9))
        self._outputs.publish(policy, self._policy_file.sha256, routes, seconds)

    def _publish_traffic(self, routes: Sequence[OverlayRoute], *, until_ns: int) -> None:
        """Say how live requests are decoded until an instant; 0: plainly, as no round has ended yet."""
        if self._traffic is None:
            return
        policy = self.routes.policy
        plain = {route.workload: self._server.request_fields(plain_of(route.steps[0])) for route in policy.route}
        dialect = running_dialect(self._server.name)
        self._traffic.publish(policy, routes, plain, until_ns, dialect, self._identity.target_path)

    def _report(self) -> None:
        routes, budget = self.routes, self.budget
        share = budget.share(self._clock.now_ns())
        load = {"asked": budget.requests, "seconds": round(budget.spent, 3), "share": share, "bound": budget.duty}
        self._outputs.note(
            "look",
            load={**load, "share": round(share, 6)},
            seconds=round(self._took, 3),
            routes={
                name: {
                    "step": standing.step,
                    "guards": {result.guard.name: _figures(result) for result in routes.results.get(name, ())},
                }
                for name, standing in routes.standings.items()
            },
        )
        rows = [
            (standing, routes.rules[name], routes.results.get(name, ())) for name, standing in routes.standings.items()
        ]
        self._outputs.say(terminal_lines.round_result(stamp(self._last.wall), rows, load, routes.answered))

    def _snapshot(self) -> dict[str, Any]:
        return self.routes.snapshot(self.certified.verdict_sha256)


def policy_fault(policy: Policy, now: datetime) -> str | None:
    """Return why *policy* is not valid at *now*; None if it is."""
    if policy.has_expired(now):
        return f"the policy expired at {stamp(policy.expires)[:19]}Z"
    if now < policy.issued - UNISSUED:
        return (
            f"the clock shows {stamp(now)}, more than a day before the policy was issued at "
            f"{stamp(policy.issued)}: cannot determine whether it has expired"
        )
    return None


def _figures(result: GuardResult) -> list[Any]:
    """Return a guard's result, short enough to log in every round."""
    check = result.check
    word = "asleep" if result.asleep else check.outcome.word
    return [word, check.center, check.lo, check.hi, check.n]


@contextmanager
def open_session(
    config: WatchConfig, *, say: Say, write: Write, clock: Clock | None = None, traffic: RequestRoutes | None = None
) -> Iterator[Session]:
    """Open the session of *config*, by the backend's own clock or another *clock*."""
    config.check()
    certified = certified_run.load(config.run or config.policy.parent)
    policy_file = PolicyFile(config.policy, certified)
    config.apply(policy_file.policy)  # report a wrong option before the server is contacted
    with attach(certified, config.slo, url=config.url, plain_url=config.plain_url) as (server, identity):
        if traffic is not None and not server.both_arms:  # before a canary is sent
            raise InputError(
                "this server cannot switch drafting with each request, and no plain server is named",
                hint="start the same server without a draft and name it: --plain-url URL",
            )
        with Session(
            config,
            certified,
            policy_file,
            server,
            identity,
            clock or server.clock,
            say=say,
            write=write,
            traffic=traffic,
        ) as session:
            yield session
