"""Profiles: what is known of one vendor package, as data (``profiles/packages/*.toml``), and the reader of such TOML files.

They never change what is provable, only what is assumed. A TOML file is checked against its JSON schema; all problems are
reported at once, each with its line. Of JSON Schema (draft 2020-12) the check knows what the shipped schemas use, and refuses a
schema that uses more. Editors complete keys by the same files.
"""

from __future__ import annotations

import difflib
import fnmatch
import functools
import posixpath
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec.structs import replace
from packaging.utils import canonicalize_name

from relink.system.bounded_json import read_typed
from relink.system.errors import UsageError
from relink.system.safe_open import read_text
from relink.system.shipped_files import load_schema, shipped_directory

# Names in annotations only; the commands that read a profile alone start without it.
if TYPE_CHECKING:
    from relink.system.findings.model import Finding


class PackageRelease(msgspec.Struct, frozen=True):
    """A release of one of the package's distributions whose GPU code is known: its processors, and where that was seen."""

    distribution: str
    version: str
    gpus: tuple[str, ...]
    source: str


class DlopenEntry(msgspec.Struct, frozen=True):
    """What members (a glob) load by dlopen: globs of sonames, why, and whether the GPU part does not work without."""

    member: str
    sonames: tuple[str, ...]
    why: str
    required: bool = False


class OptionalMembers(msgspec.Struct, frozen=True):
    """Members (globs) that may be left out, why that is known, and what they are for in a few words.

    :ivar library: of files beside a copy of a vendor's library: that which alone uses them.
    """

    members: tuple[str, ...]
    why: str = ""
    what: str | None = None
    library: str | None = None


class EqualSonames(msgspec.Struct, frozen=True):
    """Sonames that are one ABI, and why that is known. The symbols have to be there all the same.

    They are one library under several numbers.
    """

    sonames: tuple[str, ...]
    why: str


class Hint(msgspec.Struct, frozen=True):
    """A sentence that is added to the remedy of findings with this code (a glob) and this subject (a glob).

    :ivar named: a text that the Python of the wheel has, else the sentence does not hold for this release.
    """

    code: str
    text: str
    subject: str = "*"
    named: str = ""

    def fits(self, code: str, subject: str) -> bool:
        """Whether it belongs to such a finding."""
        return fnmatch.fnmatchcase(code, self.code) and fnmatch.fnmatchcase(subject, self.subject)


