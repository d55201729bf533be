"""Which libraries are copied into the wheel from a second provider, since the first one lacks them: only if asked for.

Takes what the user asks for (``--graft-from``, ``--graft``) and the members that miss a library. Gives :class:`GraftDraft`, and
RLK140 to RLK143. A graft becomes a member of the wheel: its symbols, its GPU code and what it needs are judged as those of any
other member. What it needs and no provider has comes along. It keeps its soname: the providers' own libraries may ask for it.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from relink.elf.image import Image, read_image
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.errors import ElfError, UsageError
from relink.files import file_sha256, map_file
from relink.findings.model import Finding, finding
from relink.loader.loading import RootRefusedError
from relink.loader.target import GLIBC_SONAMES
from relink.plans.additions import GRAFT_DIRECTORY, Graft, LicenceFacts, check_places, is_plain
from relink.plans.basis import LIBRARY_LIMIT
from relink.providers.platform import is_platform_library
from relink.providers.prefix import Provider
from relink.resolve.proof import Prover
from relink.resolve.strategy import ResolveContext
from relink.system_errors import raise_trouble
from relink.text import join_truncated

__all__ = ["Donor", "GraftDraft", "GraftPlans", "Knowledge", "plan_grafts", "read_grafts", "with_grafts"]

_PROVISIONAL = "0" * 8  # as long as what all grafts hold is not known


@dataclass(frozen=True, slots=True)
class Donor:
    """A second provider, and the major version of the vendor's release in it, where that is known."""

    provider: Provider
    major: int | None


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of a library besides its ELF file; each is called with the soname and the path as the target sees it.

    :ivar licence: also called with the provider's path.
    :ivar refusal: why its licence does not allow a copy, or None.
    :ivar beside: what the library loads from beside itself, so that a copy of it alone does not work; or None.
    """

    licence: Callable[[str, str], LicenceFacts]
    refusal: Callable[[LicenceFacts], str | None]
    beside: Callable[[str, str], str | None]


@dataclass(frozen=True, slots=True)
class GraftDraft:
    """A graft before its edit is planned: its facts, as :class:`~relink.plans.model.Graft` has them.

    :ivar image: of the file as it is in the second provider, under the member's name.
    """

    path: str
    soname: str
    source: str
    sha256: str
    provider: str
    licence: LicenceFacts
    image: Image
    table: SymbolTable


@dataclass(frozen=True, slots=True)
class GraftPlans:
    """The grafts of one wheel, in the order in which they were found to be missing, and the findings about them."""

    grafts: tuple[GraftDraft, ...] = ()
    findings: tuple[Finding, ...] = ()


class _RefusedError(Exception):
    """Why a library cannot be grafted; `licence`: its licence forbids it."""

    def __init__(self, reason: str, *, licence: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.licence = reason, licence


def plan_grafts(
    context: ResolveContext,
    tables: Mapping[str, SymbolTable],
    donors: Sequence[Donor],
    wanted: Sequence[str],
    distribution: str,
    knowledge: Knowledge,
    major: int | None = None,
) -> GraftPlans:
    """Plan what is copied from `donors`.

    :param tables: the symbols of the members.
    :param wanted: sonames; where none are given, all that is missing and a donor has. What they need comes along.
    :param distribution: as the wheel's name has it; the grafts get a directory below ``DISTRIBUTION.libs``.
    :param major: of the vendor's release in the providers.
    """
    chosen: dict[str, GraftDraft] = {}
    refused: dict[str, Finding] = {}
    seen: set[str] = set()
    while True:
        directory = f"{distribution}.libs/{GRAFT_DIRECTORY}{_PROVISIONAL}"
        missing = missing_libraries(*with_grafts(context, tables, list(chosen.values())), wanted)
        seen |= missing.keys()
        more = False
        for soname, requesters in missing.items():
            along = any(posixpath.dirname(one).endswith(directory) for one in requesters)
            if soname in chosen or soname in refused or (wanted and soname not in wanted and not along):
                continue
            donor = next((one for one in donors if one.provider.find(soname)), None)
            if donor is None:
                if soname in wanted:
                    places = join_truncated([one.provider.path for one in donors])
                    refused[soname] = finding("RLK141", soname, f"--graft: {places} does not have it")
                continue
            more = True
            try:
                chosen[soname] = _draft(context, soname, donor, directory, knowledge, major)
            except _RefusedError as error:
                needed_by = join_truncated(list(dict.fromkeys(map(posixpath.basename, requesters))))
                message = (
                    f"{donor.provider.find(soname)}, needed by {needed_by}, is not copied: {error.reason}"
                )
                refused[soname] = (
                    finding("RLK142", soname, message)
                    if error.licence
                    else finding("RLK141", soname, message)
                )
        if not more:
            break
    idle = [
        finding("RLK141", soname, "--graft: no member of the wheel misses a library of that name")
        for soname in wanted
        if soname not in seen
    ]
    grafts = _placed(list(chosen.values()), distribution)
    facts = [found for graft in grafts for found in _findings(graft)]
    return GraftPlans(grafts, (*idle, *refused.values(), *facts))


def missing_libraries(
    context: ResolveContext, tables: Mapping[str, SymbolTable], wanted: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Return what nothing serves once all is done that is proved: soname → the paths of those that need it.

    A variant of which Python picks one misses only what is `wanted` by name.
    """
    prover = Prover(context, tables, None)
    missing: dict[str, list[str]] = {}
    for member in context.images:
        try:
            outcome = prover.find_outcome(context, member)
        except RootRefusedError:  # has a finding of its own when the wheel is planned
            continue
        for issue in outcome.issues:
            soname = issue.edge.soname
            if issue.kind == "missing" and (soname in wanted or not context.profile.is_variant(member)):
                requesters = missing.setdefault(soname, [])
                requesters += [issue.requester] if issue.requester not in requesters else []
    return missing


