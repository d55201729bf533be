"""The site-packages that a wheel is installed into: what lies there beside its members, and what of the wheel changes for that.

Gives the links of :class:`~relink.planning.resolve.context.Layout`. A wheel made for a vendor's packages requires them. Where a
prefix takes their place, an installer would fetch some gigabytes that nothing uses; where other releases of them are installed,
it would replace these. A requirement that names a version by its local label (``torch == 2.13.0+rocm10.0.0``) follows the
label. Source of the rules: "Core metadata", "Dependency specifiers" and "Version specifiers" of the PyPA specifications.

A wheel may have its own copies of a vendor's libraries instead. Whoever repairs wheels copies libraries under names without a
number and writes these into NEEDED; the copy's own DT_SONAME still says which ABI it is (pytorch's repair_wheel.py). A process
must not have two runtimes, so either the runtime leaves the wheel, and all that the prefix has with it, or nothing does.

Python code may load libraries by a bare soname. ``ctypes.CDLL("libamdhip64.so.7")`` is a dlopen by Python's own ``_ctypes``, so
ld.so looks in that one's RUNPATH, not in those of the wheel (glibc elf/dl-load.c, _dl_map_object). What is mapped already under
the soname is taken.
"""

from __future__ import annotations

import fnmatch
import os
import posixpath
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from relink.elf.image import Image, machine_name
from relink.elf.symbols import match
from relink.gpu.coverage import RequestedGpu
from relink.loader.search import expand
from relink.loader.seen_files import resolve_inside
from relink.loader.tables import read_table
from relink.loader.target import Target
from relink.planning.model import SITE, ChangedRequirement, FilePlan, Plan, Reliance
from relink.planning.reading import Wheel
from relink.planning.resolve.context import Layout, ResolveContext
from relink.planning.resolve.proof import find_system_library
from relink.providers.distribution import find_manylinux_tag, is_platform_library, satisfies_tag
from relink.providers.prefix import (
    SITE_PACKAGES,
    TREE,
    Provider,
    find_distribution,
    find_owners,
    major_minor,
    soname_stem,
)
from relink.providers.profiles import Profile
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated, pluralize
from relink.vendors.protocol import Vendor
from relink.vendors.registry import VENDORS, processors_of
from relink.wheel.metadata import read_metadata
from relink.wheel.naming import WheelName
from relink.wheel.source import MemberSource, read_member


def find_environment_site(directory: str, python: str) -> str:
    """Return the site-packages of a virtual environment, or `directory` if that is a site-packages.

    :param python: the version in the directory's name, ``3.12``.
    :raises UsageError: there is none.
    """
    # A free-threaded Python has a `t` at the end of the name (PEP 703).
    versions = [python.removesuffix("t"), *(f"3.{minor}" for minor in range(8, 30))]
    both = [f"python{version}{free}" for version in versions for free in ("", "t")]
    names = [f"python{python}", both[0], both[1], "python3", *both]
    inside = [
        posixpath.join(directory, lib, name, "site-packages") for lib in ("lib", "lib64") for name in names
    ]
    for site in (*inside, directory):
        if os.path.isdir(site) and (
            site in inside or posixpath.basename(posixpath.abspath(site)).endswith("-packages")
        ):
            return posixpath.abspath(site)
    raise UsageError(f"{directory}: no site-packages in it; name a virtual environment or its site-packages")


def find_environment_python(environment: str | None) -> str | None:
    """Return the Python of a virtual environment, or None where the directory has none."""
    program = posixpath.join(environment or "", "bin", "python")
    return program if environment is not None and os.access(program, os.X_OK) else None


def find_packages_beside(providers: Iterable[Provider], target: Target, *, named: bool) -> dict[str, str]:
    """Return the packages that a wheel will have beside it: the path in site-packages → the real directory.

    What lies in another site-packages than the wheel (that of the system, of a user, of a .pth file) is no neighbour.

    :param named: the user named the Python that will load the result; otherwise a site-packages that was named is believed.
    """
    return {
        package.directory: f"{provider.path}/{package.directory}"
        for provider in providers
        if provider.kind == SITE_PACKAGES and _is_own(provider, target, named=named)
        for package in provider.packages
        if package.directory
    }


