"""Every environment variable that gatekeeper reads, each under its own name; the page of the reference is made of them.

The agent on a remote host runs without our package: it repeats the names of those that it reads.
"""

GATEKEEPER_HOST_LOCK = "GATEKEEPER_HOST_LOCK"
"""The lock file by which one run at a time measures on a host; runs with different files may measure together."""
GATEKEEPER_OWNER = "GATEKEEPER_OWNER"
"""The owner of a run that another program starts; without it USER@HOST. A remote run names the machine it came from."""
GATEKEEPER_SSH = "GATEKEEPER_SSH"
"""The ssh program and its first options, as words; they win over the options of gatekeeper."""
GATEKEEPER_PROGRESS = "GATEKEEPER_PROGRESS"
"""The file that a run appends its events to; set for a run that another machine started."""
GATEKEEPER_BEAT = "GATEKEEPER_BEAT"
"""The descriptor of the page that a worker shares with us: any change of its first eight bytes is a heartbeat."""
GATEKEEPER_WORKER = "GATEKEEPER_WORKER"
"""Set for a worker: marks what it starts, so that nothing of it outlives it."""
GATEKEEPER_HOST_AS = "GATEKEEPER_HOST_AS"
"""For tests: takes the tools on PATH for those of `macos` or `linux`; the host facts in the manifest note it."""
GATEKEEPER_BOOT_ID_FILE = "GATEKEEPER_BOOT_ID_FILE"
"""For tests: the file with the identity of this boot, on a remote host."""

HF_HUB_CACHE = "HF_HUB_CACHE"
"""The folder of the Hugging Face cache."""
HUGGINGFACE_HUB_CACHE = "HUGGINGFACE_HUB_CACHE"
"""The older name of HF_HUB_CACHE."""
HF_HOME = "HF_HOME"
"""The folder that holds the Hugging Face cache, in `hub`."""
OLLAMA_MODELS = "OLLAMA_MODELS"
"""The folder of Ollama's models."""
XDG_CACHE_HOME = "XDG_CACHE_HOME"
"""The folder of the user's caches; gatekeeper keeps digests of models and environments in `gatekeeper` there."""
XDG_STATE_HOME = "XDG_STATE_HOME"
"""The folder of the user's state; gatekeeper counts runs of the same in `gatekeeper` there."""
PYTHONPATH = "PYTHONPATH"
"""What our own workers find on their path after our package."""
NO_COLOR = "NO_COLOR"
"""No colours, whatever the terminal can do; `--color` wins."""
FORCE_COLOR = "FORCE_COLOR"
"""Colours, also where the output is no terminal."""
DISPLAY = "DISPLAY"
"""Without this and WAYLAND_DISPLAY, `gatekeeper open` starts no browser on Linux."""
WAYLAND_DISPLAY = "WAYLAND_DISPLAY"
"""See DISPLAY."""
SSH_CONNECTION = "SSH_CONNECTION"
"""Set in a session over ssh, where `gatekeeper open` starts no browser."""
SSH_TTY = "SSH_TTY"
"""See SSH_CONNECTION."""
GITHUB_ACTIONS = "GITHUB_ACTIONS"
"""`true` in a job of GitHub Actions: errors are also printed as annotations, and the chain names the job."""
GITHUB_SERVER_URL = "GITHUB_SERVER_URL"
"""With GITHUB_REPOSITORY and GITHUB_RUN_ID: the page of the job, which the chain and the certificate name."""
GITHUB_REPOSITORY = "GITHUB_REPOSITORY"
"""See GITHUB_SERVER_URL."""
GITHUB_RUN_ID = "GITHUB_RUN_ID"
"""See GITHUB_SERVER_URL."""
CI_JOB_URL = "CI_JOB_URL"
"""The page of the job on GitLab."""
BUILDKITE_BUILD_URL = "BUILDKITE_BUILD_URL"
"""The page of the build on Buildkite."""
OTEL_SDK_DISABLED = "OTEL_SDK_DISABLED"
"""`true`: no telemetry is sent."""
OTEL_SEMCONV_STABILITY_OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
"""With `gen_ai_latest_experimental`, names of metrics that no release of the conventions has yet."""

FAMILIES = {
    "OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER": "`otlp`: send it, also without an endpoint; `none`: do not",
    "OTEL_EXPORTER_OTLP_*, OTEL_EXPORTER_OTLP_TRACES_*, OTEL_EXPORTER_OTLP_METRICS_*": (
        "where and how telemetry is sent: ENDPOINT, PROTOCOL, HEADERS, TIMEOUT, COMPRESSION, CERTIFICATE, "
        "CLIENT_CERTIFICATE, CLIENT_KEY. `[telemetry]` of the SLO wins"
    ),
    "OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES": "further attributes of the telemetry's resource",
    "PIP_*INDEX*, PIP_*FIND_LINKS*, UV_*INDEX*, UV_*FIND_LINKS*": (
        "where packages come from: `bisect` and `versus` keep environments of other sources apart"
    ),
    "LLAMA_ARG_*, VLLM_*, SGLANG_* and others of a server": (
        "how a server decodes: recorded in the policy, and refused or noted where they make speculation lossy; "
        "`gatekeeper doctor` lists those that are set"
    ),
    "the names in `subject.api_key_env`, `telemetry.headers_env` and `--send-env`": (
        "a server's key, the headers of telemetry, and what a remote run is given"
    ),
}
"""Variables whose names are made of parts, or are named by the user; what each family is for."""
