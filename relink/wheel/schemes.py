"""Where an installer puts a wheel's members, and wheels for which that is not one file at one path.

Source: "Binary distribution format" of the PyPA specifications: what is not below ``.data`` goes to site-packages, and each
directory below ``.data`` to the installation path that has its name. Two members for one path cannot be distinguished afterwards:
pip keeps the one that it writes last and says nothing, `installer` stops in the middle. What relink has checked would not need
to be what is installed, so such a wheel is refused.

So is one of whose entry_points.txt installers would make different scripts ("Entry points specification" of the PyPA). pip reads
lines (importlib.metadata), `installer` by configparser, uv by a reader of its own. What these read differently, and a script that
is called like another file of the wheel, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from packaging.utils import canonicalize_name
from packaging.version import Version

from relink.wheel.naming import WheelName
from relink.wheel.source import MemberSource, read_member
from relink.wheel.zipformat import Member

ENTRY_POINTS: Final = "entry_points.txt"
_GROUPS: Final = ("console_scripts", "gui_scripts")
# uv makes no script that is called like a Python.
_NAME: Final = re.compile(r"(?!(?i:python|pypy)(?:w|3[\d.]*)?$)[A-Za-z0-9_][\w.-]*", re.ASCII)
_VALUE: Final = re.compile(r"[\w.]+\s*:\s*[\w.]+\s*(\[[\w\s,.-]*\])?")
_SCRIPTS_LIMIT: Final = 4 << 20  # bytes


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


def read_script_names(archive: MemberSource) -> set[str]:
    """Return the names of the scripts that an installer makes for a wheel."""
    member = f"{archive.dist_info}/{ENTRY_POINTS}"
    return script_names(read_member(archive, member, _SCRIPTS_LIMIT)) if member in archive.members else set()


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


_REQUIRED = ("METADATA", "WHEEL", "RECORD")

SCHEMES: Final = ("purelib", "platlib", "headers", "scripts", "data")
"""The keys that pip and `installer` know; pip refuses any other."""

ANY_SITE: Final = "lib/python3/site-packages"
"""Where site-packages is, relative to the environment's directory, while nobody knows for which Python."""

# Where the schemes of a Python end, relative to where the scheme `data` begins (sysconfig, schemes posix_prefix and venv, and
# Debian's deb_system). purelib and platlib are one directory in an environment.
_SITE: Final = re.compile(r"lib(?:64)?/python3(?:\.\d+t?)?/(?:site|dist)-packages/(?P<rest>.+)")
_HEADERS: Final = re.compile(r"include/(?:site/)?python3(?:\.\d+t?)?/[^/]+/(?P<rest>.+)")
# Defects that are reported.
_MOST: Final = 20


def installed_path(member: str, site: str = ANY_SITE) -> str:
    """Return where an installer puts a member, relative to the environment's directory (``sys.prefix``).

    Source: "Binary distribution format", the .data directory; sysconfig's scheme ``venv`` for the directories, and pip
    (locations/_sysconfig.py) for the one of headers.

    :param site: the site-packages of the Python that it is installed for, relative to the same directory.
    """
    first, _, rest = member.partition("/")
    scheme, slash, inner = rest.partition("/")
    if not (slash and first.endswith(".data") and "-" in first):
        return f"{site}/{member}"
    if scheme in ("purelib", "platlib"):
        return f"{site}/{inner}"
    if scheme == "headers":
        return f"include/site/{site.split('/')[-2]}/{first.partition('-')[0]}/{inner}"
    return f"bin/{inner}" if scheme == "scripts" else inner


def site_path(member: str) -> str | None:
    """Return the path of a member below site-packages; None where an installer puts it elsewhere."""
    path = installed_path(member)
    return path.removeprefix(f"{ANY_SITE}/") if path.startswith(f"{ANY_SITE}/") else None


def _place(member: str) -> tuple[str, str]:
    """Return where a member may be installed by any Python: ``site``, ``headers`` or ``prefix``, and the path below."""
    path = installed_path(member)
    for root, pattern in (("site", _SITE), ("headers", _HEADERS)):
        if match := pattern.fullmatch(path):
            return root, match["rest"]
    return "prefix", path


