"""What libraries dlopen: known by a note, by the vendor's table, by the package's profile, or by a string in the file.

The note is the dlopen metadata of PT_NOTE (systemd's ELF_NOTE_DLOPEN). Takes closures; gives sonames with their sources, and
RLK120.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from relink.loader.closure import Closure, Edge, LoadedObject
from relink.loader.object_graph import breadth_first, file_of, needed_by
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES
from relink.planning.model.model import Opened
from relink.planning.resolve.context import ResolveContext
from relink.planning.resolve.strategy import Outcome, simulate
from relink.planning.resolve.unserved_edges import (
    REMEDY_WITHHELD,
    is_of_later_provider,
    matches_library,
    why_withheld,
)
from relink.providers.distribution import is_platform_library
from relink.providers.prefix import soname_stem
from relink.providers.profiles import matching_names
from relink.system.findings.model import Finding, Level, finding
from relink.system.text import grouped, join_truncated

_PROFILE = "profile "


@dataclass(slots=True)
class DlopenKnowledge:
    """What each object dlopens and how that is known: ``note``, ``string``, or ``profile NAME: REASON``.

    A string is a weak sign: it counts only in what imports dlopen, and where a provider has a library of that name, or a
    profile says the same.
    """

    context: ResolveContext
    tables: Tables
    _available: tuple[str, ...] = field(init=False)
    _available_beside: tuple[str, ...] = field(init=False)
    _sources: dict[tuple[object, ...], dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._available = tuple(name for provider in self.context.providers for name in provider.libraries)
        self._available_beside = (*self._available, *self.context.members.sonames)

    def of(self, caller: LoadedObject) -> Mapping[str, str]:
        """Return soname → how it is known that `caller` dlopens it."""
        # The key is the identity of the file: the program and the loader have one identity as objects, whatever their file.
        file = file_of(caller)
        sources = self._sources.get(file)
        if sources is None:
            sources = self._sources[file] = self._find(caller)
        return sources

    def _find(self, caller: LoadedObject) -> dict[str, str]:
        own = caller.image.soname or caller.name
        if own in GLIBC_SONAMES:
            return {}
        sources = {note.sonames[0]: "note" for note in caller.image.dlopen_notes if note.sonames}
        vendor = self.context.vendor
        member = self.context.members.at.get(caller.path)
        if caller.identity[0] == "member" and caller.identity[1] in self.context.added.values():
            # A stub or a forwarder has the name of a library, and none of its code.
            return {}
        # What a package opens by a name of the vendor's counts whether or not a provider has a library of that name.
        strings = [
            name
            for name in self.strings_of(caller)
            if self._is_soname(name, caller) or (member and vendor.libraries.is_own(name))
        ]
        sources |= {name: "string" for name in strings if name not in sources}
        stems = {soname_stem(name) for name in sources}
        # A package that brings a library along brings what that dlopens.
        beside = self.context.members.sonames if member else {}
        available = (*(self._available_beside if member else self._available), *self._in_directory(caller))
        for name, why in vendor.libraries.dlopens_of(own, available).items():
            # The table knows better than a string, which may be there for another reason.
            fits = name in beside or (soname_stem(name) not in stems and self._fits(own, name, caller))
            if sources.get(name) == "string" or fits:
                sources[name] = f"{_PROFILE}{vendor.name}: {why}"
        return sources | (self._of_member(member) if member else {})

    def _of_member(self, member: str) -> dict[str, str]:
        """Return what the package's profile says of a member; a glob that matches no available library is a name of its own."""
        profile = self.context.profile
        known = ((glob, f"{_PROFILE}{profile.name}: {why}") for glob, why in profile.dlopens(member).items())
        return matching_names(known, self._available)

    def strings_of(self, caller: LoadedObject) -> tuple[str, ...]:
        """Return the library names in the read-only data of a member, or of a provider's library."""
        context = self.context
        if member := context.members.at.get(caller.path):
            return context.opens.get(member, ())
        platform = is_platform_library(caller.image.soname or "", context.target.header.machine)
        if platform or not context.is_held(caller.path):
            return ()
        return self.tables.dlopened(file_of(caller), caller.image)

    def _in_directory(self, caller: LoadedObject) -> tuple[str, ...]:
        """Return the names of libraries beside a caller, where no provider has been named and the question is what loads now."""
        if not self.context.as_it_is or caller.identity[0] == "member":
            return ()
        directory = posixpath.dirname(self.context.files.canonical(caller.path))
        return tuple(name for name in self.context.files.names_in(directory) if ".so" in name)

    def _is_soname(self, name: str, caller: LoadedObject) -> bool:
        """Whether a provider has a library whose soname this is; links for compilers and full version names are not dlopened."""
        path = self.context.provider_path(name) or self.context.withheld_path(name)
        if path is None and self.context.as_it_is:
            path = posixpath.join(posixpath.dirname(self.context.files.canonical(caller.path)), name)
        image = self.context.files.open(path).image if path else None
        return image is not None and image.soname == name

    def _fits(self, own: str, name: str, caller: LoadedObject) -> bool:
        """Whether the caller would dlopen this version of a library: of several versions, the one of the caller's own version."""
        if "*" in name:
            # A name is a glob only where no library matched it, and is then reported as missing.
            return True
        if not self._is_soname(name, caller):
            return False
        own_version = soname_stem(name) + own[len(soname_stem(own)) :]
        # Where another version of the caller is there, that one opens this version.
        other_caller = soname_stem(own) + name[len(soname_stem(name)) :]
        if name == own_version or self.context.provider_path(own_version) is not None:
            return name == own_version
        return self.context.provider_path(other_caller) is None

    def follow(self, member: str, outcome: Outcome) -> Closure:
        """Load `member` as planned and follow what its closure dlopens."""
        closure, context = outcome.closure, self.context
        images = (loaded.image for loaded in closure.objects if loaded.image is not outcome.image)
        as_now = all(context.images.get(image.path, image) is image for image in images)
        if as_now and not any(self.of(closure.objects[index]) for index in closure.scope):
            # No image in the closure has changed since, and nothing is dlopened, so the closure still holds.
            return closure
        return simulate(context, member, outcome.image, dlopens=self.of)


