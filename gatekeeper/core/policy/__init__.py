"""policy.toml: what may be deployed, as `certify` writes it and a person edits it; a file a table."""

from gatekeeper.core.policy.policy_file import Conditions, Launch, Policy, parse
from gatekeeper.core.policy.proxy_table import RESPONSE_FORMATS, WORKLOAD_HEADER, Proxy, ProxyRule, digest
from gatekeeper.core.policy.route import TEMPLATE_TOKENS, MeasuredRoute, MeasuredValue, Route
from gatekeeper.core.policy.watch_table import Guard, Watch

__all__ = [
    "RESPONSE_FORMATS", "TEMPLATE_TOKENS", "WORKLOAD_HEADER", "Conditions", "Guard", "Launch", "MeasuredRoute",
    "MeasuredValue", "Policy", "Proxy", "ProxyRule", "Route", "Watch", "digest", "parse",
]  # fmt: skip
