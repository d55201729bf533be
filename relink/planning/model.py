"""The plan: what every NEEDED resolves to, what will be edited and why. Plain data, to JSON and back.

What happens to each NEEDED, to the search path and to the interpreter is said once; the edit is derived from it. This is the
shape of relink.plan/1 and relink.report/1.

The plan inside of the output wheel is without the facts that hold on the machine of its maker only. What stays is about the
result: the target's loader and its directories, the providers, search paths, and the libraries that were found. A report
(``relink WHEEL --json``) keeps everything.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec.structs import replace

from relink.elf.edit import ElfEdit, VersionEdit
from relink.elf.source import linking_digest
from relink.elf.stub import StubFunction, build_stub
from relink.loader.seen_files import resolve_inside
from relink.loader.target import GLIBC_SONAMES
from relink.system.atomic import save_text
from relink.system.bounded_json import JSON_LIMIT, parse_json, read_typed
from relink.system.errors import ElfError, UsageError
from relink.system.findings.model import Finding, has_errors
from relink.system.safe_open import file_sha256, map_file, read_text
from relink.wheel.source import MemberSource, read_member

Action: TypeAlias = Literal["keep", "substitute", "drop", "add"]
Origin: TypeAlias = Literal["wheel", "provider", "platform", "missing", "assumed"]
Strategy: TypeAlias = Literal["nothing", "runpath", "rpath", "flatten"]


class NeededDecision(msgspec.Struct, frozen=True):
    """What becomes of one NEEDED entry.

    :ivar resolved: the path that serves it, as the loader will find it; members are shown as ``$WHEEL/…``.
    :ivar found_by: the loader rule that finds it.
    :ivar evidence: why the action is right, one sentence a fact.
    """

    soname: str
    action: Action
    soname_after: str | None
    resolved: str | None
    found_by: str | None
    origin: Origin
    evidence: tuple[str, ...] = ()


class RpathChange(msgspec.Struct, frozen=True):
    """The search path before and after, as strings; `kind` is ``rpath``, ``runpath`` or None where there is no entry."""

    before: str | None
    after: str | None
    kind_before: str | None
    kind_after: str | None


class InterpreterChange(msgspec.Struct, frozen=True):
    """PT_INTERP before and after; None where the file is not a program."""

    before: str | None
    after: str | None


class FilePlan(msgspec.Struct, frozen=True):
    """The decisions about one ELF member.

    :ivar strategy: the least invasive one that makes it load, in the simulation.
    :ivar needed: one for each NEEDED that it has, in its order, then one for each that is added.
    :ivar closure: (soname, path) of everything that loading it maps, in load order.
    :ivar served: False for a variant that the providers cannot serve; it is left as it is.
    :ivar versions: what happens to version records, besides that they follow a NEEDED that is substituted.
    :ivar clear_stack: the file asks for an executable stack, and will not.
    """

    path: str
    strategy: Strategy
    needed: tuple[NeededDecision, ...]
    rpath: RpathChange
    interpreter: InterpreterChange
    closure: tuple[tuple[str, str], ...] = ()
    served: bool = True
    versions: tuple[VersionEdit, ...] = ()
    clear_stack: bool = False

    @property
    def edit(self) -> ElfEdit:
        """What patchelf is to do; false when there is nothing.

        An action decides; a ``soname_after`` that contradicts it is not looked at.
        """
        rpath, interpreter = self.rpath, self.interpreter
        before = (rpath.before, rpath.kind_before)
        # A plan may write an empty search path as null or as "". Both are no change where the file had none.
        differs = before not in ((rpath.after, rpath.kind_after), (rpath.after or None, rpath.kind_after))
        return ElfEdit(
            search_path=(rpath.after or "") if differs else None,
            search_kind=rpath.kind_after if differs else None,
            replace=tuple(
                (entry.soname, entry.soname_after or "")
                for entry in self.needed
                if entry.action == "substitute"
            ),
            remove=tuple(entry.soname for entry in self.needed if entry.action == "drop"),
            add=tuple(entry.soname for entry in self.needed if entry.action == "add"),
            interpreter=interpreter.after if interpreter.after != interpreter.before else None,
            versions=self.versions,
            clear_stack=self.clear_stack,
        )

    @property
    def changed(self) -> bool:
        """Whether the member's bytes will change."""
        return bool(self.edit)


