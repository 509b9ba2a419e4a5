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


def with_output(callback: Callable[..., Any], *, has_format: bool) -> Callable[..., Any]:
    """Return *callback* with --output carried out around it, and --json where the command *has_format*, too."""

    def call(*words: Any, **options: Any) -> Any:
        output: Path | None = options.pop("output_file", None)
        if output is not None:
            from gatekeeper.core.system.run_directory import check_outside_of_runs

            check_outside_of_runs(output)
            form = _format_by_extension(output)
            if not has_format:
                options["as_json"] = options["as_json"] or form == "json"
            elif form is not None:
                options["form"] = form
        if has_format and options["as_json"]:
            if _is_typed("form") and options["form"] != "json":
                hint = "an object a line is --format ndjson" if options["form"] == "csv" else "leave one of them out"
                raise InputError(f"--format {options['form']} and --json exclude each other", hint=hint)
            options["form"] = "json"
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
    """Return the format that the file's extension names; None where an option names it, or there is no extension."""
    if _is_typed("form") or _is_typed("as_json") or not output.suffix:
        return None
    context = click.get_current_context()
    from gatekeeper.report import format_of_file

    form = format_of_file(output.name)
    types = [parameter.type for parameter in context.command.params if parameter.name == "form"]
    choices = [str(choice) for choice in getattr(types[0], "choices", ())] if types else ["text", "json"]
    if form not in choices:
        hint = f"its formats: {', '.join(choices)}" + ("; name one with --format" if types else "")
        raise InputError(f"--output {output}: {context.info_name} has no format for {output.suffix}", hint=hint)
    return form


def _is_typed(name: str) -> bool:
    """Return whether the user typed the option of this parameter."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