def opened_of(
    context: ResolveContext, closures: Iterable[Closure], knowledge: DlopenKnowledge
) -> tuple[Opened, ...]:
    """Return what the objects of closures open, each name of each object once, in the order of the closures."""
    shown = context.layout.shown
    by_name: dict[tuple[str, str, str | None], Opened] = {}
    for closure in closures:
        for edge in closure.dlopened:
            caller = closure.objects[edge.requester]
            opener = shown(posixpath.normpath(caller.path))
            path = (
                None if edge.target is None else shown(posixpath.normpath(closure.objects[edge.target].path))
            )
            rule = None if edge.found_by is None else shown(str(edge.found_by))
            opened = Opened(opener, edge.soname, knowledge.of(caller)[edge.soname], path, rule)
            by_name.setdefault((opener, edge.soname, path), opened)
    return tuple(by_name.values())


def forwardable(context: ResolveContext, name: str) -> list[str]:
    """Return the sonames of the providers' libraries that differ from a name without a number in their number, newest last."""
    named = (near for provider in context.providers for near in provider.nearest(name))
    sonames = [
        near
        for near in dict.fromkeys(named)
        if (path := context.provider_path(near))
        and (image := context.files.open(path).image)
        and image.soname == near
    ]
    return sonames if name.endswith(".so") else []


def unloadable(closure: Closure) -> dict[Edge, list[str]]:
    """Return, of what is opened and found, what does not load, each with the sonames that are not found for it."""
    lacking = grouped((edge.requester, edge.soname) for edge in closure.missing)
    if not lacking:
        return {}
    needed = needed_by(closure)
    found: dict[Edge, list[str]] = {}
    for edge in closure.dlopened:
        reached = () if edge.target is None else breadth_first(needed, [edge.target])
        if names := [name for index in reached for name in lacking.get(index, ())]:
            found[edge] = names
    return found


def _not_opened(
    context: ResolveContext, name: str, callers: Mapping[str, str], lacking: str | None, profile: str | None
) -> Finding:
    """Return RLK132: the vendor's library that a member opens is not found where the loader looks for it, or does not load.

    :param lacking: why what is found does not load.
    :param profile: the one that knows of it, if that is how it is known.
    """
    who = "; ".join(
        f"{caller} ({'a name in its data' if how == 'string' else f'known by {how}'})"
        for caller, how in callers.items()
    )
    others = forwardable(context, name)
    has = f"the prefix has {join_truncated(others)}" if others else "no prefix has it under another number"
    members = [caller.removeprefix(context.layout.own).lstrip("/") for caller in callers]
    required = any(context.profile.requires_opened(member, name) for member in members)
    level: Level = "error" if required else "warning" if others else "info"
    if any(matches_library(pattern, name) for pattern in context.allow_missing):
        # --allow-missing says that the library will be there.
        level = "info"
    opener = join_truncated(list(dict.fromkeys(posixpath.basename(caller) for caller in callers)))
    return finding(
        "RLK132",
        name,
        f"opened by {who}; {lacking or 'not found there'}; {has}",
        f"Pass --forward {name}: the wheel gets a library of that name that leads to the prefix's."
        if others
        else None,
        level,
        profile=profile,
        brief=f"opened by {opener}; {lacking or 'not found there'}; {has}",
        step=f"--forward {shlex.quote(name)}" if others else None,
    )