class ChangedRequirement(msgspec.Struct, frozen=True):
    """A Requires-Dist of METADATA that the output has not, or has another one in the place of.

    :ivar before: as the vendor's wheel spells it; `after`: None where it is taken out.
    """

    before: str
    after: str | None = None


class Reliance(msgspec.Struct, frozen=True):
    """Another package in site-packages that members rely on.

    :ivar name: of the distribution; `version`: the one that was there.
    :ivar directories: in site-packages, those that search paths of members lead to; none where only its own libraries do.
    :ivar files: in site-packages, the libraries that are taken of a package that is no provider, but one that the wheel comes
        after, or whose directory its vendor wrote into a search path.
    """

    name: str
    version: str
    directories: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


STUB_DIRECTORY: Final = "relink-stubs"
"""The name of the directory that has a wheel's stubs, and nothing else, so that it can be the last of a search path."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,200}")


class Stub(msgspec.Struct, frozen=True):
    """A library that relink writes (:mod:`relink.elf.stub`): a stub or a shim, whose functions refuse, or a forwarder.

    A shim has functions that another library lacks, which is loaded before it. A forwarder has no functions. It has
    the name that an object hands to dlopen, and needs the library under its soname:
    dlsym(3) looks in what a handle's library needs, too.

    :ivar path: its member in the output.
    :ivar versions: the version nodes that it defines.
    :ivar why: why there is a stub in place of the library.
    :ivar needed: the NEEDED of a forwarder, the library that it leads to first; `search_path` and its kind: where they are found.
    :ivar shim_of: the soname of the library that lacks a shim's functions.
    """

    path: str
    soname: str
    why: str
    functions: tuple[StubFunction, ...] = ()
    versions: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    search_path: str | None = None
    search_kind: str | None = None
    shim_of: str | None = None

    def content(self) -> bytes:
        """Return the library's bytes: the same for the same plan.

        :raises UsageError: there can be no such library: the plan is not one that relink made.
        """
        try:
            path = (self.search_kind or "runpath", self.search_path) if self.search_path else None
            hidden = self.shim_of is not None
            return build_stub(self.soname, self.functions, self.versions, self.needed, path, hidden=hidden)
        except (ValueError, struct.error) as error:  # names that no file can have, or too many
            raise UsageError(f"{self.path}: the plan has a stub that cannot be written") from error


def is_plain(name: str) -> bool:
    """Whether a name is one of a file, without a directory and without what a search path or a shell would understand."""
    return _PLAIN.fullmatch(name) is not None


def check_places(stubs: Sequence[Stub]) -> None:
    """Check that stubs are where relink puts them: a plan may be one that somebody else wrote.

    :raises UsageError: one is not.
    """
    for stub in stubs:
        top, _, rest = stub.path.partition("/")
        known = is_plain(top) and top.endswith(".libs") and is_plain(stub.soname)
        if not known or rest != f"{STUB_DIRECTORY}/{stub.soname}":
            place = f"NAME.libs/{STUB_DIRECTORY}/"
            raise UsageError(
                f"{stub.path}: the plan puts a stub outside {place}; this plan was not made by relink"
            )


LIBRARY_LIMIT: Final = 16 << 30
"""Bytes of a library that is hashed; the largest known one has 1.1 GB."""
_MEMBERS: Final = ("$WHEEL/", "$PREFIX/")


class LibraryFacts(msgspec.Struct, frozen=True):
    """A library outside of the wheel that a plan rests on.

    :ivar path: as the target sees it.
    :ivar digest: of what linking depends on (:func:`relink.elf.source.linking_digest`).
    :ivar sha256: of the whole content, hex; None where it was not computed.
    """

    path: str
    digest: str
    sha256: str | None = None


class Basis(msgspec.Struct, frozen=True):
    """What a plan was made from, on the machine that made it. A plan inside of a wheel has none.

    :ivar wheel: the input's absolute path.
    """

    wheel: str
    libraries: tuple[LibraryFacts, ...]


def record_basis(wheel: str, files: Iterable[FilePlan], sysroot: str) -> Basis:
    """Return what the plans of a wheel's files rest on.

    :param wheel: the wheel's path.
    :param sysroot: what the paths of libraries are below.
    """
    paths = dict.fromkeys(path for file in files for _, path in file.closure if not path.startswith(_MEMBERS))
    return Basis(
        os.path.abspath(wheel),
        tuple(LibraryFacts(path, _digest(resolve_inside(sysroot, path))) for path in paths),
    )


def list_changes(basis: Basis | None, sysroot: str) -> Iterator[str]:
    """Yield what has changed among the libraries that a plan rests on, a sentence each."""
    for library in () if basis is None else basis.libraries:
        path = resolve_inside(sysroot, library.path)
        try:
            whole = library.sha256 is not None
            same = _digest(path, whole=whole) == (library.sha256 if whole else library.digest)
        except UsageError as error:
            yield error.message
            continue
        if not same:
            yield f"{library.path} is not the file that the plan was made with"


def _digest(path: str, *, whole: bool = False) -> str:
    """Return the digest of what linking depends on, or of the whole content."""
    try:
        if whole:
            return file_sha256(path, LIBRARY_LIMIT)
        with map_file(path) as buffer:
            return linking_digest(buffer)
    except (OSError, ElfError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error


PLAN_SCHEMA = "relink.plan/1"


class Load(msgspec.Struct, frozen=True):
    """One object asking for another, as it will be after the edit: an edge of the dependency graph.

    :ivar requester: the path of the object that needs it; members are shown as ``$WHEEL/…``.
    :ivar resolved: the path that serves it, or None where nothing does; `found_by` is the loader rule that finds it.
    """

    requester: str
    soname: str
    resolved: str | None
    found_by: str | None
    origin: Origin


class DlopenEdge(msgspec.Struct, frozen=True):
    """A library that an object opens by dlopen, as far as that is known.

    :ivar known_by: ``note``, ``profile NAME: REASON``, or ``string``: a name in its data, which may be there for another reason.
    :ivar resolved: the path that the loader finds, or None; `found_by` is its rule.
    """

    opener: str
    name: str
    known_by: str
    resolved: str | None
    found_by: str | None


class WheelFacts(msgspec.Struct, frozen=True):
    """The input: its path as given, sha256 (hex), and what its name says."""

    path: str
    sha256: str
    name: str
    version: str
    tags: tuple[str, ...]


class TargetFacts(msgspec.Struct, frozen=True):
    """The loader that the plan was made for."""

    interpreter: str
    glibc: str
    directories: tuple[str, ...]
    python: str | None = None
    sysroot: str = "/"


class ProviderFacts(msgspec.Struct, frozen=True):
    """One provider, with the ROCm release it was found to be and what says so.

    :ivar found_by: where it was found, if the user did not name it.
    :ivar link_to: the directory that `path` leads to, if it is a symbolic link.
    :ivar has_none: no library in it is one of the vendor's.
    :ivar digest: of the libraries that the result has of it (:func:`add_digests`); in the plan of
        an output.
    """

    kind: str
    path: str
    rocm_version: str | None
    evidence: str | None = None
    found_by: str | None = None
    link_to: str | None = None
    has_none: bool = False
    digest: str | None = None


class RemovedCode(msgspec.Struct, frozen=True):
    """A range of a member whose code for other GPUs is taken out.

    :ivar entry: the entry's id, as the file has it; empty for the table that lists entries.
    :ivar sha256: of the bytes before, hex; `kept`: of the entries that stay, where the range names them.
    """

    path: str
    offset: int
    size: int
    entry: str
    sha256: str
    kept: str | None = None


class Plan(msgspec.Struct, frozen=True):
    """All decisions about one wheel. ``apply`` carries it out and decides nothing.

    :ivar output: the file name of the result; the input's own where nothing changes.
    :ivar loads: who asks for whom in the closures of all files, each edge once.
    :ivar basis: what it was made from; None in a plan that a wheel contains.
    :ivar stubs: libraries that are written into the output.
    :ivar relies_on: other packages that members find in the same site-packages; `sites`: those that had them.
    :ivar relocatable: whether the result works wherever these are installed beside it.
    :ivar metadata: the fields that are added to METADATA.
    :ivar opened: what the objects of all closures open by dlopen, as far as that is known, each edge once.
    :ivar options: the options that decided it (:func:`relink.planning.options.list_deciding_words`).
    :ivar requirements: the requirements in METADATA that change; `removed`: the members that the output has not.
    :ivar only_gpus: the GPUs whose code stays, where the code of others is taken out; `removed_code`: the ranges of it.
    """

    wheel: WheelFacts
    output: str
    target: TargetFacts
    providers: tuple[ProviderFacts, ...]
    files: tuple[FilePlan, ...]
    findings: tuple[Finding, ...] = ()
    loads: tuple[Load, ...] = ()
    basis: Basis | None = None
    stubs: tuple[Stub, ...] = ()
    relies_on: tuple[Reliance, ...] = ()
    sites: tuple[str, ...] = ()
    relocatable: bool = False
    metadata: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    opened: tuple[DlopenEdge, ...] = ()
    requirements: tuple[ChangedRequirement, ...] = ()
    removed: tuple[str, ...] = ()
    only_gpus: tuple[str, ...] = ()
    removed_code: tuple[RemovedCode, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no finding is an error: what :func:`relink.apply` requires."""
        return not has_errors(self.findings)

    @property
    def changed(self) -> tuple[FilePlan, ...]:
        """The files that change."""
        return tuple(file for file in self.files if file.changed)

    @property
    def empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.changed or self.stubs or self.requirements or self.removed or self.removed_code)

    def save(self, path: Path | str) -> None:
        """Write the plan as JSON. The libraries that it rests on are read once more, whole, so that any change is seen.

        :raises UsageError: the file cannot be written, or a library cannot be read.
        """
        basis, root = self.basis, self.target.sysroot
        if basis is not None:
            libraries = (
                replace(one, sha256=one.sha256 or _digest(resolve_inside(root, one.path), whole=True))
                for one in basis.libraries
            )
            basis = replace(basis, libraries=tuple(libraries))
        text = json.dumps(to_json(replace(self, basis=basis)), indent=1) + "\n"
        save_text(Path(path), text, "the plan")

    @classmethod
    def load(cls, path: Path | str) -> Plan:
        """Read a plan that :meth:`save` wrote.

        :raises UsageError: it is no plan.
        """
        try:
            text = read_text(Path(path), JSON_LIMIT)
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: the plan cannot be read ({error})") from error
        return from_json(text)


