"""Every environment variable that gatekeeper reads, each under its own name; the page of the reference is made of them.

The agent on a remote host runs without our package: it repeats the names of those that it reads.
"""

GATEKEEPER_HOST_LOCK = "GATEKEEPER_HOST_LOCK"
"""The lock file: runs with the same one measure one at a time."""
GATEKEEPER_OWNER = "GATEKEEPER_OWNER"
"""The owner of a run that another program starts; without it USER@HOST."""
GATEKEEPER_SSH = "GATEKEEPER_SSH"
"""The ssh program and its first options, which win over ours."""
GATEKEEPER_PROGRESS = "GATEKEEPER_PROGRESS"
"""The file to which a remote run appends its events."""
GATEKEEPER_BEAT = "GATEKEEPER_BEAT"
"""The descriptor of the page in which a worker shows a heartbeat."""
GATEKEEPER_WORKER = "GATEKEEPER_WORKER"
"""Marks what a worker starts, so that nothing outlives it."""
GATEKEEPER_HOST_AS = "GATEKEEPER_HOST_AS"
"""For tests: takes the tools on PATH for those of `macos` or `linux`; the manifest notes it."""
GATEKEEPER_BOOT_ID_FILE = "GATEKEEPER_BOOT_ID_FILE"
"""For tests: the file with the identity of a boot."""

HF_HUB_CACHE = "HF_HUB_CACHE"
"""The folder of the Hugging Face cache."""
HUGGINGFACE_HUB_CACHE = "HUGGINGFACE_HUB_CACHE"
"""The older name of HF_HUB_CACHE."""
HF_HOME = "HF_HOME"
"""The folder whose `hub` is the Hugging Face cache."""
OLLAMA_MODELS = "OLLAMA_MODELS"
"""The folder of Ollama's models."""
XDG_CACHE_HOME = "XDG_CACHE_HOME"
"""The user's caches: digests of models, and environments, in `gatekeeper`."""
XDG_STATE_HOME = "XDG_STATE_HOME"
"""The user's state: the count of runs of the same, in `gatekeeper`."""
PYTHONPATH = "PYTHONPATH"
"""Also searched by our workers."""
NO_COLOR = "NO_COLOR"
"""No colours, whatever the terminal can do; `--color` wins."""
FORCE_COLOR = "FORCE_COLOR"
"""Colours, also where the output is no terminal."""
DISPLAY = "DISPLAY"
"""Without both `gatekeeper open` starts no browser on Linux."""
WAYLAND_DISPLAY = "WAYLAND_DISPLAY"
"""See DISPLAY."""
SSH_CONNECTION = "SSH_CONNECTION"
"""Where one is set, `gatekeeper open` starts no browser."""
SSH_TTY = "SSH_TTY"
"""See SSH_CONNECTION."""
GITHUB_ACTIONS = "GITHUB_ACTIONS"
"""`true`: errors are also annotations, and the chain names the job."""
GITHUB_SERVER_URL = "GITHUB_SERVER_URL"
"""The page of the job on GitHub."""
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
"""`gen_ai_latest_experimental`: names that no release of the conventions has yet."""

FAMILIES = {
    "OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER": "`otlp`: send it, also without an endpoint; `none`: do not",
    "OTEL_EXPORTER_OTLP_*, OTEL_EXPORTER_OTLP_TRACES_*, OTEL_EXPORTER_OTLP_METRICS_*": (
        "where and how telemetry is sent: ENDPOINT, PROTOCOL, HEADERS, TIMEOUT, COMPRESSION, CERTIFICATE, "
        "CLIENT_CERTIFICATE, CLIENT_KEY. `[telemetry]` of the SLO wins"
    ),
    "OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES": "further attributes of the telemetry's resource",
    "LLAMA_ARG_*, VLLM_*, SGLANG_* and others of a server": (
        "how a server decodes: recorded in the policy, refused where lossy, listed by `gatekeeper doctor`"
    ),
    "the names in `subject.api_key_env`, `telemetry.headers_env` and `--send-env`": (
        "a server's key, the headers of telemetry, and what a remote run is given"
    ),
}
"""Variables whose names are made of parts, or are named by the user; what each family is for."""