def _draft(
    context: ResolveContext,
    soname: str,
    donor: Donor,
    directory: str,
    knowledge: Knowledge,
    major: int | None,
) -> GraftDraft:
    """Read a library of a donor.

    :raises _RefusedError: it is not to be copied.
    """
    if not is_plain(soname):
        raise _RefusedError("that is no plain file name")
    path = donor.provider.libraries[soname][0]
    _check_name(context, soname)
    member = f"{directory}/{soname}"
    if member in context.images:
        raise _RefusedError("the wheel has a member where the copy would be")
    try:
        image, table, digest = _read(context, path, member)
    except ElfError as error:
        raise _RefusedError(f"it cannot be read ({error.message})") from error
    if table.problems:
        raise _RefusedError(f"its symbol tables are damaged ({join_truncated(table.problems)})")
    if image.soname != soname:
        raise _RefusedError(f"its own soname is {image.soname}")
    _check_release(context, soname, image, donor, major)
    if reason := knowledge.beside(soname, path):
        raise _RefusedError(reason)
    licence = knowledge.licence(soname, donor.provider.path)
    if reason := knowledge.refusal(licence):
        raise _RefusedError(reason, licence=True)
    return GraftDraft(member, soname, path, digest, donor.provider.path, licence, image, table)


def _check_name(context: ResolveContext, soname: str) -> None:
    """Check what the soname alone says.

    :raises _RefusedError: there must not be a copy of such a library.
    """
    if soname in GLIBC_SONAMES or is_platform_library(soname, context.target.header.machine):
        raise _RefusedError("every system has its own, and a process must not have two")
    if context.vendor.is_runtime(soname):
        raise _RefusedError(
            f"it is a runtime of {context.vendor.product}; a process must have one, the prefix's own"
        )
    if context.vendor.is_own(soname):
        for provider in context.providers:
            if others := provider.nearest(soname):
                raise _RefusedError(
                    f"{provider.path} has {join_truncated(list(others))}, and a process must not have two versions of it"
                )