def add_digests(plan: Plan) -> Plan:
    """Return the plan with a digest for each provider, by which another run sees that it is the same.

    It is the SHA-256 of a sorted line for each library that the closures have of the provider: the library's
    :func:`~relink.elf.source.linking_digest` and the soname. The C library's parts are the target's, and left out.

    :raises UsageError: a library cannot be read.
    """
    roots = [f"{provider.path.rstrip('/')}/" for provider in plan.providers]
    sonames = {path: soname for file in plan.files for soname, path in file.closure}
    lines = {
        path: f"{_digest(resolve_inside(plan.target.sysroot, path))} {soname}\n"
        for path, soname in sonames.items()
        if soname not in GLIBC_SONAMES and path.startswith(tuple(roots))
    }
    providers = []
    for provider, root in zip(plan.providers, roots, strict=True):
        # Sorted, since another plan may reach the same libraries in another order.
        text = "".join(sorted(line for path, line in lines.items() if path.startswith(root)))
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        providers.append(replace(provider, digest=digest))
    return replace(plan, providers=tuple(providers))


# Keys that JSON has only where they say something; none of them was in relink 0.1.0.
_LEFT_OUT: dict[type, frozenset[str]] = {
    FilePlan: frozenset({"versions", "clear_stack"}),
    Finding: frozenset({"cause", "brief", "step", "choices", "without"}),
    Plan: frozenset(
        {
            "stubs",
            "opened",
            "options",
            "relies_on",
            "sites",
            "relocatable",
            "metadata",
            "requirements",
            "removed",
            "only_gpus",
            "removed_code",
        }
    ),
    ProviderFacts: frozenset({"found_by", "digest", "link_to", "has_none"}),
    RemovedCode: frozenset({"kept"}),
    Stub: frozenset({"needed", "search_path", "search_kind", "shim_of"}),
    StubFunction: frozenset({"text"}),
}


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON data; the inverse of :func:`from_json`."""
    return {"schema": PLAN_SCHEMA, **to_data(plan)}


def to_data(value: Any) -> Any:
    """Turn facts and tuples into what JSON has: objects with the fields as keys, and lists."""
    if isinstance(value, msgspec.Struct):
        left_out = _LEFT_OUT.get(type(value), ())
        parts = ((name, getattr(value, name)) for name in value.__struct_fields__)
        data = {
            name: to_data(part)
            for name, part in parts
            if part not in (None, (), False) or name not in left_out
        }
        if isinstance(value, Finding) and value.subjects == (value.subject,):
            del data["subjects"]
        return data
    if isinstance(value, tuple | list):
        return [to_data(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_data(item) for key, item in value.items()}
    return value


def from_json(data: Mapping[str, Any] | str, *, strict: bool = True) -> Plan:
    """Read a plan that :func:`to_json` made, from data or text.

    :param strict: a key that this relink does not know is an error: what is to be carried out must be known in full.
    :raises UsageError: it is not one; names the place.
    """
    try:
        read = parse_json(data) if isinstance(data, str) else dict(data)
    except (ValueError, TypeError) as error:
        raise UsageError(f"the plan is not JSON ({error})") from error
    if not isinstance(read, dict) or read.pop("schema", None) != PLAN_SCHEMA:
        raise UsageError(
            f"this is not a plan of the kind that this relink writes ({PLAN_SCHEMA}); relink the vendor's wheel anew"
        )
    return read_plan_fields(read, "plan", strict=strict)


def read_plan_fields(data: Mapping[str, Any], where: str, *, strict: bool) -> Plan:
    """Read the fields of a plan.

    :param where: names the data in messages.
    :raises UsageError: it is none; names the place.
    """
    plan = cast("Plan", read_typed(Plan, data, where, strict=strict))
    for number, file in enumerate(plan.files):
        seen: set[str] = set()
        for entry in file.needed:
            wrong = f"{where}.files[{number}].needed: {entry.soname}"
            if entry.soname in seen:
                raise UsageError(f"{wrong} is listed twice")
            if entry.action == "substitute" and not entry.soname_after:
                raise UsageError(f"{wrong} is replaced by nothing")
            seen.add(entry.soname)
    return plan


PLAN_MEMBER: Final = "relink.json"
"""The plan's member in the dist-info of an output."""
ANY_PYTHON: Final = "$PYTHON"
"""Stands for the path of the Python that the plan was made for."""
BASE_PREFIX: Final = "$BASE_PREFIX"
"""Stands for ``sys.base_prefix`` of that Python, before what it loads from there."""
SITE: Final = "$SITE"
"""Stands for the site-packages that had the packages which the result finds beside it."""
_OF_THE_PLACE: Final = frozenset({"RLK210", "RLK520", "RLK522"})
"""Findings about the Python that the plan was made for, and about the shell that it was made in."""
_ENDS: Final = r"(?![^/\s:;,)])"  # behind a path
# Every machine has these directories, so they say nothing of the maker.
_SHARED: Final = frozenset({"", "/", "/usr", "/usr/local"})