def _is_own(provider: Provider, target: Target, *, named: bool) -> bool:
    own = find_own_site(target) if named or provider.found_by else None
    return own is None or os.path.realpath(own) == os.path.realpath(provider.path)


def list_overlays(
    providers: Iterable[Provider], layout: Layout, target: Target, *, named: bool
) -> list[tuple[str, str]]:
    """Return where files of other packages lie that belong into directories of the wheel: as installed, and the place on disk.

    :param named: as for :func:`packages_beside`.
    """
    sites = [
        provider.path
        for provider in providers
        if provider.kind == SITE_PACKAGES and _is_own(provider, target, named=named)
    ]
    sites += [site for site in (find_own_site(target) if named else None,) if site]
    return [] if layout.tree else [(layout.site_packages, site) for site in dict.fromkeys(sites)]


def layer_findings(context: ResolveContext, *, named: bool) -> Iterator[Finding]:
    """Yield RLK534 and RLK550: the wheel will not lie beside a provider, and the vendor is in another site-packages, too.

    :param named: as for :func:`packages_beside`.
    """
    target, facts = context.target, context.target.python_facts
    for provider in context.providers:
        if provider.kind != SITE_PACKAGES:
            continue
        if not _is_own(provider, target, named=named):
            text = f"the wheel will be installed into {find_own_site(target)}, so search paths name the directory and not $ORIGIN"
            yield finding("RLK534", provider.path, text)
        for site in facts.site_packages if facts and (named or provider.found_by) else ():
            other = os.path.realpath(site) != os.path.realpath(provider.path)
            if other and (packages := context.vendor.packages.packages_of(site, target)):
                names = join_truncated([f"{package.name} {package.version}" for package in packages])
                yield finding("RLK550", site, f"it has {names}, which are ignored; {provider.path} is used")


def packages_findings(
    context: ResolveContext, files: Sequence[FilePlan], requested: Iterable[RequestedGpu]
) -> Iterator[Finding]:
    """Yield the findings about the vendor's packages in site-packages."""
    gpus = processors_of(requested, context.vendor)
    sonames = [soname for file in files if file.served for soname, _ in file.closure]
    for provider in context.providers:
        if provider.kind == SITE_PACKAGES:
            yield from context.vendor.packages.site_findings(provider, sonames, context.target, gpus)


def call_findings(calls: Sequence[tuple[str, list[str]]], context: ResolveContext) -> Iterator[Finding]:
    """Yield the findings about Python code that loads libraries of the providers, or of the vendor, by name.

    :param calls: as :attr:`relink.planning.contents.Contents.calls`.
    """

    def finds(soname: str) -> bool:
        return any(find_system_library(context, member, soname) for member in islice(context.images, 1))

    for provider in context.providers:
        if provider.kind == SITE_PACKAGES:
            yield from python_call_findings(calls, provider, context.vendor)
        elif not context.layout.tree:
            yield from python_call_findings(calls, provider, context.vendor, finds)
    stems = {soname_stem(name) for provider in context.providers for name in provider.libraries}
    stems |= {soname_stem(posixpath.basename(member)) for member in context.images}
    for module, sonames in calls:
        nowhere = [
            soname
            for soname in sonames
            if context.vendor.libraries.is_own(soname)
            and soname_stem(soname) not in stems
            and not finds(soname)
        ]
        if nowhere:
            text = f"loads {join_truncated(nowhere)} by name, which no prefix has"
            about = (nowhere[0], context.distribution, context.providers)
            yield finding("RLK538", module, text, context.vendor.libraries.where_to_get(*about))


def find_own_site(target: Target) -> str | None:
    """Return the site-packages that an installer uses for the target's Python; None where that Python is not known."""
    facts = target.python_facts
    return (facts.installs_into or None) if facts is not None else None


