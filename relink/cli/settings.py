"""Settings of a project (``relink.toml``, ``[tool.relink]`` of pyproject.toml) as defaults of the options of the same meaning.

The file is searched from the current directory upwards; the first one counts, and in one directory relink.toml is first. Whoever
made a checkout made the file in it, so a file sets what is linked to, which anybody can see in the result, and nothing that
lets code run, lets a check out, or writes somewhere else: that is passed on the command line or not at all. A profile of the
checkout's own would let checks out: it says which sonames are one ABI, which members may stay broken and which symbols will be
there, and it takes the place of a shipped one, whose knowledge of dlopen is then missing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from msgspec.structs import replace

from relink.cli.options import list_option_names, removed_option_message
from relink.cli.terminal import say
from relink.planning.options import Options, option_table
from relink.system.errors import UsageError

if TYPE_CHECKING:
    from relink.providers.profiles import Problem

WORDS = "relink.words"
"""The key under which the top context has the words of the command line."""

# Commands whose options no file sets. diff and nix do another thing when a prefix is passed; what verify lets pass is on the
# command line alone; config shows the settings itself; the others have no settings.
_WITHOUT = frozenset({"diff", "nix", "verify", "config", "demo", "rules", "report", "profile", "inspect"})
_HELP = frozenset({"-h", "--help"})
_QUIET = frozenset({"-q", "--quiet"})
VARIABLE = "RELINK_SETTINGS"
"""The environment variable that names a file to take, whoever it belongs to, or `NONE`."""
NONE = "none"

# Bytes, as for a profile.
_SETTINGS_LIMIT = 256 << 10
_OWN, _PROJECT = "relink.toml", "pyproject.toml"
_TABLE = ("tool", "relink")
_PATHS = frozenset({"prefix", "nix-closure"})


class Settings(msgspec.Struct, frozen=True):
    """What one file sets.

    :ivar path: the file; None where there is none.
    :ivar values: by key, relative paths resolved.
    :ivar lines: the line of each key, from 1.
    :ivar passed_over: a sentence for each file that was found first and is not taken.
    """

    path: Path | None = None
    values: Mapping[str, Any] = msgspec.field(default_factory=dict)
    lines: Mapping[str, int] = msgspec.field(default_factory=dict)
    passed_over: tuple[str, ...] = ()


def find_settings(directory: Path, environment: Mapping[str, str]) -> Settings:
    """Return the settings that hold in a directory.

    A file that was not named by `VARIABLE` counts only if it belongs to root or to the user of this process, and not everybody
    may write it: else the file that anybody can put into /tmp would choose what every user below links to.

    :raises UsageError: the file cannot be read, or has what settings cannot have; names FILE:LINE of each problem.
    """
    named = environment.get(VARIABLE)
    if named == NONE:
        return Settings()
    if named:
        path = directory / named
        try:
            found = _settings(path, _read(path)[0])
        except FileNotFoundError as error:
            raise UsageError(
                f"{path}: there is no such file, and {VARIABLE} names it; correct or unset it"
            ) from error
        except PermissionError as error:
            raise _unreadable(path, error) from error
        if found is None:
            raise UsageError(f"{path}: {VARIABLE} names it, and it has no [tool.relink]")
        return found
    passed_over: list[str] = []
    for path in _candidates(directory):
        try:
            text, status = _read(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            # The file is there and this user may not read it: it may have been meant, so this is an error.
            if os.access(path.parent, os.X_OK, effective_ids=True):
                raise _unreadable(path, error) from error
            # The directory itself may not be entered, as where `sudo -u` leaves another user's as the current one.
            continue
        except UsageError:
            # A file of another user's that cannot be read must not stop the command, wherever that user has put it.
            if why := _not_ours(path, None):
                passed_over.append(_passed_over(path, why))
                continue
            raise
        if path.name == _PROJECT and "relink" not in text:
            # A pyproject.toml without that word is not parsed: if it is no TOML, another program has to say so.
            continue
        if why := _not_ours(path, status):
            passed_over.append(_passed_over(path, why))
        elif found := _settings(path, text):
            return Settings(found.path, found.values, found.lines, tuple(passed_over))
    return Settings(passed_over=tuple(passed_over))


def _candidates(directory: Path) -> Iterator[Path]:
    try:
        top = Path(os.path.abspath(directory))
    except FileNotFoundError:  # the current directory has been removed
        return
    for place in (top, *top.parents):
        yield place / _OWN
        yield place / _PROJECT


def _read(path: Path) -> tuple[str, os.stat_result]:
    from relink.system.safe_open import read_with_status

    try:
        data, status = read_with_status(path, _SETTINGS_LIMIT)
        return data.decode("utf-8"), status
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        raise
    except OSError as error:
        raise _unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: the settings cannot be read ({error})") from error


def _unreadable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"{path}: the settings cannot be read ({error.strerror}); {VARIABLE}={NONE} takes none")


def _passed_over(path: Path, why: str) -> str:
    return f"{path}: not taken, since {why}; {VARIABLE}={path} takes it"


def _not_ours(path: Path, status: os.stat_result | None) -> str | None:
    """Return why a file is not taken, or None where it is.

    :param status: of the file that was read; None where it cannot be read, and that another user put it there is all that counts.
    """
    # The owner of a link counts as well: it may lead to a file of ours, and relative paths begin where the link is.
    owners = [os.lstat(path).st_uid]
    if status is not None:
        owners.append(status.st_uid)
    for owner in owners:
        if owner not in (0, os.geteuid()):
            return f"it belongs to another user (uid {owner})"
    return "everybody may write it" if status is not None and status.st_mode & stat.S_IWOTH else None


def _settings(path: Path, text: str) -> Settings | None:
    """Return what a file sets; None for a pyproject.toml that has no [tool.relink]."""
    from relink.providers.profiles import check_document, line_of, lines_of, parse_document

    data: Any = parse_document(text, path, "settings file")
    at: tuple[str, ...] = ()
    if path.name == _PROJECT:
        at = _TABLE
        for key in at:
            data = data.get(key) if isinstance(data, dict) else None
        if data is None:
            return None
    wrong = (replace(item, path=(*at, *item.path)) for item in _problems(data))
    check_document(wrong, text, path, "settings file")
    lines = lines_of(text)
    return Settings(
        path,
        # Relative paths begin at the file, so they do not depend on the current directory.
        data | {key: [os.path.join(path.parent, item) for item in data[key]] for key in _PATHS & data.keys()},
        {key: line_of(lines, (*at, key)) for key in data},
    )


def _problems(data: Any) -> Iterator[Problem]:
    from relink.providers.profiles import Problem, find_problems
    from relink.system.shipped_files import load_schema

    settable = {option.names[0] for option in option_table(Options).values() if option.setting}
    # Options of a run that a file must not decide about.
    refused = list_option_names("run") - settable
    for item in find_problems(data, load_schema("settings")):
        key = item.path[0] if len(item.path) == 1 else None
        if key is not None and (removed := removed_option_message(f"--{key}")):
            yield Problem(item.path, removed.removesuffix("."))
        elif f"--{key}" in refused:
            message = (
                f"not taken from a file, since whoever wrote the file would decide about it; pass --{key}"
            )
            yield Problem(item.path, message)
        else:
            yield item


def check_gpus(settings: Settings) -> None:
    """Refuse a GPU that a run refuses. ``auto`` is any: of which machine, the run says.

    :raises UsageError: names FILE:LINE.
    """
    from relink.vendors.registry import requested_gpus

    for key in {"gpus", "only-gpus"} & settings.values.keys():
        try:
            requested_gpus(text for text in settings.values[key] if text.strip().lower() != "auto")
        except UsageError as error:
            raise UsageError(f"{settings.path}:{settings.lines[key]}: {error.message}") from error


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
    # Help is shown also where the settings are wrong.
    if name is None or name in _WITHOUT or words & _HELP:
        return
    group: Any = context.command
    parameters = {parameter.name for parameter in group.commands[name].params}
    settings = find_settings(Path(os.path.curdir), os.environ)
    used = {key: value for key, value in settings.values.items() if parameter_of(key) in parameters}
    # click looks up here, by the name of the command, what the defaults of its options are.
    context.default_map = {name: {parameter_of(key): value for key, value in used.items()}}
    if not words & _QUIET and (settings.passed_over or used):
        for sentence in settings.passed_over:
            say(sentence)
        if used:
            say(f"{settings.path} sets {', '.join(used)}")