def embed_plan(plan: Plan) -> Plan:
    """Return the plan for the wheel: no path of a Python, no directory that stands for the root, and not how a prefix was found.

    Edits stay as they are to the byte.
    """
    target, python = plan.target, plan.target.python
    plan = replace(
        plan,
        target=replace(target, python=ANY_PYTHON if python else None, sysroot="/"),
        providers=tuple(replace(provider, found_by=None) for provider in plan.providers),
        findings=tuple(found for found in plan.findings if found.code not in _OF_THE_PLACE),
        basis=None,
    )
    base = posixpath.dirname(posixpath.dirname(python)) if python else ""
    sites = list(plan.sites)
    if base in _SHARED and not sites:
        return plan
    # A provider may lie inside of the Python's directory, or around it. Its paths stay, since the plan is about them.
    kept = _any_of(provider.path for provider in plan.providers if provider.path not in sites)
    hidden = _any_of([] if base in _SHARED else [base])
    # Where several match, the first alternative counts: site-packages are hidden even inside of a provider, and a provider
    # stays even inside of the Python's directory.
    pattern = re.compile(rf"(?P<site>{_any_of(sites)}){_ENDS}|(?:{kept}){_ENDS}|(?P<base>{hidden})(?=/)")

    def shown(text: str) -> str:
        return pattern.sub(
            lambda match: SITE if match["site"] else BASE_PREFIX if match["base"] else match[0], text
        )

    return replace(
        plan,
        providers=tuple(replace(provider, path=shown(provider.path)) for provider in plan.providers),
        files=tuple(_file(file, shown) for file in plan.files),
        sites=tuple(shown(site) for site in plan.sites),
        findings=map_strings(plan.findings, shown),
        loads=tuple(replace(map_strings(load, shown), soname=load.soname) for load in plan.loads),
        opened=tuple(replace(map_strings(edge, shown), name=edge.name) for edge in plan.opened),
    )


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return `value` with every str in it changed: in facts, tuples, lists and mappings, their keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(map_strings(part, change) for part in value)
    if isinstance(value, Mapping):
        return {map_strings(key, change): map_strings(part, change) for key, part in value.items()}
    if isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
        return replace(value, **{name: map_strings(getattr(value, name), change) for name in names})
    return value


def _any_of(paths: Iterable[str]) -> str:
    # (?!) matches nothing; an empty alternative would match everywhere.
    return "|".join(map(re.escape, paths)) or "(?!)"


def _file(file: FilePlan, shown: Callable[[str], str]) -> FilePlan:
    return replace(
        file,
        needed=tuple(
            replace(map_strings(entry, shown), soname=entry.soname, soname_after=entry.soname_after)
            for entry in file.needed
        ),
        closure=tuple((soname, shown(path)) for soname, path in file.closure),
    )


def read_plan(source: MemberSource) -> Plan | None:
    """Return the plan that a relinked wheel carries, or None for a vendor's wheel.

    :raises UsageError: the plan has another format than this relink reads, or is damaged.
    :raises WheelError: the member is larger than :data:`relink.system.bounded_json.JSON_LIMIT`, or damaged.
    """
    name = f"{source.dist_info}/{PLAN_MEMBER}"
    if name not in source.members:
        return None
    # Another release may have had more keys, such as that of libraries which it copied in: nothing is carried out of it.
    return from_json(read_member(source, name, JSON_LIMIT).decode("utf-8", "replace"), strict=False)