class Profile(msgspec.Struct, frozen=True):
    """What is known of one package.

    :ivar distributions: the distribution names it applies to, as the index normalises them.
    :ivar imports: modules whose import shows that the package loads.
    :ivar nixpkgs_version_of: Python packages of nixpkgs whose version must be its own.
    :ivar nixpkgs: its attribute among nixpkgs' Python packages, where it is built there, too; None: only the vendor has it.
    :ivar requires: distributions that it needs at run time, normalised; counts where the wheel's METADATA names none.
    :ivar variants: member globs of libraries of which Python picks one at run time; those that a prefix cannot serve stay as
        they are.
    :ivar optional: members that the package does without; what a prefix cannot serve stays as it is, if others are served.
    :ivar optional_libraries: libraries, without their versions, that the package does without, and why.
    :ivar preload: members that the package loads into the global scope before others.
    :ivar for_packages: members that are for the vendor's packages in site-packages alone, and leave where a prefix is.
    :ivar bundled: copies of a vendor's libraries, where wheels have them, and the files that belong to these.
    :ivar brings: globs of members that an import of the package maps, and that members of other packages need by soname.
    :ivar rpath_drop: globs of ``$ORIGIN`` entries that leave the wheel and that the prefix takes the place of.
    :ivar releases: releases of the package whose GPU code is known, to name one that has what another lacks.
    :ivar source: where the statements above can be checked.
    """

    name: str
    distributions: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    nixpkgs: str | None = None
    nixpkgs_version_of: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    optional: tuple[OptionalMembers, ...] = ()
    optional_libraries: Mapping[str, str] = msgspec.field(default_factory=dict)
    preload: tuple[str, ...] = ()
    for_packages: tuple[OptionalMembers, ...] = ()
    bundled: tuple[OptionalMembers, ...] = ()
    brings: tuple[str, ...] = ()
    rpath_drop: tuple[str, ...] = ()
    dlopen: tuple[DlopenEntry, ...] = ()
    same_abi: tuple[EqualSonames, ...] = ()
    hints: tuple[Hint, ...] = ()
    releases: tuple[PackageRelease, ...] = ()
    source: str = ""

    def is_variant(self, member: str) -> bool:
        """Whether `member` is one of several of which one is loaded."""
        return any(fnmatch.fnmatchcase(member, pattern) for pattern in self.variants)

    def why_optional(self, member: str) -> str | None:
        """Return why the package works without a member, or None where nothing says so."""
        row = self._optional_row(member)
        return row.why if row is not None else None

    def part_of(self, member: str) -> str:
        """Return what an optional member is for in a few words; its file name where the profile does not say."""
        row = self._optional_row(member)
        return (row.what if row is not None else None) or posixpath.basename(member)

    def _optional_row(self, member: str) -> OptionalMembers | None:
        rows = (
            row for row in self.optional if any(fnmatch.fnmatchcase(member, glob) for glob in row.members)
        )
        return next(rows, None)

    def where_brought(self, soname: str) -> str | None:
        """Return the glob of the member that an import of the package maps under that soname, or None."""
        found = (glob for glob in self.brings if fnmatch.fnmatchcase(soname, posixpath.basename(glob)))
        return next(found, None)

    def drops(self, entry: str) -> bool:
        """Whether a search path entry to a sibling package goes."""
        return any(fnmatch.fnmatchcase(entry, pattern) for pattern in self.rpath_drop)

    def dlopens(self, member: str) -> dict[str, str]:
        """Return what a member loads by dlopen: glob of sonames → why."""
        entries = [entry for entry in self.dlopen if fnmatch.fnmatchcase(member, entry.member)]
        return {soname: entry.why for entry in entries for soname in entry.sonames}

    def requires_opened(self, member: str, soname: str) -> bool:
        """Whether the GPU part of the package does not work where a member cannot open a library."""
        entries = (entry for entry in self.dlopen if entry.required and soname in entry.sonames)
        return any(fnmatch.fnmatchcase(member, entry.member) for entry in entries)

    def why_equal(self, one: str, other: str) -> str | None:
        """Return why two sonames are one ABI, or None where nothing says so."""
        return why_equal(self.same_abi, one, other)

    def unmatched(self, members: Collection[str], entries: Collection[str]) -> Iterator[str]:
        """Yield what in this profile names nothing in a wheel.

        :param members: the wheel's members.
        :param entries: the search path entries of its ELF files.
        """
        globs = {"variants": self.variants, "preload": self.preload, "brings": self.brings}
        of_rows = {"optional": self.optional, "for_packages": self.for_packages, "bundled": self.bundled}
        for key, rows in of_rows.items():
            globs[f"{key}.members"] = tuple(glob for row in rows for glob in row.members)
        globs["dlopen.member"] = tuple(entry.member for entry in self.dlopen)
        for key, patterns in globs.items():
            yield from (
                f"{key}: {pattern} is no member"
                for pattern in patterns
                if not fnmatch.filter(members, pattern)
            )
        for pattern in self.rpath_drop:
            if not any(fnmatch.fnmatchcase(entry, pattern) for entry in entries):
                yield f"rpath.drop: {pattern} is no search path entry"
        for module in self.imports:
            path = module.replace(".", "/")
            if f"{path}.py" not in members and f"{path}/__init__.py" not in members:
                yield f"imports: {module} is no module"


def why_equal(rows: Iterable[EqualSonames], one: str, other: str) -> str | None:
    """Return why two sonames are one ABI, by the first row that has both, or None where nothing says so."""
    return next((row.why for row in rows if {one, other} <= {*row.sonames} and one != other), None)


def match_names(globs: Iterable[tuple[str, str]], available: Collection[str]) -> dict[str, str]:
    """Return the available names that each glob matches, with what stands beside it.

    A glob that matches none stands for itself, so that its absence can be reported.
    """
    found: dict[str, str] = {}
    for glob, why in globs:
        found |= dict.fromkeys(fnmatch.filter(available, glob) or [glob], why)
    return found


NO_PROFILE = Profile("none")
"""Nothing is known; ``--profile none`` asks for it."""