def find_directories_beside(
    layout: Layout, site: str, images: Mapping[str, Image], members: Collection[str], target: Target
) -> dict[str, str]:
    """Return the directories of a site-packages that search paths of members lead to, and that the wheel has not itself.

    :param members: the names of all files of the wheel.
    """
    own = {posixpath.dirname(layout.path_of(member)) for member in members}
    own |= {parent for directory in own for parent in _parents(directory)}
    links: dict[str, str] = {}
    for member, image in images.items():
        origin = posixpath.dirname(layout.path_of(member))
        for text in (image.search_path or "").split(":"):
            directory = posixpath.normpath(expand(text, origin=origin, target=target) or "")
            if "ORIGIN" not in text or not directory.startswith(f"{layout.site_packages}/"):
                continue
            # The topmost directory that the wheel has no part of is what another package brings.
            entry = next(
                (parent for parent in (*reversed([*_parents(directory)]), directory) if parent not in own),
                None,
            )
            if entry is None or not entry.startswith(f"{layout.site_packages}/"):
                continue
            relative = entry.removeprefix(f"{layout.site_packages}/")
            real = f"{site}/{relative}"
            if os.path.isdir(resolve_inside(target.sysroot, real)):
                links[relative] = real
    return links


def find_relied_on(
    files: Iterable[FilePlan], providers: Sequence[Provider], target: Target
) -> tuple[tuple[Reliance, ...], tuple[str, ...]]:
    """Return the packages that are no providers and that members take libraries from, and the site-packages that these lie in."""
    installed_in = target.python_facts.site_packages if target.python_facts is not None else ()
    paths = {posixpath.normpath(path) for file in files if file.served for _, path in file.closure}
    taken = {path for path in paths if not any(provider.holds(path) for provider in providers)}
    used: dict[tuple[str, str], list[str]] = {}
    sites = []
    for site in installed_in:
        inside = {path.removeprefix(f"{site}/") for path in taken if path.startswith(f"{site}/")}
        owned = find_owners(site, inside, target)
        sites += [site] if owned else []
        for file in sorted(owned):
            used.setdefault((owned[file].name, owned[file].version), []).append(file)
    relied = (Reliance(*package, files=tuple(listed)) for package, listed in sorted(used.items()))
    return tuple(relied), tuple(sites)


def _parents(directory: str) -> Iterator[str]:
    while directory not in ("", "/"):
        directory = posixpath.dirname(directory)
        yield directory


def idle_findings(plan: Plan | None, files: Sequence[FilePlan], context: ResolveContext) -> Iterator[Finding]:
    """Yield RLK127 for each stub of a plan whose real library exists by now, and say whether the loader prefers it.

    :param files: what loading each member maps now.
    """
    members = [file.path for file in files if not context.images[file.path].is_executable]
    for stub in plan.stubs if plan else ():
        soname = stub.shim_of or stub.soname
        mapped = [path for file in files for name, path in file.closure if name == soname]
        if stub.shim_of is not None:
            # The library comes before its shim.
            for place in dict.fromkeys(mapped):
                exports = read_table(context.files, place).exports if place.startswith("/") else {}
                if all(match(exports.get(one.name, ()), one.version) for one in stub.functions):
                    text = f"{place} has the functions of the shim {stub.soname} now; it is idle"
                    yield finding("RLK127", soname, text)
            continue
        own = context.layout.shown(context.layout.path_of(stub.path))
        if real := sorted({*map(posixpath.normpath, mapped)} - {own}):
            yield finding("RLK127", stub.soname, f"the loader takes {real[0]}; the stub in the wheel is idle")
        elif members and (path := find_system_library(context, members[0], stub.soname)):
            yield finding("RLK127", stub.soname, f"{path} is there now, and the stub in the wheel is taken")


def reliance_findings(
    plan: Plan | None, files: Iterable[FilePlan], site: str | None, target: Target
) -> Iterator[Finding]:
    """Yield RLK536 for packages that a relinked wheel relies on and an environment lacks, RLK537 for libraries from elsewhere.

    :param files: what loading each member maps in that environment.
    """
    if plan is None or site is None:
        return
    facts = target.python_facts
    sites = (site, *(facts.site_packages if facts is not None and find_own_site(target) == site else ()))
    for package in plan.relies_on:
        found = (find_distribution(directory, package.name, target) for directory in sites)
        installed = next(filter(None, found), None)
        wanted = f"{package.name} {major_minor(package.version)}"
        step = f"pip install '{package.name}=={major_minor(package.version)}.*'"
        if installed is None:
            text = f"the wheel relies on {wanted}, which is not installed there"
            yield finding("RLK536", site, text, step=step)
            continue
        if major_minor(installed.version) != major_minor(package.version):
            text = f"the wheel relies on {wanted}, and {installed.version} is installed"
            yield finding("RLK536", site, text, step=step)
        for file in package.files:
            hosts = (resolve_inside(target.sysroot, f"{directory}/{file}") for directory in sites)
            if not any(map(os.path.exists, hosts)):
                text = f"the wheel relies on {file} of {wanted}, which {installed.version} has not"
                yield finding("RLK536", site, text, step=step)
    beside = {
        soname: path.removeprefix(f"{SITE}/")
        for file in plan.files
        for soname, path in file.closure
        if path.startswith(f"{SITE}/")
    }
    places = (f"{site}/", f"{os.path.realpath(site)}/", "$WHEEL/")
    loaded = ((name, posixpath.normpath(path)) for file in files for name, path in file.closure)
    elsewhere = {name: path for name, path in loaded if name in beside and not path.startswith(places)}
    for name, path in elsewhere.items():
        text = f"the loader takes {path}, and not {beside[name]} as when the wheel was relinked"
        yield finding("RLK537", name, text)


