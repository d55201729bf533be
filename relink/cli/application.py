"""The typer application that the modules beside this one register their commands with, and its entry point."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from relink import __version__
from relink.cli.options import explain_unknown_word, removed_option_message
from relink.cli.settings import WORDS, apply_settings
from relink.cli.system import EndedError, die_of, drop_output, open_streams, unwind_on_signals
from relink.cli.terminal import say
from relink.system.errors import MachineError, RelinkError, UsageError, raise_if_machine_fault
from relink.system.text import escape_untrusted

# click's UsageError, reached by way of typer: some releases of typer bring a click of their own.
_UsageError: Any = typer.BadParameter.__base__
# 128 + SIGINT: typer's exit code for a KeyboardInterrupt.
_ABORTED = 130
# Errors of a full disk. Where they name no file, standard output is full: typer prints help and versions itself.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_INTERRUPTED = "interrupted; no unfinished file was left behind"


@contextmanager
def _escaped_usage() -> Iterator[None]:
    """Make relink's errors of typer's: the first line is the answer, and an argument, which may be untrusted, is escaped.

    An option that relink had in an earlier release gets its advice in the place of typer's message.
    """
    try:
        yield
    except _UsageError as error:
        # Only the error about an unknown option has `option_name`.
        removed = removed_option_message(getattr(error, "option_name", ""))
        message = removed or escape_untrusted(error.format_message())
        if error.ctx and not (removed or message.endswith(("?", "`"))):
            message = f"{message.removesuffix('.')}; see {error.ctx.command_path} --help"
        raise UsageError(message) from None


class _WithDefault(TyperGroup):
    """A group whose command `run` need not be written: not in use, and not where a shell completes a line."""

    default = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {
            name
            for parameter in self.get_params(ctx)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        ctx.meta[WORDS] = tuple(args)
        args = ["--help"] if args in ([], ["help"]) else args
        # A first word that is no command is a wheel, or an option of the default command.
        if args and args[0] not in own | set(self.commands):
            # A shell that completes a line (resilient_parsing) is told nothing.
            wrong = None if ctx.resilient_parsing else explain_unknown_word(args[0], self.commands)
            if wrong is not None:
                raise _UsageError(wrong, ctx)
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def make_context(self, *arguments: Any, **facts: Any) -> Any:
        with _escaped_usage():
            return super().make_context(*arguments, **facts)

    def invoke(self, ctx: Any) -> Any:
        with _escaped_usage():
            return super().invoke(ctx)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            # An option as the first word is more likely one of the default command.
            command = self.commands[self.default]
            with command.make_context(self.default, [], parent=ctx, resilient_parsing=True) as inner:
                known = {item.value for item in found}
                found += [
                    item for item in command.shell_complete(inner, incomplete) if item.value not in known
                ]
        return found


app = typer.Typer(
    name="relink",
    cls=_WithDefault,
    help="Relink AMD's prebuilt ROCm wheels against the ROCm you have. `relink WHEEL --prefix DIR` is the main command.",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        from relink.system.shipped_files import source_commit

        commit = source_commit()
        typer.echo(f"relink {__version__}" + (f" ({commit})" if commit else ""))
        raise typer.Exit


@app.callback()
def _top(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 (its callback prints it)
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_show_version,
            is_eager=True,
            help="Print release and commit, and exit.",
        ),
    ] = False,
) -> None:
    apply_settings(context)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit code 0 when all went well, 1 for error findings, 2 for wrong usage or unreadable input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    open_streams()
    try:
        with unwind_on_signals():
            app(words)
    except EndedError as end:
        say(_INTERRUPTED)
        die_of(end.number)
    except SystemExit as end:
        if end.code == _ABORTED:
            say(_INTERRUPTED)
        _finish(end.code)
    except RelinkError as error:
        say(error)
    except MemoryError:
        say(
            "there is not enough memory; no unfinished file was left behind. Free some, or raise the limit of this process"
        )
    except Exception as error:
        known = _known(error)
        if known is None and os.environ.get("RELINK_DEBUG"):
            raise
        say(
            known
            or f"a fault of relink itself ({type(error).__name__}: {error}); no unfinished file was left behind. "
            "Please report it with the output of the same command under RELINK_DEBUG=1"
        )
    _finish(2)


def _known(error: Exception) -> str | None:
    """The message for an error of the machine (memory, threads, a full disk) that no code below has turned into a RelinkError."""
    # threading has no errno for a thread that the kernel refuses, which is EAGAIN of clone(2).
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        error = OSError(errno.EAGAIN, str(error))
    try:
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            return str(drop_output(error))
        raise_if_machine_fault(error)
    except MachineError as trouble:
        return f"{trouble}. No unfinished file was left behind"
    return None


def _finish(code: str | int | None) -> NoReturn:
    """End with an exit code; 2 if what is left in the buffer of standard output cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        if (failed := drop_output(error)) is not None:
            say(str(failed))
            code = 2
    sys.exit(code)