def shipped_profiles() -> dict[str, Profile]:
    """Return the shipped profiles by name.

    :raises UsageError: one is damaged.
    """
    return dict(_profiles_in(shipped_directory("profiles")))


@functools.cache
def _profiles_in(directory: Path) -> dict[str, Profile]:
    found = (read_profile(path) for path in sorted(directory.glob("packages/*.toml")))
    return {profile.name: profile for profile in found}


def profile_for(distribution: str, chosen: str | None = None) -> Profile:
    """Return the profile of a distribution, or :data:`NO_PROFILE`.

    :param chosen: the name of another profile, or its file: what ``--profile`` says.
    :raises UsageError: there is no such profile, or it is damaged.
    """
    if chosen is not None:
        return profile_named(chosen, option="--profile ")
    wanted = canonicalize_name(distribution)
    return next((item for item in shipped_profiles().values() if wanted in item.distributions), NO_PROFILE)


def profile_named(name: str, *, option: str = "") -> Profile:
    """Return a shipped profile by its name (``none`` for :data:`NO_PROFILE`), or one from a file.

    :param option: what the name was passed by, for messages.
    :raises UsageError: there is no such profile, or it is damaged.
    """
    if name == NO_PROFILE.name:
        return NO_PROFILE
    if "/" in name or name.endswith(".toml"):
        return read_profile(Path(name))
    shipped = shipped_profiles()
    if name in shipped:
        return shipped[name]
    near = difflib.get_close_matches(name, shipped, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(shipped)}."
    raise UsageError(
        f"{option}{name}: there is no such profile; {hint} A file is named with its directory, ./{name}.toml"
    )


def read_profile(path: Path) -> Profile:
    """Read one profile.

    :raises UsageError: it cannot be read, is not TOML, or not what ``profile.schema.json`` asks for; names FILE:LINE of
        everything that is wrong.
    """
    data = read_document(path, "profile", "profile")
    del data["schema"]
    for key in data.keys() & {"distributions", "requires"}:
        data[key] = [str(canonicalize_name(name)) for name in data[key]]
    for row in data.get("releases", ()):
        row["distribution"] = str(canonicalize_name(row["distribution"]))
    data["optional_libraries"] = {row["library"]: row["why"] for row in data.pop("optional_library", ())}
    data["rpath_drop"] = data.pop("rpath", {}).get("drop", [])
    profile: Profile = read_typed(Profile, {"name": path.stem, **data}, str(path))
    return profile


def add_hints(findings: Iterable[Finding], profile: Profile) -> Iterator[Finding]:
    """Add to the remedies what the profile says about such findings."""
    for found in findings:
        fitting = (hint.text for hint in profile.hints if hint.fits(found.code, found.subject))
        # What was given its hints before has them already.
        texts = dict.fromkeys(text for text in fitting if text not in found.remedy)
        addition = "".join(f" {text} (profile {profile.name})" for text in texts)
        yield replace(found, remedy=found.remedy + addition) if addition else found


DOCUMENT_LIMIT = 256 << 10
"""Bytes of a TOML file. The largest that is shipped has 10 KiB."""
# The most problems of one document that are listed.
_MAX_ISSUES = 100