def python_call_findings(
    calls: Iterable[tuple[str, list[str]]],
    provider: Provider,
    vendor: Vendor,
    finds: Callable[[str], bool] = lambda _: False,
) -> Iterator[Finding]:
    """Yield RLK538 for each module that loads libraries of a provider by their sonames alone, with the remedy.

    :param calls: as :attr:`relink.planning.contents.Contents.calls`.
    :param finds: whether the target's loader finds a library by itself.
    """
    for module, sonames in calls:
        provided = [
            soname
            for soname in sonames
            if any(soname_stem(name) == soname_stem(soname) for name in provider.libraries)
            and not finds(soname)
        ]
        if provided:
            message = f"loads {join_truncated(provided)} by name, which no search path of the wheel leads to"
            remedy, step = _way_out(provided, provider, vendor)
            yield finding("RLK538", module, message, remedy, step=step)


def _way_out(sonames: Sequence[str], provider: Provider, vendor: Vendor) -> tuple[str, str | None]:
    """Return the remedy with which the loader finds libraries of a provider by these names, and its command if there is one."""
    if provider.kind == SITE_PACKAGES:
        lines = vendor.packages.preload_lines(sonames)
        return f"Its maintainer adds before: {lines}. Until then: run these two statements first.", None
    paths = {soname: path for soname in sonames if (path := provider.find(soname))}
    if lacking := [soname for soname in sonames if soname not in paths]:
        has = [name for name in provider.libraries if soname_stem(name) in map(soname_stem, lacking)]
        text = f"{provider.path} has {join_truncated(has)} and no {join_truncated(lacking)}"
        return (
            f"{text}: make a link of that name in a directory that LD_LIBRARY_PATH names before Python starts.",
            None,
        )
    step = f"export LD_LIBRARY_PATH={shlex.quote(':'.join(dict.fromkeys(map(posixpath.dirname, paths.values()))))}"
    return f"{step}, before Python starts.", step


def find_vendor_requirements(
    source: MemberSource, vendor: Vendor, providers: Sequence[Provider], gpus: Iterable[RequestedGpu] = ()
) -> tuple[ChangedRequirement, ...]:
    """Return the requirements of the vendor's packages that a prefix stands in for, or that the installed ones do not meet.

    :param gpus: those whose code alone is wanted: packages with the code for others are not required.
    """
    site = next((provider for provider in providers if provider.kind == SITE_PACKAGES), None)
    installed = site.packages[0].version if site is not None and site.packages else ""
    kept = processors_of(gpus, vendor)
    own = [(text, one) for text, one in _requirements(source) if vendor.packages.is_distribution(one.name)]
    narrowed = vendor.packages.narrow([one for _, one in own], kept)
    changes = []
    for (text, before), after in zip(own, narrowed, strict=True):
        if (site is None and (providers or not kept)) or after is None:
            changes.append(ChangedRequirement(text))
            continue
        if _is_version(installed) and not after.specifier.contains(installed, prereleases=True):
            after.specifier = SpecifierSet(f"=={major_minor(installed)}.*")
        if after is not before or (after.specifier != Requirement(text).specifier):
            changes.append(ChangedRequirement(text, str(after)))
    return tuple(changes)


def requires_other_code(source: MemberSource, gpus: Sequence[RequestedGpu]) -> bool:
    """Whether a wheel requires packages with code for other GPUs than these, and could do without."""
    return any(find_vendor_requirements(source, vendor, (), gpus) for vendor in VENDORS if gpus)


