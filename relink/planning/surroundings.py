"""The site-packages that a wheel is, or will be, installed into: which packages lie there beside its members.

Takes a target, a wheel and providers. Gives the links of :class:`~relink.planning.resolve.layout.Layout`, RLK534 and RLK550
about several site-packages of one Python, RLK536 and RLK537 where an environment has not what a relinked wheel relies on, and
RLK538 about Python code that loads libraries by a bare soname. ``ctypes.CDLL("libamdhip64.so.7")`` is a dlopen by Python's own
``_ctypes``, so ld.so looks in that one's RUNPATH, not in those of the wheel (glibc elf/dl-load.c, _dl_map_object). What is mapped
already under the soname is taken.
"""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from relink.elf.image import Image
from relink.loader.search import expand
from relink.loader.seen_files import resolve_inside
from relink.loader.target import Target
from relink.planning.model.embedded import SITE
from relink.planning.model.files import FilePlan, Reliance
from relink.planning.model.model import Plan
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.layout import Layout
from relink.planning.resolve.proof import system_path
from relink.providers.prefix import Provider, soname_stem
from relink.providers.site_packages import SITE_PACKAGES, find_distribution, major_minor, owners_of
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding
from relink.system.text import join_truncated
from relink.vendors.protocol import Vendor
from relink.wheel.source import MemberSource


def environment_site(directory: str, python: str) -> str:
    """Return the site-packages of a virtual environment, or the directory itself if it is one.

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


def python_in(environment: str | None) -> str | None:
    """Return the Python of a virtual environment, or None where the directory has none."""
    program = posixpath.join(environment or "", "bin", "python")
    return program if environment is not None and os.access(program, os.X_OK) else None


def packages_beside(providers: Iterable[Provider], target: Target, *, named: bool) -> dict[str, str]:
    """Return where the packages really are that a wheel will have beside it: the path in site-packages → the directory.

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
    own = own_site(target) if named or provider.found_by else None
    return own is None or os.path.realpath(own) == os.path.realpath(provider.path)