# tomllib takes time and memory quadratic in the number of parts of a dotted key, and recurses for each bracket.
# The most dots of one line outside of strings: in keys, and in numbers, of which profiles have none.
_PARTS = 64
_BRACKETS = 32
# A string that is not closed ends with the text: tomllib says so, and looking for its end again and again would take time with
# the square of the text.
# Groups are not possessive: Python before 3.11.5 leaves such groups too early.
_SIGN = re.compile(
    r'"""(?:\\[\s\S]|(?!""")[^\\])*(?:"{3,5}|\\?\Z)'
    r"|'''(?:(?!''')[\s\S])*(?:'{3,5}|\Z)"
    r'|"(?:\\.|[^"\\\n])*"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+"
    r"|[.\[\]{}\n]"
)
_HEADER = re.compile(r"\s*\[(\[?)([\w.\s-]+)\]")
_KEY_LINE = re.compile(r"([\w.\s-]+)=")
_AT = re.compile(r" \(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


def read_document(path: Path, schema: str, what: str) -> dict[str, Any]:
    """Read a TOML file of the kind that `schema` describes.

    :param what: what it should be, for messages: ``profile``.
    :raises UsageError: it cannot be read, is not TOML, or is not what the schema asks for; names FILE:LINE of each problem.
    """
    text = read_named_text(path, DOCUMENT_LIMIT, what)
    data = parse_document(text, path, what)
    check_document(find_problems(data, load_schema(schema)), text, path, what)
    return data


def read_named_text(path: Path, limit: int, what: str) -> str:
    """Return the text of a file that a user names.

    :param limit: bytes; a larger file is refused.
    :param what: what it should be, for messages.
    :raises UsageError: it cannot be read, or is not UTF-8.
    """
    try:
        return read_text(path, limit)
    except OSError as error:
        raise UsageError(f"{path}: the {what} cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: the {what} cannot be read ({error})") from error


def parse_document(text: str, path: Path, what: str) -> dict[str, Any]:
    """Parse TOML that others wrote.

    :raises UsageError: it is not TOML, or is nested too deep; names FILE:LINE.
    """
    if deep := too_deep(text):
        raise UsageError(f"{path}:{deep[0]}: the {what} is nested too deep ({deep[1]})")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise UsageError(f"{path}: the {what} is nested too deep") from error
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT.search(message)
        line = (at and at["line"]) or text.rstrip("\n").count("\n") + 1
        raise UsageError(f"{path}:{line}: not TOML: {_AT.sub('', message)}") from error
    except ValueError as error:  # an integer of more digits than Python makes a number of
        raise UsageError(f"{path}: the {what} cannot be read ({error}); write a smaller number") from error


def too_deep(text: str) -> tuple[int, str] | None:
    """Return the line, from 1, on which a document goes too deep, and what goes too deep there; None where nothing does.

    Takes time in proportion to the text, whatever is in it.
    """
    line, dots, depth = 1, 0, 0
    for found in _SIGN.finditer(text):
        sign = found[0]
        if sign == ".":
            dots += 1
            if dots > _PARTS:
                return line, f"more than {_PARTS} dots in one line outside of strings"
        elif sign in "[{":
            depth += 1
            if depth > _BRACKETS:
                return line, f"brackets more than {_BRACKETS} deep"
        elif sign in "]}":
            depth -= 1
        elif sign == "\n":
            line, dots = line + 1, 0
        else:
            line += sign.count("\n")
    return None


def check_document(wrong: Iterable[Problem], text: str, path: Path, what: str) -> None:
    """Raise an error that has each problem of a document with its line.

    :param text: the document, in which the problems' places are.
    :raises UsageError: there is a problem.
    """
    if found := list(islice(wrong, _MAX_ISSUES)):
        lines = lines_of(text)
        numbered = sorted((line_of(lines, item.path), item.where, item.message) for item in found)
        issues = [
            f"{path}:{line}: {where}: {text}" if where else f"{path}:{line}: {text}"
            for line, where, text in numbered
        ]
        raise UsageError(f"{path}: not a {what} that this relink understands", issues)


def lines_of(text: str) -> dict[KeyPath, int]:
    """Return the line, from 1, that tables and keys begin on, as far as each line by itself says it.

    Items of lists and of tables in braces have no line of their own, nor has a key in quotation marks.
    """
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}  # of arrays of tables
    table: KeyPath = ()
    for number, written in enumerate(text.split("\n"), 1):
        path: KeyPath = ()
        if header := _HEADER.match(written):
            for part in _parts(header[2]):
                path = (*path, counts[path], part) if path in counts else (*path, part)
            if header[1]:
                counts[path] = counts.get(path, -1) + 1
                path = (*path, counts[path])
            table = path
        elif key := _KEY_LINE.match(written):
            path = (*table, *_parts(key[1]))
        else:
            continue
        # A table begins with its first key, also where no header names it.
        for end in range(1, len(path) + 1):
            lines.setdefault(path[:end], number)
    return lines


def _parts(key: str) -> list[str]:
    return [part.strip() for part in key.split(".")]


def line_of(lines: Mapping[KeyPath, int], path: KeyPath) -> int:
    """Return the line of a value, or of the nearest thing around it that has one."""
    return next((lines[path[:end]] for end in range(len(path), 0, -1) if path[:end] in lines), 1)


