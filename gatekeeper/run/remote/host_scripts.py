"""The shell scripts that run on a remote host; host_scripts.sh says what each of them prints."""

from importlib import resources

_FUNCTIONS = resources.files("gatekeeper.run.remote").joinpath("host_scripts.sh").read_text(encoding="utf-8")


def _call(function: str) -> str:
    return f'{_FUNCTIONS}\n{function} "$@"\n'


LIST_JOBS = _call("list_jobs")
PRINT_VERSIONS = _call("print_versions")
MAKE_FOLDER = _call("make_folder")
UNPACK = _call("unpack")
CHECK_INPUTS = _call("check_inputs")
REMOVE_INPUTS = _call("remove_inputs")
START_RUN = _call("start_run")
FOLLOW_RUN = _call("follow_run")
PRINT_RUN = _call("print_run")
MARK_FETCHED = _call("mark_fetched")
CANCEL_RUN = _call("cancel_run")