def _check_release(
    context: ResolveContext, soname: str, image: Image, donor: Donor, major: int | None
) -> None:
    """Check that a library belongs to the release that the providers have.

    :raises _RefusedError: it does not, or nothing says so.
    """
    product = context.vendor.product
    runtimes = [needed for needed in image.needed if context.vendor.is_runtime(needed)]
    if lacking := [needed for needed in runtimes if context.provider_path(needed) is None]:
        raise _RefusedError(
            f"it needs {join_truncated(lacking)}, which the prefix does not have: a second runtime of {product} would meet the "
            "prefix's own"
        )
    if not context.vendor.is_own(soname):
        return
    if donor.major is not None and major is not None and donor.major != major:
        raise _RefusedError(f"it is of {product} {donor.major}, and the prefix has {product} {major}")
    if not runtimes and (donor.major is None or major is None):
        raise _RefusedError(f"nothing says that it is of the prefix's release of {product}")


def _placed(drafts: Sequence[GraftDraft], distribution: str) -> tuple[GraftDraft, ...]:
    """Give the grafts their final directory: two wheels whose grafts differ do not share one."""
    contents = "".join(sorted(f"{draft.soname} {draft.sha256}\n" for draft in drafts))
    name = GRAFT_DIRECTORY + hashlib.sha256(contents.encode()).hexdigest()[: len(_PROVISIONAL)]
    return tuple(_at(draft, f"{distribution}.libs/{name}/{draft.soname}") for draft in drafts)


def _at(draft: GraftDraft, path: str) -> GraftDraft:
    return replace(draft, path=path, image=replace(draft.image, path=path))


def _findings(draft: GraftDraft) -> Iterable[Finding]:
    licence = draft.licence
    names = f", {', '.join(licence.names)}" if licence.names else ""
    package = f" ({licence.package}{names})" if licence.package else ""
    text = f"copied from {draft.source}{package} into {posixpath.dirname(draft.path)}; sha256 {draft.sha256}"
    yield finding("RLK140", draft.soname, text)
    if licence.file is None:
        yield finding(
            "RLK143",
            draft.soname,
            f"{draft.provider} has no licence text that is known to be of {draft.source}",
        )


def with_grafts(
    context: ResolveContext, tables: Mapping[str, SymbolTable], grafts: Sequence[GraftDraft]
) -> tuple[ResolveContext, Mapping[str, SymbolTable]]:
    """Return the context and the symbols with the grafts as members of the wheel."""
    if not grafts:
        return context, tables
    context = replace(
        context,
        images={**context.images, **{graft.path: graft.image for graft in grafts}},
        added={**context.added, **{graft.soname: graft.path for graft in grafts}},
        member_directories=context.member_directories
        | {posixpath.dirname(context.layout.path_of(graft.path)) for graft in grafts},
    )
    return context, {**tables, **{graft.path: graft.table for graft in grafts}}


def read_grafts(context: ResolveContext, grafts: Sequence[Graft]) -> tuple[GraftDraft, ...]:
    """Read the files that the grafts of a saved plan are copied from.

    :raises UsageError: one is not there, or is another file than the plan was made with.
    """
    check_places(grafts)
    drafts = []
    for graft in grafts:
        try:
            image, table, digest = _read(context, graft.source, graft.path)
        except ElfError as error:
            raise UsageError(f"{graft.source} cannot be read: {error.message}") from error
        if digest != graft.sha256:
            raise UsageError(f"{graft.source} is not the file that the plan was made with")
        facts = (graft.path, graft.soname, graft.source, digest, graft.provider, graft.licence)
        drafts.append(GraftDraft(*facts, image, table))
    return tuple(drafts)


def _read(context: ResolveContext, path: str, member: str) -> tuple[Image, SymbolTable, str]:
    """Read a file of the target: its facts under the name of a member, its symbols, and its SHA-256 (hex).

    :raises ElfError: it cannot be read, or is damaged.
    """
    host = context.files.host(path)
    try:
        with map_file(host) as buffer:
            image, table = read_image(buffer, member), read_symbols(buffer)
        return image, table, file_sha256(host, LIBRARY_LIMIT)
    except OSError as error:
        raise_trouble(error, path)
        raise ElfError(str(error.strerror)) from error
