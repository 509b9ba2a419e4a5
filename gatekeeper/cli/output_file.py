"""`-o FILE`: the file that a command writes instead of its output, and the format that its extension means."""

import errno
import io
import shlex
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click

from gatekeeper.core.errors import GatekeeperError, InputError


def with_output(callback: Callable[..., Any], *, own_format: bool, own_quiet: bool) -> Callable[..., Any]:
    """Return *callback* with --format and --output carried out around it."""

    def call(*words: Any, **options: Any) -> Any:
        output: Path | None = options.pop("output_file", None)
        quiet = options["quiet"] if own_quiet else options.pop("quiet")
        if output is not None:
            from gatekeeper.core.system.run_directory import check_outside_of_runs

            check_outside_of_runs(output)
            options["form"] = _format_by_extension(output) or options["form"]
        if own_format:
            if options.get("as_json"):
                options["form"] = "json"
        elif options.pop("form", "text") == "json":
            options["as_json"] = True
        if output is None:
            return callback(*words, **options)
        if not output.parent.is_dir():  # said before the work, not after it
            hint = f"make it: mkdir -p {shlex.quote(str(output.parent))}; or choose another --output"
            raise InputError(f"cannot write {output}: there is no folder {output.parent}", hint=hint)
        written = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")
        with redirect_stdout(written):
            code = callback(*words, **options)
        written.flush()
        _write(output, written.buffer.getvalue())
        if not quiet:
            sys.stdout.write(f"wrote {output}\n")
        return code

    call.__name__, call.__doc__ = callback.__name__, callback.__doc__
    return call


def _write(output: Path, content: bytes) -> None:
    """Write a file, whole or not at all; raise what is wrong with its place."""
    try:
        output.write_bytes(content)
    except IsADirectoryError:
        raise InputError(f"--output {output} is a folder", hint="name a file in it") from None
    except OSError as error:
        from gatekeeper.core.system.files import why_not_written

        hint = "choose another --output"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            if output.is_file():  # no device, such as /dev/full
                output.unlink()  # a part of a report may look like all of it
            hint = f"free disk space, or {hint}"
        raise GatekeeperError(f"cannot write {output}: {why_not_written(output, error)}", hint=hint) from error


def _format_by_extension(output: Path) -> str | None:
    """Return the format that the file's extension names; None where --format was given, or there is no extension."""
    context = click.get_current_context()
    if context.get_parameter_source("form") is not click.core.ParameterSource.DEFAULT or not output.suffix:
        return None
    from gatekeeper.report import format_of_file

    form = format_of_file(output.name)
    (option,) = (parameter for parameter in context.command.params if parameter.name == "form")
    choices = list(getattr(option.type, "choices", ()))
    if form not in choices:
        raise InputError(
            f"--output {output}: {context.info_name} has no format for {output.suffix}",
            hint=f"its formats: {', '.join(choices)}; name one with --format",
        )
    return form