KeyPath: TypeAlias = tuple[str | int, ...]
"""Keys and indices from the top of a document: ``("releases", 0, "gpus")``."""

Schema: TypeAlias = Mapping[str, Any]

# Characters of a key or value that are looked at, and shown.
_KEY = 60
_TYPES: Mapping[str, tuple[type, str]] = {
    "object": (dict, "a table"),
    "array": (list, "a list"),
    "string": (str, "a string"),
    "boolean": (bool, "true or false"),
    "integer": (int, "a whole number"),
}
_KNOWN = frozenset(
    {"$schema", "$id", "$defs", "$ref", "title", "description", "type", "const", "pattern", "required"}
    | {"properties", "additionalProperties", "items", "minItems", "minProperties", "minimum", "uniqueItems"}
)


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong: with the value at `path`, or with the key itself where that does not exist."""

    path: KeyPath
    message: str

    @property
    def where(self) -> str:
        """The place in words: ``releases[0].gpus``; empty for the document."""
        text = ""
        for part in self.path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text


def find_problems(value: Any, schema: Schema) -> Iterator[Problem]:
    """Yield everything about `value` that a schema does not allow.

    :raises ValueError: the schema uses a keyword that is not known here.
    """
    yield from _check(value, schema, schema, ())


def _check(value: Any, schema: Schema, root: Schema, path: KeyPath) -> Iterator[Problem]:
    if unknown := set(schema) - _KNOWN:
        raise ValueError(f"the schema uses {sorted(unknown)}, which are not understood here")
    if "$ref" in schema:
        yield from _check(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    # The title of a schema is a noun for the value.
    expected = schema.get("title")
    if "const" in schema and value != schema["const"]:
        yield Problem(path, f'"{schema["const"]}" was expected')
    if "type" in schema:
        kind, noun = _TYPES[schema["type"]]
        # bool is a subclass of int.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            yield Problem(path, f"{expected or noun} was expected, not {_shown(value)}")
            return
    if isinstance(value, int) and "minimum" in schema and value < schema["minimum"]:
        yield Problem(path, f"{expected} from {schema['minimum']} on was expected, not {_shown(value)}")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield Problem(path, f"{expected} was expected, not {_shown(value)}")
    if isinstance(value, list):
        yield from _check_list(value, schema, root, path)
    if isinstance(value, dict):
        yield from _check_table(value, schema, root, path)


def _check_list(value: list[Any], schema: Schema, root: Schema, path: KeyPath) -> Iterator[Problem]:
    if len(value) < schema.get("minItems", 0):
        yield Problem(path, f"{schema['minItems']} or more were expected, not {len(value)}")
    if schema.get("uniqueItems"):
        seen = set[str]()
        for item in value:
            # repr() serves for tables too, which have no hash. It tells true from 1, which Python takes for equal.
            try:
                text = repr(item)
            # An integer of thousands of digits: it is no item of any list, which is told below.
            except ValueError:
                continue
            if text in seen:
                yield Problem(path, f"{_shown(item)} stands there twice")
            seen.add(text)
    for number, item in enumerate(value):
        yield from _check(item, schema.get("items", {}), root, (*path, number))


def _check_table(value: dict[str, Any], schema: Schema, root: Schema, path: KeyPath) -> Iterator[Problem]:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", {})
    if len(value) < schema.get("minProperties", 0):
        yield Problem(path, "it is empty")
    for key in schema.get("required", ()):
        if key not in value:
            yield Problem(path, f"the key {key} is missing")
    for key, item in value.items():
        if key in known:
            yield from _check(item, known[key], root, (*path, key))
        elif others is False:
            near = difflib.get_close_matches(key[:_KEY], known, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
            yield Problem((*path, key), f"no such key; {hint}")
        else:
            yield from _check(item, others, root, (*path, key))


def _shown(value: Any) -> str:
    """Format a value as TOML, truncated."""
    if isinstance(value, str):
        return f'"{value[:_KEY]}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    # Python refuses to write an integer of more than 4,300 digits, which TOML can have as 0x….
    if isinstance(value, int) and abs(value) >> 64:
        return "a large number"
    return "a list" if isinstance(value, list) else str(value)