def find_scheme_defects(members: Iterable[str], data_dir: str | None) -> list[str]:
    """Say which members cannot be installed, or not as one file at one path.

    :param members: the names of all members; those of directories end in a slash.
    :param data_dir: the name of the ``.data`` directory, or None.
    """
    if data_dir is None:
        return []
    files = [name for name in members if not name.endswith("/")]
    issues = list(_defects(files, data_dir))
    return [*issues[:_MOST], "and more"] if len(issues) > _MOST else issues


def _defects(files: list[str], data_dir: str) -> Iterator[str]:
    places: dict[tuple[str, str], str] = {}
    for name in files:
        if name.startswith(f"{data_dir}/"):
            scheme, slash, inner = name.removeprefix(f"{data_dir}/").partition("/")
            if not slash:
                yield f"{name!r}: a file in the .data directory belongs to no scheme"
                continue
            if scheme not in SCHEMES:
                yield f"{name!r}: no installer knows the scheme {scheme!r}; there are {', '.join(SCHEMES)}"
                continue
            if scheme == "scripts" and "/" in inner:
                yield f"{name!r}: uv installs no directory of scripts"
            root, path = _place(name)
            if root == "site" and path.partition("/")[0].endswith((".dist-info", ".egg-info")):
                yield f"{name!r}: would be installed as metadata, which belong into the wheel's own .dist-info directory"
        installed = _place(name)
        other = places.setdefault(installed, name)
        if other != name:
            yield f"{name!r}: is installed to the same path as {other!r}"
    for (root, path), name in places.items():
        parent = path.rpartition("/")[0]
        while parent:
            if file := places.get((root, parent)):
                yield f"{name!r}: needs a directory where {file!r} is installed as a file"
            parent = parent.rpartition("/")[0]


def find_members_past_schemes(members: Iterable[str], data_dir: str | None) -> list[str]:
    """Return the members that the scheme ``data`` puts into the site-packages of one version of Python."""
    if data_dir is None:
        return []
    start = f"{data_dir}/data/"
    return [name for name in members if name.startswith(start) and _SITE.fullmatch(name.removeprefix(start))]


def _matches(directory: str, name: WheelName) -> bool:
    """Whether ``X-V.dist-info`` or ``X-V.data`` is of this distribution and version, however spelled."""
    distribution, _, version = directory.rpartition(".")[0].rpartition("-")
    try:
        # Old tools escaped the dashes of a version to underscores.
        same_version = Version(version.replace("_", "-")) == name.version
    except ValueError:  # InvalidVersion, or more digits than Python makes a number of
        return False
    return same_version and canonicalize_name(distribution) == name.canonical


def find_special_directories(
    members: Mapping[str, Member], name: WheelName | None
) -> tuple[str, str | None, list[str]]:
    """Find dist-info and data directory, and say what is wrong with them ("File contents" of the wheel format)."""
    issues: list[str] = []
    top = dict.fromkeys(member.partition("/")[0] for member in members if "/" in member)

    def only(suffix: str) -> str:
        directories = [directory for directory in top if directory.endswith(suffix)]
        if len(directories) > 1:
            issues.append(f"several {suffix} directories: {', '.join(directories[:5])}")
        elif directories and name and not _matches(directories[0], name):
            issues.append(f"{directories[0]!r} does not match the filename {name.filename}")
        return directories[0] if directories else ""

    dist_info = only(".dist-info")
    data_dir = only(".data") or None
    if not dist_info:
        issues.append("no .dist-info directory")
    else:
        missing = [file for file in _REQUIRED if f"{dist_info}/{file}" not in members]
        issues.extend(f"{dist_info!r} has no {file}" for file in missing)
        if data_dir and data_dir.removesuffix(".data") != dist_info.removesuffix(".dist-info"):
            issues.append(
                f"{data_dir!r} is spelled otherwise than {dist_info!r}: only pip takes it for the .data directory"
            )
    return dist_info, data_dir, issues