def device_findings(
    source: MemberSource, vendor: Vendor, gpus: Sequence[str], changes: Iterable[ChangedRequirement]
) -> Iterator[Finding]:
    """Yield RLK547 for requirements that bring code for all GPUs or for others, if the output has them in any form.

    :param gpus: processors.
    """
    after = {change.before: change.after for change in changes}
    for text, requirement in _requirements(source):
        note = vendor.packages.device_note(requirement.name, requirement.extras, gpus)
        if note is None or "extra" in str(requirement.marker):
            continue
        if text not in after:
            yield finding("RLK547", text, *note)
        elif new := after[text]:
            yield finding("RLK547", text, f"{note[0]}: {new} takes its place", "Nothing.", "info")


def follow_label(source: MemberSource, output: WheelName, vendor: Vendor) -> tuple[ChangedRequirement, ...]:
    """Return the other requirements of exactly one version with the wheel's own local label, where the output has another."""
    old, new = source.name.version.local, output.version.local
    changes = []
    for text, requirement in _requirements(source) if old and new and old != new else ():
        if vendor.packages.is_distribution(requirement.name):
            continue
        pins = [specifier.version for specifier in requirement.specifier if specifier.operator == "=="]
        if len(requirement.specifier) == len(pins) == 1 and pins[0].endswith(f"+{old}"):
            requirement.specifier = SpecifierSet(f"=={pins[0].removesuffix(str(old))}{new}")
            changes.append(ChangedRequirement(text, str(requirement)))
    return tuple(changes)


def find_members_to_drop(
    profile: Profile, members: Iterable[str], providers: Iterable[Provider], leave_out: Iterable[str] = ()
) -> dict[str, str]:
    """Return the members that the user leaves out, and where a prefix takes the place of the vendor's packages those for these.

    :return: name → why.
    """
    globs = [(glob, f"--leave-out {glob}") for glob in leave_out]
    if not any(provider.kind == SITE_PACKAGES for provider in providers):
        globs += [(glob, row.why) for row in profile.for_packages for glob in row.members]
    return {member: why for member in members for glob, why in globs if fnmatch.fnmatchcase(member, glob)}


def requirement_findings(
    changes: Sequence[ChangedRequirement], removed: Mapping[str, str], subject: str, profile: Profile
) -> Iterator[Finding]:
    """Yield RLK539 for requirements of METADATA that change, and RLK541 for members that leave the wheel."""
    gone = [change.before for change in changes if change.after is None]
    other = [f"{change.after} in place of {change.before}" for change in changes if change.after is not None]
    if parts := [*([f"no longer {join_truncated(gone)}"] if gone else []), *other]:
        yield finding("RLK539", subject, f"METADATA requires {'; '.join(parts)}")
    for member, why in removed.items():
        yield finding("RLK541", member, f"left out: {why}", profile=profile.name)


def _requirements(source: MemberSource) -> Iterator[tuple[str, Requirement]]:
    return read_metadata(read_member(source, f"{source.dist_info}/METADATA")).requirements()


def _is_version(text: str) -> bool:
    try:
        return bool(Version(text))
    except InvalidVersion:
        return False


class Relocation(msgspec.Struct, frozen=True):
    """The packages and directories outside of the wheel that a result relies on.

    :ivar relies_on: the packages beside it: those of a provider, found by ``$ORIGIN``, and others that have libraries of it.
    :ivar absolute: what names a directory of this machine: a library, search path entry or program, and the path.
    """

    relies_on: tuple[Reliance, ...]
    absolute: Mapping[str, str]

    @property
    def relocatable(self) -> bool:
        """Whether the result relies on packages beside the wheel, and on no directory of this machine."""
        return any(not package.files for package in self.relies_on) and not self.absolute


NOTHING_BESIDE = Relocation((), {})
"""What a wheel relies on that stays as it is."""


