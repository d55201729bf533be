"""entry_points.txt: the scripts that an installer makes, where all installers read the same.

Source: "Entry points specification" of the PyPA. pip reads lines (importlib.metadata), `installer` by configparser,
uv by a reader of its own. What these read differently, and a script that is called like another file of the wheel, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Protocol

ENTRY_POINTS: Final = "entry_points.txt"
_GROUPS: Final = ("console_scripts", "gui_scripts")
# uv makes no script that is called like a Python.
_NAME: Final = re.compile(r"(?!(?i:python|pypy)(?:w|3[\d.]*)?$)[A-Za-z0-9_][\w.-]*", re.ASCII)
_VALUE: Final = re.compile(r"[\w.]+\s*:\s*[\w.]+\s*(\[[\w\s,.-]*\])?")
_SCRIPTS_LIMIT: Final = 4 << 20  # bytes


class _Archive(Protocol):
    dist_info: str

    @property
    def members(self) -> Iterable[str]: ...

    def read(self, name: str, limit: int) -> bytes: ...


def _lines(text: str) -> Iterable[tuple[str, str]]:
    """Yield name and value of each script as pip reads them."""
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line.strip("[]")
        elif line and not line.startswith("#") and group in _GROUPS:
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()


def script_names(data: bytes) -> set[str]:
    """Return the names of the scripts that pip finds in a file, whatever it is."""
    return {name for name, _ in _lines(data.decode("utf-8", "replace"))}


def read_script_names(archive: _Archive) -> set[str]:
    """Return the names of the scripts that an installer makes for a wheel."""
    member = f"{archive.dist_info}/{ENTRY_POINTS}"
    return script_names(archive.read(member, _SCRIPTS_LIMIT)) if member in archive.members else set()


def find_script_defects(data: bytes, installed: Iterable[str]) -> list[str]:
    """Say why installers would make different scripts of an entry_points.txt.

    :param installed: what the wheel's own files are called in the environment's ``bin``.
    """
    import configparser  # noqa: PLC0415 (few wheels have scripts)

    try:
        text = data.decode()
        parser = configparser.ConfigParser(delimiters="=")
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(text)
        parsed = sorted(pair for group in _GROUPS if group in parser for pair in parser.items(group))
    except (ValueError, configparser.Error) as error:
        return [f"{ENTRY_POINTS}: installers read it differently ({str(error).splitlines()[0]})"]
    issues = [] if parsed == sorted(_lines(text)) else [f"{ENTRY_POINTS}: installers read different scripts"]
    taken = {name.casefold(): "a file of .data" for name in installed}
    for name, value in parsed:
        if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            issues.append(f"{ENTRY_POINTS}: {name!r} = {value!r} is no script that every installer makes")
        elif other := taken.get(name.casefold()):
            issues.append(f"{ENTRY_POINTS}: the script {name!r} has the same path as {other}")
        taken[name.casefold()] = "another script"
    return issues
