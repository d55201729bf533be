"""Settings of a project as defaults of the options of the same meaning: what is passed on the command line wins."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from relink.planning.option_fields import option_table
from relink.planning.options import Options

if TYPE_CHECKING:
    from relink.cli.settings_file import Settings

__all__ = ["WORDS", "apply_settings", "parameter_of"]

WORDS = "relink.words"
"""The key under which the top context has the words of the command line."""

# diff and nix do another thing when a prefix is passed; what verify lets pass is on the command line alone; config shows the
# settings itself; the others have no settings.
_WITHOUT = frozenset({"diff", "nix", "verify", "config", "demo", "rules", "report", "profile", "inspect"})
_HELP = frozenset({"-h", "--help"})
_QUIET = frozenset({"-q", "--quiet"})


def parameter_of(key: str) -> str:
    """Return the name of the parameter that a key of settings is the default of."""
    return next(name for name, option in option_table(Options).items() if option.setting == key)


def apply_settings(context: typer.Context) -> None:
    """Make the settings that hold in the current directory the defaults of the command that is invoked, and name their file.

    The file is named on standard error, since somebody else may have put it there.

    :raises UsageError: the settings cannot be read, or are wrong.
    """
    name = context.invoked_subcommand
    words = frozenset(context.meta.get(WORDS, ()))
    if name is None or name in _WITHOUT or words & _HELP:
        return
    group: Any = context.command
    parameters = {parameter.name for parameter in group.commands[name].params}
    settings = _settings()
    used = {key: value for key, value in settings.values.items() if parameter_of(key) in parameters}
    context.default_map = {name: {parameter_of(key): value for key, value in used.items()}}
    if not words & _QUIET:
        _tell(settings, used)


def _settings() -> Settings:
    from relink.cli.settings_file import find_settings

    return find_settings(Path(os.path.curdir), os.environ)


def _tell(settings: Settings, used: Mapping[str, Any]) -> None:
    if not (settings.passed_over or used):
        return
    from relink.cli.terminal import say

    for sentence in settings.passed_over:
        say(sentence)
    if used:
        say(f"{settings.path} sets {', '.join(used)}")