def find_relocation(
    files: Iterable[FilePlan],
    providers: Sequence[Provider],
    linked: Mapping[str, str],
    interpreter: str,
    siblings: Iterable[Reliance] = (),
) -> Relocation:
    """Find the packages and directories that the files of a plan rely on.

    :param linked: the path in site-packages → where it really is, of the packages that are installed beside the wheel.
    :param interpreter: the loader that every Linux of this machine has at the same path.
    :param siblings: the packages that are no providers and have libraries of it.
    """
    used: dict[tuple[str, str], dict[str, None]] = {}
    absolute: dict[str, str] = {}
    for file in files:
        if not file.served:
            continue
        own = [
            (entry.soname_after or entry.soname, entry.resolved or "")
            for entry in file.needed
            if entry.origin == "provider"
        ]
        for soname, path in [*own, *file.closure]:
            real = posixpath.normpath(path)
            provider = next((candidate for candidate in providers if candidate.holds(real)), None)
            if provider is None or provider.kind == TREE:
                continue
            beside = provider.kind == SITE_PACKAGES and _entry(real, linked)
            package = next(
                (installed for installed in provider.packages if installed.directory == beside), None
            )
            if package is None:
                absolute.setdefault(soname, real)
                continue
            directories = used.setdefault((package.name, package.version), {})
            if (soname, path) in own:
                directories[posixpath.dirname(real).removeprefix(f"{provider.path}/")] = None
        if file.changed:
            for entry in (file.edit.search_path or "").split(":"):
                if entry.startswith("/") and not any(provider.holds(f"{entry}/x") for provider in providers):
                    absolute.setdefault(f"search path of {file.path}", entry)
            if file.edit.interpreter not in (None, interpreter):
                absolute.setdefault(f"loader of {file.path}", str(file.edit.interpreter))
    packages = tuple(Reliance(*package, tuple(directories)) for package, directories in sorted(used.items()))
    return Relocation((*packages, *siblings), absolute)


def _entry(path: str, linked: Mapping[str, str]) -> str | None:
    return next((entry for entry, real in linked.items() if path.startswith(f"{real}/")), None)


def choose_platform_tag(
    claimed: str, versions: Iterable[str], files: Iterable[FilePlan], machine: int
) -> str:
    """Return the platform tag of a result that names no directory of this machine.

    It is the vendor's where every Linux of that age has what the files take from the system, else the oldest manylinux tag that
    is true, else ``linux_<machine>``. The libraries of packages beside it count as those that ``auditwheel --exclude`` leaves
    out.

    :param claimed: the vendor's platform tags, with points between them.
    :param versions: the symbol versions that the files require.
    """
    taken = (entry for file in files if file.served for entry in file.needed if entry.origin == "platform")
    if not all(is_platform_library(entry.soname_after or entry.soname, machine) for entry in taken):
        return f"linux_{machine_name(machine)}"
    oldest = find_manylinux_tag(versions, machine)
    return claimed if all(satisfies_tag(tag, oldest, machine) for tag in claimed.split(".")) else oldest


def relocation_findings(moves: Relocation, subject: str) -> Iterator[Finding]:
    """Yield RLK530 for the packages that a result relies on, and RLK535 for directories that keep the result on this machine."""
    if moves.relies_on:
        parts = [
            f"{package.name} {package.version}" + (f" ({', '.join(files)})" if files else "")
            for package, files in (
                (package, package.directories or package.files) for package in moves.relies_on
            )
        ]
        brought = any(not package.files for package in moves.relies_on)
        remedy = (
            None if brought else "Nothing; `relink verify --in VENV` tells whether an environment has it."
        )
        yield finding("RLK530", subject, f"relies on {', '.join(parts)}, installed beside it", remedy)
    if moves.absolute and any(not package.files for package in moves.relies_on):
        parts = [f"{name} ({path})" for name, path in moves.absolute.items()]
        yield finding("RLK535", subject, f"works on this machine only, because of {join_truncated(parts)}")


# Rounds in which copies follow those that leave: ROCm's libraries need libdw, and libdw brings libelf.
_ROUNDS = 4


class Copies(msgspec.Struct, frozen=True):
    """The copies in a wheel, and the wheel without those that a prefix has.

    :ivar rest: the wheel as if it had only the other members.
    :ivar removed: the members that leave: copies, and files that only these use.
    :ivar explanation: which leave, and which the prefix has no library for; or why none can leave.
    """

    rest: Wheel
    removed: tuple[str, ...]
    explanation: str


