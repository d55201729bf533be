"""What is assessed: a wheel as read, for a target, with the places that it may be linked to and what the user said.

Takes options; gives the target, the providers and the :class:`~relink.planning.resolve.context.ResolveContext` that all decisions
are made from. :mod:`relink.planning.assess` answers for a :class:`Case`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from relink.gpu.coverage import RequestedGpu
from relink.loader.python import active_python
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import Target, find_target
from relink.planning.model import Plan
from relink.planning.options import Options
from relink.planning.reading import Wheel
from relink.planning.resolve.context import Layout, ResolveContext, find_site_directory
from relink.planning.siblings import find_siblings
from relink.planning.site import find_directories_beside, find_own_site, find_packages_beside
from relink.providers.distribution import read_distribution
from relink.providers.nix_store import find_compiler_runtime, open_closure, open_place
from relink.providers.prefix import NAME_ANOTHER, SITE_PACKAGES, Provider, leave_out_package
from relink.providers.profiles import Hint, Profile, profile_for
from relink.system.errors import NoPlaceError, ProviderError, SeveralPlacesError, UsageError, WheelError
from relink.system.progress import RunBudget
from relink.vendors.protocol import Vendor
from relink.vendors.registry import (
    choose_place,
    find_places,
    find_places_beside,
    open_site,
    prefix_of_libraries,
    vendor_of,
    vendor_that_has,
    vendors_of,
)
from relink.wheel.limits import WheelLimits
from relink.wheel.source import MemberSource, read_member

Command: TypeAlias = Literal[
    "run", "tree", "apply", "verify", "explain", "nix", "nix without libraries", "check", "check tree"
]
"""Who asks: that decides which findings are shown, and never what an answer is."""


class Case(msgspec.Struct, frozen=True):
    """One wheel, tree or installed distribution, with the target, the providers and the options of its assessment.

    :ivar wheel: its files as read.
    :ivar gpus: the GPUs that the result is to run on.
    :ivar layout: where the members are; None: where an installer puts them.
    :ivar site: the site-packages whose packages lie beside it; None: that of a Python which the user named.
    :ivar seen: what other assessments have read of the target's files; None: nothing.
    :ivar plan: the plan that is carried out, or the one that relink wrote into the wheel.
    """

    wheel: Wheel
    target: Target
    providers: tuple[Provider, ...]
    options: Options
    command: Command
    gpus: tuple[RequestedGpu, ...] = ()
    layout: Layout | None = None
    site: str | None = None
    seen: Tables | None = None
    plan: Plan | None = None

    @property
    def as_it_is(self) -> bool:
        """Whether nothing is edited, since the question is whether the files load now."""
        return self.command in ("apply", "verify", "nix without libraries", "check", "check tree")

    @property
    def is_installed(self) -> bool:
        """Whether an installer puts the members where they belong; the files of a directory stay where they are."""
        return self.command not in ("tree", "check", "check tree")

    @property
    def vendor(self) -> Vendor:
        """The vendor that the wheel is linked to."""
        return vendor_of(self.wheel.needed, self.providers, self.target.sysroot)


def choose_target(options: Options) -> Target:
    """Return the target that options name; by default the loader of this machine.

    :raises TargetError: it cannot be found, run or understood.
    """
    return find_target(python=options.python, interpreter=options.interpreter, sysroot=options.sysroot)


def open_providers(
    options: Options, target: Target, sonames: Collection[str] | None = None
) -> tuple[Provider, ...]:
    """Open the prefixes that were named, or else the one place that has the libraries of the vendor whose a wheel needs.

    :param sonames: what the wheel needs. Where there is no place, and none of these is a vendor's, no place is needed.
    :raises UsageError: none was named, and there is none or more than one.
    :raises ProviderError: what was named is no prefix; names those that are there.
    """
    if options.prefixes or options.nix_closures:
        found: tuple[Provider, ...] = ()
        for path in options.prefixes:
            try:
                found = (*found, _open(path, target, options))
            except ProviderError as error:
                raise _prefix_error(error, path, target, sonames or ()) from None
        found += tuple(one for path in options.nix_closures for one in open_closure(path, target))
    else:
        try:
            own = not (options.interpreter or options.sysroot)
            place = choose_place(target, os.environ, sonames or (), own=own)
        except NoPlaceError:
            if sonames is None or vendors_of({*sonames} - {*options.stub}):
                raise
            return ()
        try:
            main = replace(_open(place.path, target, options), found_by=place.found_by)
        except ProviderError as error:
            named = ProviderError(error.message.replace("--prefix", place.found_by, 1), error.issues)
            raise _prefix_error(named, place.path, target, sonames or ()) from None
        places = find_places_beside(target, os.environ, main.path) if main.kind != SITE_PACKAGES else ()
        found = (main,)
        for one in places:
            with suppress(ProviderError):
                found = (*found, replace(_open(one.path, target, options), found_by=one.found_by))
    return (*found, *find_compiler_runtime(found, target))


def _prefix_error(error: ProviderError, path: str, target: Target, sonames: Collection[str]) -> ProviderError:
    """Return the error about a directory that is no prefix: it names those that are there, and the one that fits best."""
    text = error.message
    here = [place.path for place in find_places(target, os.environ, os.path.abspath(path))]
    if here and text.endswith(NAME_ANOTHER):
        text = f"{text.removesuffix(NAME_ANOTHER)}here {'is' if len(here) == 1 else 'are'} {', '.join(here)}"
    if len(here) > 1:
        try:
            here = [choose_place(target, {}, sonames, own=False).path]
        except SeveralPlacesError as several:
            here = [*several.places]
        except NoPlaceError:
            here = []
    return ProviderError(text, error.issues, (path, here[0]) if len(here) == 1 else None)


def _open(path: str, target: Target, options: Options) -> Provider:
    return open_site(path, target, options.requested_gpus) or open_place(
        prefix_of_libraries(path, target), target
    )


def find_prefixes_with(sonames: Collection[str], target: Target, options: Options) -> Iterator[str]:
    """Yield the prefixes of the target that have these libraries, by their real directories."""
    for place in find_places(target, os.environ, "/"):
        with suppress(ProviderError):
            if all(map(_open(place.path, target, options).find, sonames)):
                yield place.path


def open_used_places(paths: Iterable[str], target: Target) -> tuple[Provider, ...]:
    """Open the places that libraries were taken from, where nobody named one.

    :param paths: of the libraries, as the target has them; those of the wheel itself are passed over.
    """
    places: dict[str, Provider] = {}
    for directory in dict.fromkeys(os.path.dirname(path) for path in paths if path.startswith("/")):
        with suppress(UsageError, ProviderError):
            provider = _open(directory, target, Options())
            places.setdefault(provider.path, provider)
    return tuple(places.values())


def is_python_named(options: Options) -> bool:
    """Whether the user named the Python that will load the result, by an option or by an active environment."""
    return bool(options.python or active_python(os.environ))


def build_context(case: Case) -> ResolveContext:
    """Build the context of all decisions about a case: layout, providers, profile, vendor and the user's options."""
    wheel, target, options = case.wheel, case.target, case.options
    source, name = wheel.source, wheel.source.name
    vendor = case.vendor
    # An environment may have an earlier build of this very package, which the result replaces.
    providers = [leave_out_package(provider, name.distribution) for provider in case.providers]
    layout = case.layout or _build_layout(case, vendor, providers)
    links = {f"{layout.site_packages}/{entry}": real for entry, real in layout.links.items()}
    budget = RunBudget((options.limits or WheelLimits()).loads)
    files = Files(target.sysroot, links=links, budget=budget)
    seen = case.seen or Tables(files)
    seen.files.share_disk(files)
    return ResolveContext(
        target=target,
        seen=seen.over(files, {}),
        providers=tuple(providers),
        images=wheel.images,
        tables=wheel.tables,
        layout=layout,
        profile=_of_this_release(profile_for(name.distribution, options.profile), source),
        distribution=read_distribution(target.sysroot),
        vendor=vendor,
        allow_missing=tuple(options.allow_missing),
        substitutes=tuple(_split_pair(text) for text in options.substitute),
        assume_symbols=tuple(options.assume_symbols),
        preload=tuple(options.preload),
        preload_known=options.preload_known,
        several=options.several,
        clear_execstack=tuple(options.clear_execstack),
        search_path=options.search_path,
        opens=wheel.opens,
        left_out=wheel.left_out,
        siblings=()
        if not case.is_installed
        else find_siblings(
            source,
            wheel.images,
            target,
            files,
            lambda soname: vendor_that_has(soname) is not None,
            is_verified=case.command == "verify",
        ),
        member_directories=frozenset(
            os.path.dirname(layout.path_of(member))
            # One member of each directory: an environment has hundreds of thousands.
            for member in {os.path.dirname(member): member for member in source.members}.values()
        ),
        as_it_is=case.as_it_is,
    )


