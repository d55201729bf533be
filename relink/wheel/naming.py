"""What a wheel is called: its filename, and the directories inside it that repeat the name.

Source of the rules: "Binary distribution format" and "Version specifiers" of the PyPA specifications
(PEP 427, PEP 425 for tags, PEP 440 for local version labels).

What people pass where a wheel is expected, and what they can do: directories, source distributions, other archives.
"""

from __future__ import annotations

import difflib
import errno
import math
import os
import re
import shlex
from itertools import product
from pathlib import Path

import msgspec
from msgspec.structs import replace
from packaging.tags import Tag
from packaging.utils import NormalizedName, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from relink.system.errors import UsageError, WheelError
from relink.system.text import join_truncated

# "Source distribution format" of the PyPA specifications has .tar.gz; .zip and others are older.
_SOURCE = re.compile(r"(?P<stem>.+-\d.*)\.(?:tar\.(?:gz|bz2|xz|Z)|tgz|tbz|zip)")
# "Version specifiers" of the PyPA specifications: NAME, extras, a comparison.
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.-]*\s*(\[[^\]]*\])?\s*([=!~<>]=|[<>]).+")
# A Path has one slash of the two.
_ADDRESS = re.compile(r"https?:/(?=[^/])")
_OTHERS = {
    ".conda": "a package of conda's",
    ".egg": "an egg, the format before wheels",
    ".deb": "a package of Debian's",
    ".rpm": "an RPM package",
}


def explain_not_a_wheel(path: Path) -> str | None:
    """Return a sentence about what `path` is instead of a wheel; None where it may be one.

    :raises WheelError: it is not there.
    """
    if not os.path.lexists(path) and "\0" not in str(path):
        raise _no_file_error(path)
    if path.is_dir():
        return (
            explain_no_tree(path)
            or f"{path} is a directory, and there is no wheel in it; pass a wheel (.whl)"
        )
    if path.suffix == ".whl" or not path.is_file():
        return None
    if match := _SOURCE.fullmatch(path.name):
        return (
            f"{path} is a source distribution, and relink takes wheels, which have libraries in them; build one: "
            f"pip wheel --no-deps {path}, or get the vendor's wheel of {match['stem']}"
        )
    kind = _OTHERS.get(path.suffix.lower())
    return f"{path} is {kind}, and relink takes wheels; get the vendor's wheel (.whl)" if kind else None


def _no_file_error(path: Path) -> WheelError:
    """Return the error about a path that is not there: a requirement, an address, or a name that was misspelled."""
    said = f"{path} cannot be opened (No such file or directory)"
    if address := _ADDRESS.match(str(path)):
        url = f"{address[0]}/{str(path)[address.end() :]}"
        get = f"pip download --no-deps {shlex.quote(url)}"
        return WheelError(f"{url} is an address, and relink takes files; get it", step=get)
    if _REQUIREMENT.fullmatch(path.name) and path.parent == Path():
        return WheelError(f"{said}; fetch the package", step=f"relink fetch {shlex.quote(path.name)}")
    try:
        names = [name for name in os.listdir(path.parent) if name.endswith(".whl")]
    except OSError:
        return WheelError(said)
    if not (close := difflib.get_close_matches(path.name, names, n=1)):
        return WheelError(said)
    near = str(path.with_name(close[0]))
    return WheelError(f"{said}; did you mean {near}?", step=(str(path), near))


def explain_no_tree(path: Path) -> str | None:
    """Return a sentence about a directory of wheels or of sources; None where it may be an unpacked tree."""
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        return f"{path} is a directory, and relink takes wheels" if error.errno == errno.EACCES else None
    wheels = [name for name in names if name.endswith(".whl")]
    if wheels:
        listed = join_truncated([str(path / name) for name in wheels])
        return f"{path} is a directory, and relink takes wheels; pass those in it: {listed}"
    if {"pyproject.toml", "setup.py"} & set(names):
        return f"{path} is a directory with sources, and relink takes wheels; build one: pip wheel --no-deps {path}"
    return None


# Characters of a name: names are also in plans, pages and lock files, where no file system bounds them.
_MOST_CHARACTERS = 1024
# Tags of a name: three sets stand for their product. Known wheels stand for thirty at most.
_MOST_TAGS = 100


