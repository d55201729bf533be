"""The application that the modules beside this one give their commands to, and its entry point."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from relink import __version__
from relink.errors import RelinkError

__all__ = ["app", "main"]

_INTERRUPTED = 130  # what typer makes of Ctrl-C, as shells do


class _WithDefault(TyperGroup):
    """A group whose command `run` need not be written: not in use, and not where a shell completes a line."""

    default = "run"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {
            name
            for parameter in self.get_params(ctx)
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        if args and args[0] not in own | set(self.commands):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        found = super().shell_complete(ctx, incomplete)
        if incomplete.startswith(
            "-"
        ):  # the first word, and an option: more likely one of the default command
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
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"relink {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit code 0 when all went well, 1 for error findings, 2 for wrong usage or unreadable input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a name or a sign that the reader's encoding lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        with _ended_in_order():
            app(words)
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            _say("interrupted; no unfinished file was left behind")
        raise
    except RelinkError as error:
        _say(str(error))
    except MemoryError:
        _say(
            "there is not enough memory; no unfinished file was left behind. Free some, or raise the limit of this process"
        )
    except Exception as error:
        if os.environ.get("RELINK_DEBUG"):
            raise
        _say(
            f"a fault of relink itself ({type(error).__name__}: {error}); no unfinished file was left behind. "
            "Please report it with the output of the same command under RELINK_DEBUG=1"
        )
    sys.exit(2)


def _say(message: str) -> None:
    from relink.cli.terminal import say

    say(message)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Being told to end (by a batch system, say) unwinds as Ctrl-C does, so that no temporary file stays."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