def _of_this_release(profile: Profile, source: MemberSource) -> Profile:
    """Return a profile with those hints alone whose `named` the wheel's Python has."""

    def holds(hint: Hint) -> bool:
        for module in (member for member in source.members if hint.named and member.endswith(".py")):
            with suppress(WheelError):
                if hint.named.encode() in read_member(source, module):
                    return True
        return not hint.named

    return replace(profile, hints=tuple(filter(holds, profile.hints)))


def _build_layout(case: Case, vendor: Vendor, providers: Sequence[Provider]) -> Layout:
    """Return where an installer puts the members, with the packages that lie beside them.

    Of the vendor's packages there only those of `providers` are, where these are given.
    """
    wheel, target = case.wheel, case.target
    named = is_python_named(case.options)
    beside = find_packages_beside(providers, target, named=named)
    layout = Layout(site=find_site_directory(wheel.source.name, target.python_facts))
    if place := case.site or (find_own_site(target) if named else None):
        found = find_directories_beside(layout, place, wheel.images, wheel.source.members, target)
        own = [entry for entry in found if providers and vendor.packages.is_package(entry.split("/")[0])]
        beside |= {entry: real for entry, real in found.items() if entry not in own}
    return dataclasses.replace(layout, links=beside)


def _split_pair(text: str) -> tuple[str, str]:
    """Take ``OLD=NEW`` apart.

    :raises UsageError: it is not that.
    """
    old, equals, new = text.partition("=")
    if not (old and equals and new) or "/" in text:
        raise UsageError(
            f"--substitute {text}: write it as OLD=NEW, two sonames, such as libfoo.so.1=libfoo.so.2"
        )
    return old, new