class WheelName(msgspec.Struct, frozen=True):
    """The parts of a wheel's filename.

    ``distribution``, ``version_text``, ``build``, ``python``, ``abi`` and ``platform`` are spelled as in the
    filename (``build`` is empty if there is none; the tags may be compressed sets, ``py2.py3``).
    """

    distribution: str
    version: Version
    version_text: str
    build: str
    python: str
    abi: str
    platform: str

    @property
    def filename(self) -> str:
        """The filename, ``.whl`` included."""
        middle = (self.build,) if self.build else ()
        parts = (self.distribution, self.version_text, *middle, self.python, self.abi, self.platform)
        return "-".join(parts) + ".whl"

    @property
    def canonical(self) -> NormalizedName:
        """The distribution's normalised name (PEP 503)."""
        return canonicalize_name(self.distribution)

    @property
    def fetching(self) -> str:
        """The command that has pip fetch the wheel of this release that fits the target."""
        return shlex.join(["relink", "fetch", f"{self.canonical}=={self.version}"])

    @property
    def tags(self) -> frozenset[Tag]:
        """Every tag the filename stands for."""
        return frozenset(Tag(*tag.split("-")) for tag in self.expanded_tags)

    @property
    def expanded_tags(self) -> tuple[str, ...]:
        """Every tag as ``python-abi-platform``, in the filename's order: the Tag lines of WHEEL."""
        sets = (self.python.split("."), self.abi.split("."), self.platform.split("."))
        return tuple(dict.fromkeys("-".join(parts) for parts in product(*sets)))


def parse_wheel_name(filename: str) -> WheelName:
    """Take a wheel's filename (no directory) apart.

    :raises WheelError: not a wheel filename by the binary distribution format, or its tags are more than any real wheel has.
    """
    parts = filename.removesuffix(".whl").split("-")
    count = math.prod(part.count(".") + 1 for part in parts[-3:])
    if len(filename) > _MOST_CHARACTERS or count > _MOST_TAGS:
        raise WheelError(
            f"{filename[:80] + '…'!r} is not the name of a wheel: {len(filename)} characters, {count} tags; "
            f"at most {_MOST_CHARACTERS} and {_MOST_TAGS} are read"
        )
    # With three plain tags, since `packaging` makes every tag that the sets stand for.
    plain = "-".join([*parts[:-3], "py3-none-any" + filename[-4:]])
    try:
        _, version, _, _ = parse_wheel_filename(plain)
    except ValueError as error:  # InvalidWheelFilename, or more digits than Python makes a number of
        raise WheelError(
            f"{filename!r} is not the name of a wheel: {str(error).partition(':')[0]}"
        ) from error
    distribution, version_text, *build = parts[:-3]
    python, abi, platform = parts[-3:]
    for part in (version_text, *build, *(tag for tags in parts[-3:] for tag in tags.split("."))):
        # A slash in a tag would name another directory.
        if not re.fullmatch(r"[\w.+!]+", part, re.ASCII):
            raise WheelError(f"{filename!r} is not the name of a wheel: {part!r} holds forbidden characters")
    return WheelName(distribution, version, version_text, build[0] if build else "", python, abi, platform)


def relinked_name(
    name: WheelName, *, local: str | None, platform: str, replaces: re.Pattern[str] | None = None
) -> WheelName:
    """Return the name of the rewritten wheel. ``relinked(relinked(x)) == relinked(x)``.

    :param local: the local version label without ``+``, such as ``rocm7.2.4``. It goes after a label that is
        there already, or takes the place of what ``replaces`` matches in it. ``None`` keeps the version as spelled.
    :param platform: the platform tag, such as ``linux_x86_64``; python and abi tags are kept.
    :param replaces: matches a label of the same kind at the end of the old local version; used only if it matches ``local``, too.
    :raises UsageError: ``local`` or ``platform`` cannot stand in a version or a filename.
    """
    if not re.fullmatch(r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*", platform):
        raise UsageError(f"{platform!r} cannot be a platform tag: write it like linux_x86_64")
    if local is None:
        return replace(name, platform=platform)
    try:
        label = Version(f"0+{local}").local or local
        # It is the end of the local version.
        old = name.version.local or ""
        if old == label or old.endswith(f".{label}"):
            label = old
        elif kept := replaces.sub("", old) if replaces is not None and replaces.search(label) else old:
            label = f"{kept}.{label}"
        version = Version(f"{name.version.public}+{label}")
    except ValueError as error:  # InvalidVersion, or more digits than Python makes a number of
        raise UsageError(f"{local!r} cannot be a local version label: write it like name7.2.4") from error
    return replace(name, version=version, version_text=str(version), platform=platform)


def rename_directory(directory: str, name: WheelName) -> str:
    """Return ``X-OLD.dist-info`` (or ``.data``) with the version of ``name``; X keeps the vendor's spelling.

    The directory as it is, if its version is the one of ``name`` already.
    """
    stem, dot, kind = directory.rpartition(".")
    distribution, _, old = stem.rpartition("-")
    if Version(old.replace("_", "-")) == name.version:
        return directory
    return f"{distribution}-{name.version_text}{dot}{kind}"