def profile_of(how: str) -> str | None:
    """Return the profile that knows of a dlopen (:class:`DlopenKnowledge`), or None where a note or a string shows it."""
    return how.removeprefix(_PROFILE).partition(":")[0] if how.startswith(_PROFILE) else None


def _package_of(context: ResolveContext, paths: Collection[str]) -> str | None:
    """Return the distribution of a provider that has all of these files."""
    places = (
        (package.name, f"{provider.path}/{package.directory}/")
        for provider in context.providers
        for package in provider.packages
        if package.directory
    )
    return next((name for name, place in places if all(path.startswith(place) for path in paths)), None)


def dlopen_findings(
    context: ResolveContext, closures: Mapping[str, Closure], knowledge: DlopenKnowledge
) -> Iterator[Finding]:
    """Yield RLK120: one finding a soname that would not be found, with its callers, the sources, and the option that helps.

    Yield RLK111 for one that would be found in a later prefix, which does not serve it.
    """
    missing: dict[str, dict[str, str]] = {}
    lacks: dict[str, str] = {}
    later: dict[tuple[str, str], str] = {}
    for closure in closures.values():
        failing = unloadable(closure)
        for edge in closure.dlopened:
            caller = closure.objects[edge.requester]
            if (lack := failing.get(edge)) and caller.path in context.members.at:
                opened = context.layout.shown(closure.objects[edge.target or 0].path)
                lacks[edge.soname] = f"{opened} does not load: {join_truncated(lack)} is not found"
            if edge.target is None or (lack and caller.path in context.members.at):
                missing.setdefault(edge.soname, {})[context.layout.shown(caller.path)] = knowledge.of(caller)[
                    edge.soname
                ]
            elif is_of_later_provider(context, closure, edge):
                taken = closure.objects[edge.target].path
                later[edge.soname, taken] = context.layout.shown(closure.objects[edge.requester].path)
    for (soname, taken), who in later.items():
        path = context.provider_path(soname)
        why = f"although the prefix has {path}" if path else why_withheld(context)
        remedy = (
            f"Say --preload {soname}: the prefix's own is then loaded before." if path else REMEDY_WITHHELD
        )
        step: str | None = f"--preload {shlex.quote(soname)}" if path else None
        yield finding("RLK111", soname, f"dlopened by {who}, found as {taken}; {why}", remedy, step=step)
    for soname, callers in missing.items():
        who = "; ".join(f"{caller} (known by {how})" for caller, how in callers.items())
        names = {profile_of(how) for how in callers.values()}
        profile = None if None in names else names.pop()
        path = context.provider_path(soname)
        if context.vendor.libraries.is_own(soname) and any(
            caller.startswith(context.layout.own) for caller in callers
        ):
            yield _not_opened(context, soname, callers, lacks.get(soname), profile)
        elif path:
            message = f"would not be found, although the prefix has {path}; opened (dlopen) by {who}"
            remedy = (
                f"Say --preload {soname}: it is then loaded with the wheel's library and found by its soname."
            )
            who_opens = join_truncated([posixpath.basename(caller) for caller in callers])
            brief = f"not found when {who_opens} opens it (dlopen)"
            step = f"--preload {shlex.quote(soname)}"
            if package := _package_of(context, [path, *callers]):
                remedy = f"Relink {package}, too: what loads it lies beside it, and does not look there."
                step = None
            yield finding("RLK120", soname, message, remedy, profile=profile, brief=brief, step=step)
        else:
            message = f"would not be found, and no prefix has it; opened (dlopen) by {who}"
            remedy = "Install it where the library that loads it looks, if you use what it is for."
            yield finding("RLK120", soname, message, remedy, level="info", profile=profile)