def find_copies(
    wheel: Wheel, profile: Profile, vendor: Vendor, providers: Sequence[Provider]
) -> Copies | None:
    """Return the copies of a vendor's libraries that the profile says are in a wheel, or None where there are none."""
    globs = [glob for row in profile.bundled if row.library is None for glob in row.members]
    copies = _matching([member for member, image in wheel.images.items() if image.soname], globs)
    sonames = {member: wheel.images[member].soname or "" for member in copies}
    own = {member for member, soname in sonames.items() if vendor.libraries.is_own(soname)}
    if not own:
        return None
    where = providers[0].path if providers else "there"
    provided = {
        member for member, soname in sonames.items() if any(place.find(soname) for place in providers)
    }
    if lacking := {
        sonames[member] for member in own - provided if vendor.libraries.is_runtime(sonames[member])
    }:
        return Copies(wheel, (), f"{where} has no {min(lacking)}")
    leaving = own & provided
    for _ in range(_ROUNDS):
        needed = {soname for member in leaving for soname in wheel.images[member].needed}
        kept = {
            name for member, image in wheel.images.items() if member not in leaving for name in image.needed
        }
        for member in (
            member for member, soname in sonames.items() if vendor.libraries.has(soname) and member not in own
        ):
            names = {posixpath.basename(member), sonames[member]}
            # Others of the product's libraries leave as well, once no member that stays needs them.
            if not kept & names and (member in provided or needed & names):
                leaving.add(member)
    stems = {soname_stem(sonames[member]) for member in leaving}
    globs = [glob for row in profile.bundled if row.library in stems for glob in row.members]
    files = _matching(wheel.source.members, globs)
    names_of = [
        join_truncated([posixpath.basename(member) for member in part])
        for part in (sorted(leaving), sorted(own - leaving))
    ]
    explanation = f"left out: {names_of[0]}, copies of what {where} has"
    explanation += f", and {pluralize(len(files), 'file')} of theirs" if files else ""
    explanation += f"; kept, as it has no such library: {names_of[1]}" if own - leaving else ""
    rest = _without(wheel, {member: sonames[member] for member in leaving})
    return Copies(rest, (*sorted(leaving), *files), explanation)


def find_hosts(
    wheel: Wheel, names: Iterable[str], vendor: Vendor, providers: Sequence[Provider]
) -> tuple[Copies, tuple[Provider, ...]]:
    """Return a wheel that brings the vendor's libraries, without those that the host's replace, and providers of these alone.

    :param names: the sonames, as ``--use-host`` has them.
    :raises UsageError: one is no library of the machine's, no provider has it, or the wheel does not bring it.
    """
    reasons: dict[str, str] = {}
    for name in dict.fromkeys(names):
        why = vendor.libraries.of_host(name)
        if why is None:
            text = "of a vendor's libraries only those of the machine's driver or network are taken from it"
        elif not any(provider.find(name) for provider in providers):
            text = f"{', '.join(provider.path for provider in providers) or 'no place'} has no such library"
        elif not any(image.soname == name for image in wheel.images.values()):
            text = f"{wheel.source.path.name} brings no library of that soname"
        else:
            reasons[name] = why
            continue
        raise UsageError(f"--use-host {name}: {text}")
    leaving = {
        member: image.soname or "" for member, image in wheel.images.items() if image.soname in reasons
    }
    where = providers[0].path
    taken = "; ".join(
        f"left out: {posixpath.basename(member)}, for {soname} of {where} (--use-host): {reasons[soname]}"
        for member, soname in sorted(leaving.items())
    )
    hosts = (
        replace(
            provider, libraries={name: provider.libraries[name] for name in reasons if provider.find(name)}
        )
        for provider in providers
    )
    return Copies(_without(wheel, leaving), tuple(sorted(leaving)), taken), tuple(hosts)


def _without(wheel: Wheel, leaving: Mapping[str, str]) -> Wheel:
    """The wheel as if it had only the other members; `leaving`: member → soname."""
    rest = {
        kind: {member: known for member, known in getattr(wheel, kind).items() if member not in leaving}
        for kind in ("images", "tables", "codes", "opens")
    }
    left_out = {posixpath.basename(member): soname for member, soname in leaving.items()}
    return replace(wheel, **rest, left_out=left_out)


def _matching(members: Iterable[str], globs: Sequence[str]) -> list[str]:
    return [member for member in members if any(fnmatch.fnmatchcase(member, glob) for glob in globs)]
