"""Opening of a watch session: the certified run, the policy, the server and its models."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gatekeeper.backends.server_backend import ServerBackend
from gatekeeper.core.clock import Clock
from gatekeeper.core.errors import InputError
from gatekeeper.core.system.files import HashCache, user_hash_cache
from gatekeeper.live.outputs import Say, Write
from gatekeeper.live.routes import LiveTraffic
from gatekeeper.live.running import certified_run
from gatekeeper.live.running.certified_run import PolicyFile
from gatekeeper.live.running.deployed_server import DeployedServer, attach
from gatekeeper.live.running.model_identity import ModelIdentity, drafting_plain
from gatekeeper.live.session import Session
from gatekeeper.live.watch_config import WatchConfig


@contextmanager
def open_session(
    config: WatchConfig, *, say: Say, write: Write, clock: Clock | None = None, traffic: LiveTraffic | None = None
) -> Iterator[Session]:
    """Open the session of *config*, by the backend's own clock or another *clock*."""
    config.check()
    certified = certified_run.load(config.run or config.policy.parent)
    policy_file = PolicyFile(config.policy, certified)
    config.apply(policy_file.policy)  # report a wrong option before the server is contacted
    slo, base = certified.inputs.slo, certified.base(config.slo)
    models, hashes = certified.model_paths(base), HashCache(user_hash_cache())
    plain = config.plain_url
    if plain is not None and (reason := drafting_plain(certified.manifest, plain, hashes)) is not None:
        raise InputError(f"--plain-url {plain}: {reason}", hint="start the same server without a draft there")
    with tempfile.TemporaryDirectory(prefix="gatekeeper-watch-") as logs:
        backend = attach(slo, url=config.url, plain_url=config.plain_url, models=models, base=base, logs=Path(logs))
        if plain is not None and isinstance(backend, ServerBackend):
            lossy = backend.find_lossy_at(plain)
            if lossy is not None:
                raise InputError(f"--plain-url {plain}: {lossy.message}", hint=f"{lossy.hint}, and start it again")
        url = config.url or slo.subject.url
        identity = ModelIdentity(certified.manifest, url=url, paths=models, names=certified.names, hashes=hashes)
        server = DeployedServer(backend, slo.subject.drafts)
        if traffic is not None and not server.both_arms:  # before a canary is sent
            raise InputError(
                "this server cannot switch drafting with each request, and no plain server is named",
                hint="start the same server without a draft and name it: --plain-url URL",
            )
        clock = clock or backend.clock
        with Session(
            config, certified, policy_file, server, identity, clock, say=say, write=write, traffic=traffic
        ) as session:
            yield session