def overlays(
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
    sites += [site for site in (own_site(target) if named else None,) if site]
    return [] if layout.tree else [(layout.site_packages, site) for site in dict.fromkeys(sites)]


def layer_findings(
    providers: Iterable[Provider], target: Target, vendor: Vendor, *, named: bool
) -> Iterator[Finding]:
    """Yield RLK534 and RLK550: the wheel will not lie beside a provider, and the vendor is in another site-packages, too.

    :param named: as for :func:`packages_beside`.
    """
    facts = target.python_facts
    for provider in providers:
        if provider.kind != SITE_PACKAGES:
            continue
        if not _is_own(provider, target, named=named):
            text = f"the wheel will be installed into {own_site(target)}, so search paths name the directory and not $ORIGIN"
            yield finding("RLK534", provider.path, text)
        for site in facts.site_packages if facts and (named or provider.found_by) else ():
            other = os.path.realpath(site) != os.path.realpath(provider.path)
            if other and (packages := vendor.packages.packages_of(site, target)):
                names = join_truncated([f"{package.name} {package.version}" for package in packages])
                yield finding(
                    "RLK550", site, f"it has {names}, which are not looked at: {provider.path} is taken"
                )


def packages_findings(
    source: MemberSource,
    context: ResolveContext,
    files: Sequence[FilePlan],
    gpus: Sequence[str],
) -> Iterator[Finding]:
    """Yield what is to be said about the vendor's packages in site-packages, and about Python code that loads libraries."""
    sonames = [soname for file in files if file.served for soname, _ in file.closure]

    def finds(soname: str) -> bool:
        return any(system_path(context, member, soname) for member in islice(context.images, 1))

    for provider in context.providers:
        if provider.kind == SITE_PACKAGES:
            yield from python_call_findings(source, provider, context.vendor)
            yield from context.vendor.packages.site_findings(provider, sonames, context.target, gpus)
        elif not context.layout.tree:
            yield from python_call_findings(source, provider, context.vendor, finds)


def own_site(target: Target) -> str | None:
    """Return the site-packages that an installer puts wheels into for the target's Python, where it is known."""
    facts = target.python_facts
    return (facts.installs_into or None) if facts is not None else None


def with_beside(
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


def siblings_relied_on(
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
        owned = owners_of(site, inside, target)
        sites += [site] if owned else []
        for file in sorted(owned):
            used.setdefault((owned[file].name, owned[file].version), []).append(file)
    relied = (Reliance(*package, files=tuple(listed)) for package, listed in sorted(used.items()))
    return tuple(relied), tuple(sites)


def _parents(directory: str) -> Iterator[str]:
    while directory not in ("", "/"):
        directory = posixpath.dirname(directory)
        yield directory


def idle_findings(plan: Plan, files: Sequence[FilePlan], context: ResolveContext) -> Iterator[Finding]:
    """Yield RLK127 for each stub of a plan whose real library exists by now, and say whether the loader prefers it.

    :param files: what loading each member maps now.
    """
    members = [file.path for file in files if not context.images[file.path].is_executable]
    for stub in plan.stubs:
        own = context.layout.shown(context.layout.path_of(stub.path))
        objects = (entry for file in files for entry in file.closure)
        paths = {posixpath.normpath(path) for name, path in objects if name == stub.soname}
        if real := sorted(paths - {own}):
            yield finding("RLK127", stub.soname, f"the loader takes {real[0]}; the stub in the wheel is idle")
        elif members and (path := system_path(context, members[0], stub.soname)):
            yield finding("RLK127", stub.soname, f"{path} is there now, and the stub in the wheel is taken")


def reliance_findings(plan: Plan, files: Iterable[FilePlan], site: str, target: Target) -> Iterator[Finding]:
    """Yield what a relinked wheel relies on and an environment has not: a package, its version, or that a library comes from it.

    :param files: what loading each member maps in that environment.
    """
    facts = target.python_facts
    sites = (site, *(facts.site_packages if facts is not None and own_site(target) == site else ()))
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


_CALLED = (b"CDLL", b"PyDLL", b"LoadLibrary", b"dlopen")
_CALL = re.compile(
    r"\b(?:CDLL|PyDLL|LoadLibrary|dlopen)\(\s*(?:name\s*=\s*)?[\"'](?P<soname>lib[\w+.-]+?\.so(?:\.[\d.]+)?)[\"']"
)
# Bytes of each module that are looked at.
_MODULE_BYTES = 1 << 20
# The most modules of a wheel that are looked at; PyTorch's has as many.
_MODULES = 2_000


def python_call_findings(
    source: MemberSource,
    provider: Provider,
    vendor: Vendor,
    finds: Callable[[str], bool] = lambda _: False,
) -> Iterator[Finding]:
    """Yield RLK538 for each module that loads libraries of a provider by their sonames alone, with what helps there.

    :param finds: whether the target's loader finds a library by itself.
    """
    for module in islice((name for name in source.members if name.endswith(".py")), _MODULES):
        content = source.prefix(module, _MODULE_BYTES)
        # The pattern begins with no character that `re` could skip to.
        if not any(name in content for name in _CALLED):
            continue
        text = content.decode("utf-8", "replace")
        provided = [
            soname
            for soname in dict.fromkeys(match["soname"] for match in _CALL.finditer(text))
            if any(soname_stem(name) == soname_stem(soname) for name in provider.libraries)
            and not finds(soname)
        ]
        if provided:
            message = f"loads {join_truncated(provided)} by name, which no search path of the wheel leads to"
            remedy, step = _way_out(provided, provider, vendor)
            yield finding("RLK538", module, message, remedy, step=step)


def _way_out(sonames: Sequence[str], provider: Provider, vendor: Vendor) -> tuple[str, str | None]:
    """Return what makes the loader find libraries of a provider under these very names, and the command where one does."""
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
