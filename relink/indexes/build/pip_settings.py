"""What pip is configured for: indexes, certificates and a proxy, asked of pip itself.

Source: pip's documentation, "Configuration". `pip config list` prints what its files and the environment say; of its sections
``:env:`` wins over ``download``, and that over ``global``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from relink.indexes.install.installers import InstallerError, find_pip
from relink.system.errors import UsageError
from relink.system.programs import NoAnswerError, ask_program

_SECTIONS = ("global", "download", ":env:")  # the last one wins
_LINE = re.compile(r"""(?P<section>[^=]*?)\.(?P<key>[a-z-]+)=(?P<value>(['"]).*\4)""")
_DEFAULT = re.compile(r"--index-url\b.*?\(default\s+(\S+?)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class PipSettings:
    """What pip would ask, and how.

    :ivar indexes: addresses of simple indexes, in pip's order, without a slash at the end.
    :ivar cert: a file of certificates to trust; None for the system's.
    :ivar client_cert: a file with a certificate and its key for servers that ask for one.
    :ivar proxy: an address; None for what the environment says.
    :ivar find_links: directories, and addresses of pages, that list wheels of several projects.
    :ivar addresses: of all indexes that are asked, those of a recipe, too: their credentials are for all of their hosts.
    """

    indexes: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    find_links: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def pip_settings() -> PipSettings:
    """Ask pip what it is configured for.

    :raises UsageError: there is no pip.
    :raises InstallerError: it fails.
    """
    pip = find_pip()
    values: dict[str, str] = {}
    lines = [
        match for line in _said([*pip, "config", "list"]).splitlines() if (match := _LINE.fullmatch(line))
    ]
    for section in _SECTIONS:
        values |= {
            line["key"]: ast.literal_eval(line["value"]) for line in lines if line["section"] == section
        }
    indexes: list[str] = []
    if values.get("no-index", "").strip().lower() not in ("1", "true", "yes", "on"):
        indexes.append(values.get("index-url") or _default_index(pip))
        indexes += values.get("extra-index-url", "").split()
    return PipSettings(
        tuple(dict.fromkeys(index.rstrip("/") for index in indexes)),
        values.get("cert"),
        values.get("client-cert"),
        values.get("proxy"),
        tuple(values.get("find-links", "").split()),
    )


def _default_index(pip: Sequence[str]) -> str:
    """The index that pip asks where none is configured: its help says it."""
    match = _DEFAULT.search(_said([*pip, "download", "--help"]))
    if match is None:
        raise UsageError(
            "pip does not say which index it asks; set its index-url, or name the index in the recipe"
        )
    return match[1]


def _said(command: Sequence[str]) -> str:
    try:
        run = ask_program(command, directory="/")
    except NoAnswerError as error:
        raise InstallerError(f"pip cannot be asked for its configuration ({error})") from error
    if run.returncode != 0:
        raise InstallerError("pip cannot be asked for its configuration", run.stderr.splitlines()[-3:])
    return run.stdout
